"""Decide what of a log to rewrite, and build the root that results. No I/O.

Compaction begins by Kafka's rules (``LogCleanerManager``): if the part of the log that was never compacted, without the
active segment and what is younger than min.compaction.lag.ms, is large enough, or older than max.compaction.lag.ms.
Kafka's segments are not those here, so the *active* segment is what has followed since the last multiple of about
segment.bytes, and is younger than segment.ms.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafscale.rewritten.root import Entry, Root
from kafscale.topics.configs import TopicConfig
from kafscale.v1.indexer_pb2 import RewriteInput, RewriteStep, RewrittenStep
from kafscale.v1.metadata_pb2 import EpochHistory
from kafscale.v1.rewritten_pb2 import CompactionPass, RewrittenEntry
from services.storage.log.partition import Partition

MOST_INPUTS = 1000
"""Objects of one step, because the root lists the keys of those that it replaces."""
MERGED_SEGMENTS = 16
"""Fewer bytes are merged if they are in so many segments, and the first is older than an hour."""
_LEAST_SHARE = 8
"""Segments for each merged object on average. Otherwise a merge saves hardly any request."""
_MERGED_AGE_MS = 3_600_000
_SHARE_OF_RETENTION = 8
"""An object has at most this fraction of what retention keeps."""
MOST_PARTS = 20_000
"""Objects of a log that are considered at a time."""


@dataclass(frozen=True, slots=True)
class Part:
    """An object of the log, or offsets without records: from ``start`` up to ``end``.

    ``size``: of the object in bytes. ``time_ms``: the largest timestamp of its records, or when it was written.
    ``epoch``: of a segment. ``rewritten``: describes a rewritten object.
    """

    start: int
    end: int
    size: int
    time_ms: int
    epoch: int = 0
    rewritten: RewrittenEntry | None = None

    @property
    def is_segment(self) -> bool:
        return self.rewritten is None

    def as_input(self) -> RewriteInput:
        found = RewriteInput(start=self.start, end=self.end, epoch=self.epoch)
        if self.rewritten is not None:
            found.rewritten.CopyFrom(self.rewritten)
        else:
            found.size = self.size
        return found


class Dirty(NamedTuple):
    """The part of a log that could be compacted, up to ``end``.

    ``bytes``: its size. ``ratio``: its share in the log up to ``end``. ``oldest_ms``: the time of its first object, or
    None if it is empty.
    """

    end: int
    bytes: int
    ratio: float
    oldest_ms: int | None


def parts_of(root: Root) -> list[Part]:
    """Return the parts of a rewritten log."""
    found = []
    for entry in root.entries:
        if entry.found is None:
            found.append(Part(entry.start, entry.end, 0, 0, rewritten=RewrittenEntry(next_offset=entry.end)))
            continue
        time_ms = entry.found.max_timestamp if entry.found.max_timestamp >= 0 else entry.found.created_ms
        found.append(Part(entry.start, entry.end, entry.found.size, time_ms, rewritten=entry.found))
    return found


def dirty(parts: Sequence[Part], config: TopicConfig, *, first_dirty: int, limit: int, now_ms: int) -> Dirty:
    """Return what could be compacted now, up to ``limit`` at most."""
    youngest_ms = now_ms - min(config.segment_ms, config.max_compaction_lag_ms)
    candidates = [part for part in parts if first_dirty <= part.start and part.end <= limit]
    active, size = 0, 0
    for number, part in enumerate(candidates):
        if size and size + part.size > config.segment_bytes:
            active, size = number, 0
        size += part.size
    while active < len(candidates) and candidates[active].time_ms < youngest_ms:
        active += 1
    cleanable = candidates[:active]
    for number, part in enumerate(cleanable):
        if part.time_ms > now_ms - config.min_compaction_lag_ms:
            del cleanable[number:]
            break
    dirty_bytes = sum(part.size for part in cleanable)
    clean_bytes = sum(part.size for part in parts if part.start < first_dirty)
    oldest_ms = candidates[0].time_ms if candidates else None
    if not cleanable:
        return Dirty(first_dirty, 0, 0.0, oldest_ms)
    return Dirty(cleanable[-1].end, dirty_bytes, dirty_bytes / max(dirty_bytes + clean_bytes, 1), oldest_ms)


def is_due(found: Dirty, config: TopicConfig, *, now_ms: int) -> bool:
    """Return whether a pass of compaction should begin."""
    if not found.bytes or found.oldest_ms is None:
        return False
    return found.ratio > config.min_cleanable_dirty_ratio or now_ms - found.oldest_ms > config.max_compaction_lag_ms


def merges_of(
    parts: Sequence[Part], config: TopicConfig, *, limit: int, now_ms: int, target_bytes: int
) -> list[list[Part]]:
    """Return consecutive segments up to ``limit`` that are to be merged, each list into one object.

    They begin where the rewritten log ends. What was rewritten is not merged again, so merging writes each byte once.
    """
    longest_ms, most_bytes = within_retention(config, target_bytes)
    longest_ms = min(longest_ms, config.segment_ms)
    merges: list[list[Part]] = []
    open_, size = list[Part](), 0
    for part in parts:
        if not part.is_segment or part.end > limit:
            continue
        if open_ and (
            size + part.size > most_bytes or part.time_ms - open_[0].time_ms > longest_ms or len(open_) == MOST_INPUTS
        ):
            merges.append(open_)
            open_, size = [], 0
        open_.append(part)
        size += part.size
    if len(open_) >= MERGED_SEGMENTS and now_ms - open_[0].time_ms > _MERGED_AGE_MS:
        merges.append(open_)
    # Objects tile the log, so a few segments between many are merged too.
    while merges and sum(map(len, merges)) < _LEAST_SHARE * len(merges):
        merges.pop()
    return merges


def has_bounds(parts: Sequence[Part], begin: int, end: int) -> bool:
    """Return whether a part begins at ``begin`` and one ends at ``end``, above it."""
    return begin < end and any(part.start == begin for part in parts) and any(part.end == end for part in parts)


def pass_end(parts: Iterable[Part], first_dirty: int, end: int, most_bytes: int) -> int:
    """Return where a pass up to ``end`` ends at the latest, so that at most ``most_bytes`` are dirty, or one part."""
    size, reached = 0, first_dirty
    for part in parts:
        if part.start < first_dirty or part.end > end:
            continue
        size += part.size
        if size > most_bytes and reached > first_dirty:
            return reached
        reached = part.end
    return end


def steps_of(parts: Iterable[Part], config: TopicConfig, target_bytes: int) -> list[RewriteStep]:
    """Group consecutive parts into steps, each of which becomes one object or a few.

    A step has a single part, or at most ``target_bytes``, MOST_INPUTS, and the share of what retention keeps.
    """
    longest_ms, most_bytes = within_retention(config, target_bytes)
    steps: list[RewriteStep] = []
    size, oldest_ms = 0, 0
    for part in parts:
        full = size + part.size > most_bytes or part.time_ms - oldest_ms > longest_ms
        if not steps or full or len(steps[-1].inputs) == MOST_INPUTS:
            steps.append(RewriteStep())
            size, oldest_ms = 0, part.time_ms
        steps[-1].inputs.append(part.as_input())
        size += part.size
    return steps


def within_retention(config: TopicConfig, most_bytes: int) -> tuple[float, int]:
    """Return the time that an object may span, in ms, and its size, because retention deletes whole objects."""
    longest_ms = config.retention_ms // _SHARE_OF_RETENTION if config.retention_ms >= 0 else math.inf
    if config.retention_bytes >= 0:
        most_bytes = min(most_bytes, config.retention_bytes // _SHARE_OF_RETENTION)
    return longest_ms, most_bytes


def next_root(partition: Partition, *, step: RewrittenStep | None = None, compacts: bool = False) -> Root | None:
    """Return the root that follows the partition's, with the result of ``step``, if any, and without obsolete keys.

    Entries below the log start are left out. ``compacts``: the step is part of a pass of compaction. None if there is
    no root to follow, or the step does not continue the log as it is now.
    """
    view = partition.log
    rewritten = view.segments.rewritten
    before = rewritten.root if rewritten is not None else None
    entries = list(before.entries) if before is not None else []
    if step is not None:
        if entries and entries[-1].end <= min(step.start, view.log_start):
            # The log start is in the segments, which the step continues.
            entries = []
        replaced = _replaced(entries, step)
        if replaced is None:
            return None
        entries = replaced
    kept = [entry for entry in entries if entry.end > view.log_start]
    if not kept:
        # A root ends where the segments begin.
        if not entries:
            return None
        kept = [Entry(entries[-1].end - 1, entries[-1].end, None)]
    through = kept[-1].end
    root = Root(
        topic_id=view.topic_id,
        number=partition.state.root.number + 1,
        entries=kept,
        epochs=[
            EpochHistory.Entry(epoch=epoch, first_offset=first, leader_offset=view.leader_offsets.get(epoch, 0))
            for epoch, first in view.epochs
            if first < through
        ],
        first_dirty=before.first_dirty if before is not None else 0,
        compaction=before.compaction if before is not None else None,
    )
    if step is not None and compacts:
        if step.end < step.pass_end:
            root = replace(root, compaction=CompactionPass(end=step.pass_end, next_offset=step.end))
        else:
            root = replace(root, first_dirty=step.pass_end, compaction=None)
    if root.compaction is not None and root.compaction.next_offset <= kept[0].start:
        root = replace(root, compaction=None)
    return root


def _replaced(entries: list[Entry], step: RewrittenStep) -> list[Entry] | None:
    """Return the entries with those of the step's range replaced. None if they do not tile the log any more."""
    fresh, start = list[Entry](), step.start
    for entry in step.entries:
        fresh.append(Entry(start, entry.next_offset, entry if entry.epoch else None))
        start = entry.next_offset
    below = [entry for entry in entries if entry.end <= step.start]
    above = [entry for entry in entries if entry.start >= step.end]
    if start != step.end or len(below) + len(above) + _within(entries, step) != len(entries):
        return None
    continues = not entries or below or entries[0].start == step.start
    reaches = not below or below[-1].end == step.start
    follows = not above or above[0].start == step.end
    return [*below, *fresh, *above] if continues and reaches and follows else None


def _within(entries: list[Entry], step: RewrittenStep) -> int:
    return sum(1 for entry in entries if step.start <= entry.start and entry.end <= step.end)
