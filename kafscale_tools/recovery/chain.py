"""Determines which objects form a partition's log if only the objects are left. This module does no IO.

It relies on three facts:

- An owner stores no object before its epoch has begun at the high watermark. So an object of epoch e at base offset b
  proves that no object of a lower epoch that reaches beyond b belongs to the log.
- Within an epoch, each offset is assigned once, so its objects never overlap.
- Segments are committed in order, each after it was stored. So all acknowledged records are in complete segments, which
  form an unbroken chain.

The log is the chain of objects that no object of a higher epoch contradicts. It may end above the high watermark,
because a segment that was stored and not committed looks like a committed one. It never ends below the high watermark,
because no acknowledged record is behind a missing object.

An unreadable object is not a missing one. Puts are atomic, so it was a valid segment and has been damaged since. Its
epoch is unknown. If no readable object has its offsets, it counts as part of the log, and so do the objects that follow
it. A hole in which possibly nothing was acknowledged is better than losing acknowledged records.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from services.storage.log.partition import IMPORTED, is_earlier_topics


class Found(NamedTuple):
    """A segment, by its header and footer. It has the offsets from ``base`` up to, but not including, ``next``."""

    base: int
    next: int
    epoch: int
    size: int
    crc: int
    created_ms: int


class Hole(NamedTuple):
    """Committed offsets, up to but not including ``end``, whose objects are missing or unreadable."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Chain:
    """A log with the offsets from ``start`` up to, but not including, ``end``.

    ``above`` is the number of segments behind it that do not belong to it. ``unreadable`` has the base offsets of
    damaged objects that reach beyond ``start``. ``epochs`` has the epochs and first offsets of what precedes the
    segments, if that was rewritten.
    """

    start: int
    end: int
    segments: tuple[Found, ...]
    holes: tuple[Hole, ...]
    above: int
    unreadable: tuple[int, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()

    @property
    def missing(self) -> int:
        """The number of offsets in holes."""
        return sum(hole.end - hole.start for hole in self.holes)

    @property
    def last(self) -> Found | None:
        """The segment that ends at the log's end, if any."""
        return self.segments[-1] if self.segments and self.segments[-1].next == self.end else None

    def history(self) -> list[tuple[int, int]]:
        """Return the epochs and their first offsets, ascending."""
        entries = list(self.epochs)
        for segment in self.segments:
            if not entries or entries[-1][0] != segment.epoch:
                entries.append((segment.epoch, segment.base))
        return entries


def chain_of(
    found: Iterable[Found],
    *,
    unreadable: Sequence[int] = (),
    log_start: int,
    floor: int,
    proven_end: int,
    in_flight: int,
) -> Chain:
    """Return the log that consists of segments from ``found``, which is sorted by base offset.

    ``unreadable`` has the base offsets of unreadable objects, sorted. The log begins at ``log_start`` or later. Objects
    of epoch ``floor`` and below belong to an earlier topic, except imported ones if ``floor`` is 0. The log is known to
    be committed up to ``proven_end``. At most ``in_flight`` segments of an epoch are stored and not committed.
    """
    believed = _uncontradicted(found, floor)
    lost = [each for each in _lost(believed, unreadable) if each.end > log_start]
    lost_end = lost[-1].end if lost else 0
    runs = _runs(segment for segment in believed if segment.next > log_start)
    last = max(
        (
            i
            for i, run in enumerate(runs)
            if i == 0 or run[0].base < proven_end or run[0].base <= lost_end or _longest(run) > in_flight
        ),
        default=-1,
    )
    kept = runs[: last + 1]
    segments = tuple(segment for run in kept for segment in run)
    end = max([log_start, proven_end, lost_end, *(run[-1].next for run in kept)])
    # Retention deletes the oldest segments first, and may have deleted all.
    start = max(log_start, min([end, *(run[0].base for run in kept), *(each.start for each in lost)]))
    holes, position = [], start
    for run in kept:
        if run[0].base > position:
            holes.append(Hole(position, run[0].base))
        position = run[-1].next
    if position < end:
        holes.append(Hole(position, end))
    above = sum(len(run) for run in runs[last + 1 :])
    reaching = {each.start for each in lost}
    damaged = tuple(base for base in unreadable if base >= start or base in reaching)
    return Chain(start, end, segments, tuple(holes), above, damaged)


def _lost(believed: Sequence[Found], unreadable: Sequence[int]) -> list[Hole]:
    """Return the offsets of damaged objects, sorted: up to the next object, or one offset if none follows."""
    lost: list[Hole] = []
    position = 0
    for i, base in enumerate(unreadable):
        while position < len(believed) and believed[position].base <= base:
            position += 1
        if position and believed[position - 1].next > base:
            continue
        following = [segment.base for segment in believed[position : position + 1]]
        lost.append(Hole(base, min([*following, *unreadable[i + 1 : i + 2]], default=base + 1)))
    return lost


def _uncontradicted(found: Iterable[Found], floor: int) -> list[Found]:
    kept: list[Found] = []
    highest = -1
    for segment in found:
        if segment.epoch < highest or is_earlier_topics(segment.epoch, floor):
            continue
        while kept and kept[-1].next > segment.base and kept[-1].epoch < segment.epoch:
            kept.pop()
        highest = segment.epoch
        # Segments of one epoch do not overlap. If they did, every reader would have read the earlier one first.
        if not kept or kept[-1].next <= segment.base:
            kept.append(segment)
    return kept


def _runs(segments: Iterable[Found]) -> list[list[Found]]:
    """Split segments into runs at missing objects."""
    runs: list[list[Found]] = []
    for segment in segments:
        if runs and (runs[-1][-1].next == segment.base or segment.epoch == IMPORTED):
            runs[-1].append(segment)
        else:
            runs.append([segment])
    return runs


def _longest(run: list[Found]) -> int:
    """Return the length of the longest sequence of segments of one epoch."""
    longest = length = 0
    for i, segment in enumerate(run):
        length = length + 1 if i and run[i - 1].epoch == segment.epoch else 1
        longest = max(longest, length)
    return longest
