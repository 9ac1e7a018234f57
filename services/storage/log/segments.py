"""The known objects of a partition's log. Bookkeeping only, no I/O.

Segments are known from commits, listings and catalog pages. If the log was rewritten, its root describes the objects
that precede the segments.
"""

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from services.storage.log.known_segment import KnownSegment
from services.storage.log.rewritten import RewrittenLog

_MAX_STRETCHES = 256
"""Stretches remembered per log. Each plan of a log that another instance writes may add one."""


class Gap(NamedTuple):
    """Offsets from ``start`` up to ``end`` whose segments are unknown, between known ones.

    ``size``: the bytes of their segments, estimated from the denser of the two neighbors.
    """

    start: int
    end: int
    size: int


@dataclass(slots=True)
class _Run:
    """A stretch: ``bases`` has every segment with a base from ``covered_from`` up to, not including, ``covered_to``."""

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
        """Append the segments ``start`` to ``end`` of another run."""
        self.bases.extend(other.bases[start:end])
        self.sizes.extend(other.sizes[start:end])
        self.times.extend(other.times[start:end])

    def part_from(self, start: int) -> "_Run":
        """Return the stretch without what is below ``start``."""
        if start <= self.covered_from:
            return self
        kept = _Run(start, self.covered_to)
        kept.take(self, bisect_left(self.bases, start), len(self.bases))
        return kept

    def at(self, i: int) -> KnownSegment:
        return KnownSegment(self.bases[i], self.sizes[i], self.times[i])

    def find(self, offset: int) -> int:
        """Return the number of the segment with the highest base at or below ``offset``; -1 if there is none."""
        return bisect_right(self.bases, offset) - 1

    def density(self, i: int) -> float:
        """Return the bytes per offset of a segment.

        The end of the last segment of a listing is unknown; the result is then far too large.
        """
        end = self.bases[i + 1] if i + 1 < len(self.bases) else self.covered_to
        return self.sizes[i] / (end - self.bases[i])


