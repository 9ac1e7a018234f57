"""Which segments a partition is known to have: pure bookkeeping over what commits and listings told."""

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

UNKNOWN_TIME = -2
"""``max_timestamp`` of a segment whose records nobody has looked at yet (-1 is Kafka's "no timestamp")."""
_MOST_STRETCHES = 256
"""Remembered of one log: each plan of a log that others write may add one."""


@dataclass(frozen=True, slots=True)
class KnownSegment:
    """``size`` is the object's, in bytes."""

    base_offset: int
    size: int
    max_timestamp: int


class Gap(NamedTuple):
    """Offsets from ``start`` up to ``end`` of which nothing is known but what lies before and behind them.

    ``size``: of their segments in bytes, if these are as the larger ones there.
    """

    start: int
    end: int
    size: int


@dataclass(slots=True)
class _Run:
    """Every segment with a base from ``covered_from`` up to, not including, ``covered_to`` is in ``bases``."""

    covered_from: int
    covered_to: int
    bases: "array[int]" = field(default_factory=lambda: array("q"))
    sizes: "array[int]" = field(default_factory=lambda: array("q"))
    times: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, segment: KnownSegment) -> None:
        self.bases.append(segment.base_offset)
        self.sizes.append(segment.size)
        self.times.append(segment.max_timestamp)

    def take(self, other: "_Run", start: int, end: int) -> None:
        """Append some of another's."""
        self.bases.extend(other.bases[start:end])
        self.sizes.extend(other.sizes[start:end])
        self.times.extend(other.times[start:end])

    def at(self, i: int) -> KnownSegment:
        return KnownSegment(self.bases[i], self.sizes[i], self.times[i])

    def find(self, offset: int) -> int:
        """The number of the segment with the highest base at or below ``offset``; -1: none."""
        return bisect_right(self.bases, offset) - 1

    def density(self, i: int) -> float:
        """Bytes per offset of a segment. Where a listing ended the last one's end is not known: then far too many."""
        end = self.bases[i + 1] if i + 1 < len(self.bases) else self.covered_to
        return self.sizes[i] / (end - self.bases[i])


