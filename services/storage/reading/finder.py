"""Finds the segments of a committed log: from what is known, else by listing, a few keys at a time."""

from typing import NamedTuple

from kafscale import paths
from kafscale.errors import KafscaleError
from kafscale.objects.interface import ObjectStore
from services.storage.log.partition import CommittedLog, Measured
from services.storage.log.segments import UNKNOWN_TIME, KnownSegment

_PAGE = 1000
_FIRST_KEYS = 4
_MAX_MEASURED = 50  # listings or known stretches at once, so about 25,000 segments that are not known
_FIRST_STEP = 4096  # offsets


class Damaged(KafscaleError):
    """Committed bytes are missing or wrong; reported, never skipped."""


class OfAnotherEpoch(Damaged):
    """The object is none of the log's: a dead owner's, whose name the log did not use."""


class OffsetsMissing(Damaged):
    """In an imported segment, or behind it, as far as a part of it tells: only its footer can prove that."""


class Extent(NamedTuple):
    """How much stored segments take together."""

    bytes: int
    segments: int


class SegmentFinder:
    """S3 lists forwards only: step back from the offset, eight times as far each time, until a key at or below it
    appears; never behind what is known."""

    def __init__(self, objects: ObjectStore, namespace: str) -> None:
        self._objects = objects
        self._namespace = namespace

    async def holding(self, log: CommittedLog, offset: int) -> KnownSegment:
        """The segment with the highest base at or below ``offset``, which lies in the log. Raises Damaged."""
        known = log.segments.holding(offset)
        if known is not None:
            return known
        below, least = log.segments.before(offset)
        step = _FIRST_STEP
        while (start := max(least, offset - step)) > least:
            first = await self._first(log, start, offset)
            if first is not None:
                below = first
                break
            step *= 8
        while (known := log.segments.holding(offset)) is None and start <= offset:
            found, start = await self._learn(log, start)
            below = next((segment for segment in reversed(found) if segment.base_offset <= offset), below)
        # Of a long log not all that was listed is remembered.
        holding = known or below
        if holding is None:
            raise Damaged(f"{log.topic}-{log.partition}: no segment holds offset {offset}")
        return holding

    async def after(self, log: CommittedLog, segment: KnownSegment) -> KnownSegment | None:
        """The segment that follows in the log; None: it was the last one. Raises Damaged."""
        known = log.segments.after(segment.base_offset)
        start = segment.base_offset + 1
        while known is None and start < log.high_watermark:
            found, start = await self._learn(log, start)
            # Of a long log ``segment`` itself may be forgotten by now.
            known = log.segments.after(segment.base_offset) or next(iter(found), None)
        return known

    async def extent_from(self, log: CommittedLog, segment: KnownSegment | None) -> Extent:
        """How much ``segment`` and all after it take. Raises Damaged."""
        size = segments = 0
        while segment is not None:
            size, segments = size + segment.size, segments + 1
            segment = await self.after(log, segment)
        return Extent(size, segments)

    async def measure(self, log: CommittedLog, before: Measured) -> Measured:
        """Go on with what was measured ``before``, by a bounded number of listings. Raises Damaged.

        Of a log with more segments the next call measures more. Where the log start has moved it begins again.
        """
        start, reached, size = before
        if start != log.log_start:
            start, reached, size = log.log_start, log.log_start, 0
            if start < log.high_watermark:
                reached = (await self.holding(log, start)).base_offset
        for _ in range(_MAX_MEASURED):
            if reached >= log.high_watermark:
                break
            found, covered = log.segments.stretch(reached, log.high_watermark)
            if covered == reached:
                # Not remembered: a long log would drive out what readers need.
                found, covered = await self._list(log, reached, _PAGE)
            size += sum(segment.size for segment in found if reached <= segment.base_offset < covered)
            reached = covered
        return Measured(start, reached, size)

    async def oldest(self, log: CommittedLog) -> KnownSegment | None:
        """The first segment of a log that is not empty as a listing shows it now; None: there is none."""
        return await self._first(log, 0, log.high_watermark - 1)

    async def _first(self, log: CommittedLog, start: int, offset: int) -> KnownSegment | None:
        """The first segment with a base from ``start`` on; None where there is none up to ``offset``."""
        limit = _FIRST_KEYS
        while start <= offset:
            found, start = await self._list(log, start, limit)
            if found:
                return found[0] if found[0].base_offset <= offset else None
            limit = _PAGE
        return None

    async def _learn(self, log: CommittedLog, start: int) -> tuple[list[KnownSegment], int]:
        """List a page from base ``start``, keep it, and give it and where the next page starts. Raises Damaged.

        What lacks the log's last segment is no listing of it: an endpoint may lead to an empty replica for a while.
        """
        last = log.segments.last_base
        listed, covered = await self._list(log, start, _PAGE)
        found = [segment for segment in listed if segment.base_offset < covered]
        if max(start, log.log_start) <= last < covered and all(segment.base_offset != last for segment in found):
            raise Damaged(f"{log.name}: a listing lacks the last segment, {last}")
        log.segments.listed(start, found, covered)
        return found, covered

    async def _list(self, log: CommittedLog, start: int, limit: int) -> tuple[list[KnownSegment], int]:
        """The segments among the next ``limit`` keys, and the base, of committed ones, up to which there is no other.

        There need not be a segment for each index: the put of one may have landed alone when its writer died.
        """
        prefix = paths.partition_prefix(self._namespace, log.topic, log.partition)
        after = paths.segment_key(self._namespace, log.topic, log.partition, start - 1) if start else ""
        # Segments committed while the listing is under way may be missing from it.
        end = log.high_watermark
        segments, covered = list[KnownSegment](), start
        while covered == start:
            listed = await self._objects.list_from(prefix, after, limit)
            for info in listed:
                key = paths.parse_segment_key_in(prefix, info.key)
                if key is None:
                    continue
                # `.index` sorts before `.kfs`: after an index, the segment of the same base may still follow.
                covered = key.base_offset
                if key.kind == "kfs":
                    if log.segments.belongs(key.base_offset):
                        segments.append(KnownSegment(key.base_offset, info.size, UNKNOWN_TIME))
                    covered += 1
            if len(listed) < limit:
                return segments, end
            # A page of keys that are no segments' tells nothing: the next one begins behind it.
            after, limit = listed[-1].key, _PAGE
        return segments, min(covered, end)
