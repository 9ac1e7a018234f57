"""The counters of an indexer."""

from collections import Counter


class IndexerCounters:
    """Plain numbers that the components of an indexer add to."""

    def __init__(self) -> None:
        self.indexes: Counter[str] = Counter()  # by outcome
        self.pages = 0
        self.segments_read = self.read_bytes = 0
        # The number of whole segments in memory, and of requests that wait to read one.
        self.reading = self.waiting = 0
        # By kind (merge, compact) and result.
        self.rewrites: Counter[tuple[str, str]] = Counter()
        self.rewrite_read_bytes = self.rewrite_written_bytes = 0
        self.rewriting = self.rewrites_waiting = 0