class SegmentMap:
    """Known stretches of the log, ascending and disjoint. The last one, the tail, grows with every commit.

    Bounded: above ``limit`` segments everything but the tail's newer half is forgotten, and the lowest of too many
    stretches; they can be listed again.
    """

    def __init__(self, high_watermark: int, last: KnownSegment | None = None, *, limit: int = 100_000) -> None:
        # The base of the last segment that is known to be committed; -1: of none.
        self.last_base = last.base_offset if last else -1
        self._limit = limit
        self._passed_over: set[int] = set()
        tail = _Run(last.base_offset if last else high_watermark, high_watermark)
        if last is not None:
            tail.add(last)
        self._runs = [tail]

    def __len__(self) -> int:
        return sum(len(run.bases) for run in self._runs)

    def committed(self, segment: KnownSegment, next_offset: int) -> None:
        """Append the segment that the last commit added, which ends before ``next_offset``."""
        tail = self._runs[-1]
        tail.add(segment)
        tail.covered_to = next_offset
        self.last_base = segment.base_offset
        if len(tail.bases) > self._limit:
            self._forget_old()

    def moved_on(self, last: KnownSegment, high_watermark: int) -> None:
        """Take in the segment that another owner committed last, which ends before ``high_watermark``."""
        self.listed(last.base_offset, [last], high_watermark)
        self.last_base = last.base_offset

    def listed(self, start: int, segments: list[KnownSegment], covered_to: int) -> None:
        """Take in what a listing gave: all segments from base ``start`` up to, not including, ``covered_to``."""
        if len(self) + len(segments) > self._limit:
            self._forget_old()
        touching = [run for run in self._runs if run.covered_from <= covered_to and start <= run.covered_to]
        found = {segment.base_offset: segment for segment in segments}
        # What commits told is kept: it knows times.
        found |= {run.bases[i]: run.at(i) for run in touching for i in range(len(run.bases))}
        merged = _Run(
            min([start, *(run.covered_from for run in touching)]),
            max([covered_to, *(run.covered_to for run in touching)]),
        )
        for _, segment in sorted(found.items()):
            merged.add(segment)
        self._put_for(touching, merged)

    def catalogued(self, segments: list[KnownSegment], covered_to: int) -> None:
        """Take in what a catalog page says, as far as there is room: the log's consecutive segments, which end before
        ``covered_to``. What else was listed there is none of the log's.
        """
        if len(self) + len(segments) > self._limit:
            return
        start = segments[0].base_offset
        touching = [run for run in self._runs if run.covered_from <= covered_to and start <= run.covered_to]
        merged = _Run(
            min([start, *(run.covered_from for run in touching)]),
            max([covered_to, *(run.covered_to for run in touching)]),
        )
        for run in touching:
            merged.take(run, 0, bisect_left(run.bases, start))
        for segment in segments:
            merged.add(segment)
        for run in touching:
            merged.take(run, bisect_left(run.bases, covered_to), len(run.bases))
        self._put_for(touching, merged)

    def holding(self, offset: int) -> KnownSegment | None:
        """The segment with the highest base at or below ``offset``, where that stretch of the log is known."""
        for run in reversed(self._runs):
            if run.covered_from <= offset < run.covered_to:
                i = run.find(offset)
                return run.at(i) if i >= 0 else None
        return None

    def stretch(self, offset: int, end: int) -> tuple[list[KnownSegment], int]:
        """The segments from the one that holds ``offset`` on, with bases below ``end``, and where what is known ends.

        None, and ``offset``, where that one is not known.
        """
        for run in reversed(self._runs):
            first = run.find(offset)
            if run.covered_from <= offset < run.covered_to and first >= 0:
                last = bisect_left(run.bases, end, first)
                columns = (run.bases[first:last], run.sizes[first:last], run.times[first:last])
                covered = run.bases[last] if last < len(run.bases) else run.covered_to
                return list(map(KnownSegment, *columns)), covered
        return [], offset

    def before(self, offset: int) -> tuple[KnownSegment | None, int]:
        """The last segment of the stretch that ends at ``offset`` or next below it, and where it ends; none, and 0."""
        run = next((run for run in reversed(self._runs) if run.covered_to <= offset), None)
        return (run.at(len(run.bases) - 1), run.covered_to) if run and run.bases else (None, 0)

    def gap(self, offset: int) -> Gap | None:
        """What is not known around ``offset``; None: it is known, or nothing is before or behind it."""
        i = bisect_right(self._runs, offset, key=lambda run: run.covered_from)
        if not 0 < i < len(self._runs):
            return None
        before, behind = self._runs[i - 1], self._runs[i]
        if offset < before.covered_to or not before.bases or not behind.bases:
            return None
        start, end = before.covered_to, behind.covered_from
        return Gap(start, end, round((end - start) * max(before.density(len(before.bases) - 1), behind.density(0))))

    def after(self, base_offset: int) -> KnownSegment | None:
        """The segment that follows the one at ``base_offset``, where that is known."""
        for run in reversed(self._runs):
            if run.covered_from <= base_offset < run.covered_to:
                i = run.find(base_offset) + 1
                return run.at(i) if i < len(run.bases) else None
        return None

    def forget(self, base_offset: int) -> None:
        """Drop one segment whose object turned out not to belong to the log, for good; its stretch stays known."""
        self._passed_over.add(base_offset)
        for run in self._runs:
            i = run.find(base_offset)
            if i >= 0 and run.bases[i] == base_offset:
                for column in (run.bases, run.sizes, run.times):
                    column.pop(i)

    def forget_stretch(self, offset: int) -> None:
        """Drop what is known around ``offset``: it will be listed anew."""
        end = self._runs[-1].covered_to
        self._runs = [run for run in self._runs if not run.covered_from <= offset < run.covered_to]
        if not self._runs or self._runs[-1].covered_to != end:
            self._runs.append(_Run(end, end))

    def belongs(self, base_offset: int) -> bool:
        """False: the object at this base was looked at, and is none of the log's."""
        return base_offset not in self._passed_over

    def forget_all(self) -> None:
        """Drop what is known, but for which segment is the last one."""
        end = self._runs[-1].covered_to
        self._passed_over.clear()
        self._runs = [_Run(end, end)]

    def learn_time(self, base_offset: int, max_timestamp: int) -> None:
        """Remember the largest timestamp of a segment that somebody has read."""
        for run in self._runs:
            i = run.find(base_offset)
            if i >= 0 and run.bases[i] == base_offset:
                run.times[i] = max_timestamp

    def _put_for(self, touching: list[_Run], merged: _Run) -> None:
        others = [run for run in self._runs if run not in touching]
        self._runs = sorted([*others, merged], key=lambda run: run.covered_from)[-_MOST_STRETCHES:]

    def _forget_old(self) -> None:
        tail = self._runs[-1]
        half = len(tail.bases) // 2
        start = tail.bases[half] if tail.bases else tail.covered_from
        self._runs = [_Run(start, tail.covered_to, tail.bases[half:], tail.sizes[half:], tail.times[half:])]
