"""Which objects are a partition's log, when nothing but the objects is left to tell. Pure.

Three things are known of them. An owner puts nothing before its epoch has settled at the committed end: so an object
of epoch e at base b proves that no object of a lower epoch that reaches beyond b is the log's. Within an epoch offsets
are given once: its objects never overlap. And segments are committed in order, each after it was put: what was ever
acked is whole, and follows in one unbroken chain on what was acked before.

So the log is the chain of what is left when all that is contradicted by a higher epoch is taken out. Its end may lie
above the committed end: what was put and not committed yet cannot be told from what was, and is taken for the log where
it follows on it, with nothing else in its place. It never lies below: nothing acked is behind a missing object.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

IMPORTED = 0
"""The epoch of what KafScale 1 wrote: offsets may be missing between such segments."""


class Found(NamedTuple):
    """One segment as its first and last bytes say: offsets from ``base`` up to, not including, ``next``."""

    base: int
    next: int
    epoch: int
    size: int
    crc: int
    created_ms: int


class Hole(NamedTuple):
    """Offsets whose objects are missing although they were committed."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Chain:
    """A log: offsets from ``start`` up to, not including, ``end``. ``above``: segments behind it that are not its."""

    start: int
    end: int
    segments: tuple[Found, ...]
    holes: tuple[Hole, ...]
    above: int

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


def chain_of(found: Iterable[Found], *, log_start: int, floor: int, proven_end: int, in_flight: int) -> Chain:
    """The log that ``found``, ascending by base, are of.

    ``log_start``: the log begins there or later. ``floor``: objects of this epoch and below are an earlier topic's, but
    for imported ones where it is 0. ``proven_end``: so far the log is known to have been committed. ``in_flight``: so
    many segments of one epoch are put at most that are not committed.
    """
    runs = _runs(segment for segment in _uncontradicted(found, floor) if segment.next > log_start)
    if not runs:
        # Retention deletes the oldest first: all of it.
        end = max(log_start, proven_end)
        return Chain(end, end, (), (), 0)
    last = max(i for i, run in enumerate(runs) if i == 0 or run[0].base < proven_end or _longest(run) > in_flight)
    kept = runs[: last + 1]
    holes = [Hole(before[-1].next, run[0].base) for before, run in pairwise(kept)]
    end = kept[-1][-1].next
    if proven_end > end:
        holes.append(Hole(end, proven_end))
    segments = tuple(segment for run in kept for segment in run)
    above = sum(len(run) for run in runs[last + 1 :])
    return Chain(max(log_start, segments[0].base), max(end, proven_end), segments, tuple(holes), above)


def _uncontradicted(found: Iterable[Found], floor: int) -> list[Found]:
    kept: list[Found] = []
    highest = -1
    for segment in found:
        if segment.epoch < highest or (segment.epoch <= floor and not segment.epoch == floor == IMPORTED):
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
