"""Which objects are a partition's log, when nothing but the objects is left to tell. Pure.

Three things are known of them. An owner puts nothing before its epoch has settled at the high watermark: so an object
of epoch e at base b proves that no object of a lower epoch that reaches beyond b is the log's. Within an epoch offsets
are given once: its objects never overlap. And segments are committed in order, each after it was put: what was ever
acked is whole, and follows in one unbroken chain on what was acked before.

The log is the chain of the objects that no object of a higher epoch contradicts. Its end may lie above the high
watermark, because an object that was stored and not yet committed looks like a committed one. Its end never lies below
the high watermark: no acknowledged record is behind a missing object.

An object that is there and cannot be read is no missing one: puts are whole or not at all, so it was a segment once,
and is damaged since. Whose it was is not known. It is taken for the log where nothing readable has its offsets, and so
is what follows on it: better a hole where perhaps nothing was acked than to drop what was.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from services.storage.log.partition import IMPORTED, is_earlier_topics


class Found(NamedTuple):
    """One segment as its first and last bytes say: offsets from ``base`` up to, not including, ``next``."""

    base: int
    next: int
    epoch: int
    size: int
    crc: int
    created_ms: int


class Hole(NamedTuple):
    """Offsets whose objects are missing or cannot be read although they were committed."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Chain:
    """A log: offsets from ``start`` up to, not including, ``end``. ``above``: segments behind it that are not its.

    ``unreadable``: bases of damaged objects that are not all below ``start``.
    """

    start: int
    end: int
    segments: tuple[Found, ...]
    holes: tuple[Hole, ...]
    above: int
    unreadable: tuple[int, ...] = ()

    @property
    def last(self) -> Found | None:
        """The segment that ends where the log ends."""
        return self.segments[-1] if self.segments and self.segments[-1].next == self.end else None

    def history(self) -> list[tuple[int, int]]:
        """Epochs with the first offset of each, ascending."""
        entries: list[tuple[int, int]] = []
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
    """The log that ``found``, ascending by base, are of.

    ``unreadable``: bases of objects of which nothing else is known, ascending. ``log_start``: the log begins there or
    later. ``floor``: objects of this epoch and below are an earlier topic's, but for imported ones where it is 0.
    ``proven_end``: so far the log is known to have been committed. ``in_flight``: so many segments of one epoch are put
    at most that are not committed.
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
    # Retention deletes the oldest first, perhaps all.
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
    """What damaged objects held: up to the next object, or a single offset where none follows; ascending."""
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
        # Of one epoch they do not overlap; if they did, the one before was read first by every reader.
        if not kept or kept[-1].next <= segment.base:
            kept.append(segment)
    return kept


def _runs(segments: Iterable[Found]) -> list[list[Found]]:
    """Cut where an object is missing."""
    runs: list[list[Found]] = []
    for segment in segments:
        if runs and (runs[-1][-1].next == segment.base or segment.epoch == IMPORTED):
            runs[-1].append(segment)
        else:
            runs.append([segment])
    return runs


def _longest(run: list[Found]) -> int:
    """How many of one epoch follow each other at most."""
    longest = length = 0
    for i, segment in enumerate(run):
        length = length + 1 if i and run[i - 1].epoch == segment.epoch else 1
        longest = max(longest, length)
    return longest
