"""Counters of a storage instance, across all its runs."""

from collections import Counter

from kafscale.telemetry import Histogram


class CacheCounts:
    """Hits and misses of one cache."""

    __slots__ = ("hits", "misses")

    def __init__(self) -> None:
        self.hits = self.misses = 0


class StorageCounters:
    """Plain numbers that the components of a run increment."""

    def __init__(self) -> None:
        self.flushes: Counter[str] = Counter()  # by trigger
        self.appended_bytes = self.appended_records = self.fetched_bytes = 0
        # The part of appended_bytes that is to be merged.
        self.mergeable_bytes = 0
        self.flush_seconds = Histogram()
        self.segments = self.committed_bytes = 0
        self.commit_seconds = Histogram()
        self.refused: Counter[str] = Counter()  # by status
        self.builds: Counter[str] = Counter()  # by who built the index
        self.take_over_seconds = Histogram()
        self.take_overs = self.hand_overs = self.fenced = self.offline_retries = 0
        self.leases_lost = 0
        self.staged_bytes = self.sink_commits = self.sink_batches = self.stages_expired = 0
        self.scans = self.scanned_bytes = 0
        self.rewrite_steps: Counter[str] = Counter()  # by kind: compaction or merge
        self.rewrites_failed = self.rewrite_read_bytes = self.rewrite_written_bytes = 0
        self.segment_cache, self.index_cache = CacheCounts(), CacheCounts()
        # Why the last index was built here; empty if an indexer built it.
        self.no_indexer = ""
        self.intake_objects = self.intake_bytes = self.intakes_sealed = 0
        # Of records until the put of their object begins, of that put, and of those of earlier objects after it.
        self.intake_wait_seconds, self.intake_put_seconds, self.intake_count_seconds = (Histogram() for _ in range(3))