class SegmentMap:
    """Known stretches of the log, ascending and disjoint. The last one, the tail, grows with every commit.

    Bounded: above ``limit`` segments everything except the newer half of the tail is dropped, and above
    _MAX_STRETCHES the lowest stretches. They can be listed again. Below `through` the root has all objects.
    """

    def __init__(
        self,
        end: int,
        last: KnownSegment | None = None,
        *,
        limit: int = 100_000,
        rewritten: RewrittenLog | None = None,
    ) -> None:
        self._rewritten = rewritten
        # The base offset of the last segment known to be committed; -1 if there is none.
        self.last_base = last.base_offset if last else -1
        self._limit = limit
        self._excluded: set[int] = set()
        tail = _Run(last.base_offset if last else end, end)
        if last is not None:
            tail.add(last)
        self._runs = [tail]

    def __len__(self) -> int:
        return sum(len(run.bases) for run in self._runs)

    @property
    def through(self) -> int:
        """The offset below which the log is in rewritten objects. From there on it is in segments."""
        return self._rewritten.through if self._rewritten is not None else 0

    @property
    def rewritten(self) -> RewrittenLog | None:
        """The part of the log that was rewritten."""
        return self._rewritten

    def rewrite(self, rewritten: RewrittenLog | None) -> None:
        """Replace the part of the log that was rewritten, which now includes what were segments below its end."""
        self._rewritten = rewritten
        end = self._runs[-1].covered_to
        self._runs = [run.part_from(self.through) for run in self._runs if run.covered_to > self.through]
        if not self._runs:
            self._runs = [_Run(end, end)]

    def committed(self, segment: KnownSegment, next_offset: int) -> None:
        """Append the segment of the last commit, which ends before ``next_offset``."""
        tail = self._runs[-1]
        tail.add(segment)
        tail.covered_to = next_offset
        self.last_base = segment.base_offset
        if len(tail.bases) > self._limit:
            self._forget_old()

    def moved_on(self, last: KnownSegment, end: int) -> None:
        """Add the segment that another owner committed last, which ends before ``end``."""
        self.listed(last.base_offset, [last], end)
        self.last_base = last.base_offset

    def listed(self, start: int, segments: list[KnownSegment], covered_to: int) -> None:
        """Add the result of a listing: all segments from base ``start`` up to, not including, ``covered_to``."""
        # The log may have been rewritten during the listing.
        start, segments = max(start, self.through), [one for one in segments if one.base_offset >= self.through]
        if covered_to <= start:
            return
        if len(self) + len(segments) > self._limit:
            self._forget_old()
        touching = [run for run in self._runs if run.covered_from <= covered_to and start <= run.covered_to]
        found = {segment.base_offset: segment for segment in segments}
        # Entries from commits take precedence, because they have timestamps.
        found |= {run.bases[i]: run.at(i) for run in touching for i in range(len(run.bases))}
        merged = _Run(
            min([start, *(run.covered_from for run in touching)]),
            max([covered_to, *(run.covered_to for run in touching)]),
        )
        for _, segment in sorted(found.items()):
            merged.add(segment)
        self._put_for(touching, merged)

    def catalogued(self, segments: list[KnownSegment], covered_to: int) -> None:
        """Add the consecutive segments of a catalog page, which end before ``covered_to``, if they fit the limit.

        Other segments listed in this range do not belong to the log and are dropped.
        """
        segments = [one for one in segments if one.base_offset >= self.through]
        if not segments:
            return
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
        """Return the segment with the highest base at or below ``offset``, or None if that stretch is unknown.

        Below `through`, this is the object of the root's entry with ``offset``, or the next object of the log.
        """
        if self._rewritten is not None and offset < self.through:
            found = self._rewritten.holding(offset)
            if found is not None or self._rewritten.fault or offset < self._rewritten.start:
                return found
            offset = self.through
        for run in reversed(self._runs):
            if run.covered_from <= offset < run.covered_to:
                i = run.find(offset)
                return run.at(i) if i >= 0 else None
        return None

    def stretch(self, offset: int, end: int) -> tuple[list[KnownSegment], int]:
        """Return the known segments from the one that holds ``offset`` up to base ``end``, and the end of the stretch.

        Returns no segments, and ``offset``, if the one that holds it is unknown. Below `through`, there may be none.
        """
        if self._rewritten is not None and offset < self.through:
            return self._rewritten.stretch(offset, end)
        for run in reversed(self._runs):
            first = run.find(offset)
            if run.covered_from <= offset < run.covered_to and first >= 0:
                last = bisect_left(run.bases, end, first)
                columns = (run.bases[first:last], run.sizes[first:last], run.times[first:last])
                covered = run.bases[last] if last < len(run.bases) else run.covered_to
                return list(map(KnownSegment, *columns)), covered
        return [], offset

    def before(self, offset: int) -> tuple[KnownSegment | None, int]:
        """Return the last segment and the end of the last stretch that ends at or below ``offset``, or None and
        `through`."""
        run = next((run for run in reversed(self._runs) if run.covered_to <= offset), None)
        return (run.at(len(run.bases) - 1), run.covered_to) if run and run.bases else (None, self.through)

    def gap(self, offset: int) -> Gap | None:
        """Return the gap around ``offset``, or None if it is in a stretch or not between two of them."""
        i = bisect_right(self._runs, offset, key=lambda run: run.covered_from)
        if not 0 < i < len(self._runs):
            return None
        before, behind = self._runs[i - 1], self._runs[i]
        if offset < before.covered_to or not before.bases or not behind.bases:
            return None
        start, end = before.covered_to, behind.covered_from
        return Gap(start, end, round((end - start) * max(before.density(len(before.bases) - 1), behind.density(0))))

    def after(self, segment: KnownSegment) -> KnownSegment | None:
        """Return the segment that follows ``segment``, or None if it is unknown.

        If ``segment`` was replaced by a rewritten object, return that, because it may have offsets that follow.
        """
        base_offset = segment.base_offset
        if self._rewritten is not None and base_offset < self.through:
            found = self._rewritten.after(segment)
            return found if found is not None or self._rewritten.fault else self.holding(self.through)
        for run in reversed(self._runs):
            if run.covered_from <= base_offset < run.covered_to:
                i = run.find(base_offset) + 1
                return run.at(i) if i < len(run.bases) else None
        return None

    def forget(self, base_offset: int) -> None:
        """Permanently exclude a segment whose object does not belong to the log. Its stretch stays known."""
        self._excluded.add(base_offset)
        for run in self._runs:
            i = run.find(base_offset)
            if i >= 0 and run.bases[i] == base_offset:
                for column in (run.bases, run.sizes, run.times):
                    column.pop(i)

    def forget_stretch(self, offset: int) -> None:
        """Drop the stretch around ``offset``, so that it is listed again."""
        end = self._runs[-1].covered_to
        self._runs = [run for run in self._runs if not run.covered_from <= offset < run.covered_to]
        if not self._runs or self._runs[-1].covered_to != end:
            self._runs.append(_Run(end, end))

    def belongs(self, base_offset: int) -> bool:
        """Return False if the segment at this base offset is known not to belong to the log."""
        return base_offset >= self.through and base_offset not in self._excluded

    def forget_all(self) -> None:
        """Drop everything except which segment is the last one, and the root."""
        end = self._runs[-1].covered_to
        self._excluded.clear()
        self._runs = [_Run(end, end)]

    def learn_time(self, base_offset: int, max_timestamp: int) -> None:
        """Record the largest timestamp of a segment that was read."""
        for run in self._runs:
            i = run.find(base_offset)
            if i >= 0 and run.bases[i] == base_offset:
                run.times[i] = max_timestamp

    def _put_for(self, touching: list[_Run], merged: _Run) -> None:
        others = [run for run in self._runs if run not in touching]
        self._runs = sorted([*others, merged], key=lambda run: run.covered_from)[-_MAX_STRETCHES:]

    def _forget_old(self) -> None:
        tail = self._runs[-1]
        half = len(tail.bases) // 2
        start = tail.bases[half] if tail.bases else tail.covered_from
        self._runs = [_Run(start, tail.covered_to, tail.bases[half:], tail.sizes[half:], tail.times[half:])]
