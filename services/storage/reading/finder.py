"""Find the segments of a committed log, from the known ones or by listing keys, and its rewritten objects."""

from typing import NamedTuple

from kafscale import paths
from kafscale.errors import KafscaleError
from kafscale.objects.interface import ObjectStore
from services.storage.log.known_segment import UNKNOWN_TIME, KnownSegment
from services.storage.log.partition import CommittedLog, Measured

_PAGE = 1000
_FIRST_KEYS = 4
_MAX_MEASURED = 50  # listings or known stretches per call, which is about 25,000 unknown segments
_FIRST_STEP = 4096  # offsets


class Damaged(KafscaleError):
    """Committed bytes are missing or wrong; reported, never skipped."""


class OfAnotherEpoch(Damaged):
    """The object does not belong to the log: a leftover of a dead owner whose key the log did not reuse."""


class OffsetsMissing(Damaged):
    """Offsets seem to be missing in or after an imported segment. Only its footer, so a whole read, can prove it."""


class Extent(NamedTuple):
    """The total size of stored segments."""

    bytes: int
    segments: int


class SegmentFinder:
    """Finds segments by listing. S3 only lists forwards, so a search steps back from the offset, eight times as far
    each time, until a key at or below it appears, but not past known segments."""

    def __init__(self, objects: ObjectStore, namespace: str) -> None:
        self._objects = objects
        self._namespace = namespace

    async def holding(self, log: CommittedLog, offset: int) -> KnownSegment:
        """Return the segment with the highest base at or below ``offset``, which must be in the log. Raises Damaged.

        In the part of the log that was rewritten, it is the object with ``offset``, or else the next one.
        """
        known = log.segments.holding(offset)
        if known is not None:
            return known
        self._check_root(log, offset)
        offset = max(offset, log.segments.through)
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
        # The segment map of a long log may not have kept everything that was listed.
        holding = known or below
        if holding is None:
            raise Damaged(f"{log.topic}-{log.partition}: no segment holds offset {offset}")
        return holding

    async def after(self, log: CommittedLog, segment: KnownSegment) -> KnownSegment | None:
        """Return the next segment of the log, or None if ``segment`` is the last one. Raises Damaged.

        If ``segment`` was replaced by a rewritten object since it was found, return that object.
        """
        known = log.segments.after(segment)
        start = segment.base_offset + 1
        if known is None:
            self._check_root(log, start)
            start = max(start, log.segments.through)
        while known is None and start < log.segments_end:
            found, start = await self._learn(log, start)
            # The segment map of a long log may have dropped ``segment`` itself.
            known = log.segments.after(segment) or next(iter(found), None)
        return known

    async def extent_from(self, log: CommittedLog, segment: KnownSegment | None) -> Extent:
        """Return the total size of ``segment`` and all later ones. Raises Damaged."""
        size = segments = 0
        while segment is not None:
            size, segments = size + segment.size, segments + 1
            segment = await self.after(log, segment)
        return Extent(size, segments)

    async def measure(self, log: CommittedLog, before: Measured) -> Measured:
        """Continue the measurement ``before`` with a bounded number of listings. Raises Damaged.

        A log with more segments is measured further by the next call. If the log start has moved, start again.
        """
        start, reached, size = before
        if start != log.log_start:
            start, reached, size = log.log_start, log.log_start, 0
            if start < log.segments_end:
                reached = min((await self.holding(log, start)).base_offset, start)
        for _ in range(_MAX_MEASURED):
            if reached >= log.segments_end:
                break
            found, covered = log.segments.stretch(reached, log.segments_end)
            if covered == reached:
                # Not added to the segment map, where a long log would displace what readers need.
                found, covered = await self._list(log, reached, _PAGE)
            size += sum(segment.size for segment in found if reached <= segment.base_offset < covered)
            reached = covered
        return Measured(start, reached, size)

    async def oldest(self, log: CommittedLog) -> KnownSegment | None:
        """Return the first segment of a non-empty log by a new listing, or None if there is none.

        Rewritten objects are not listed.
        """
        return await self._first(log, log.segments.through, log.segments_end - 1)

    def _check_root(self, log: CommittedLog, offset: int) -> None:
        rewritten = log.segments.rewritten
        if rewritten is not None and rewritten.fault and offset < rewritten.through:
            raise Damaged(f"{log.name}: the log below offset {rewritten.through} cannot be read: {rewritten.fault}")
        if rewritten is not None and offset < rewritten.start:
            # The log start moved during the read.
            raise Damaged(f"{log.name}: the log has no offset {offset} any more, it begins at {rewritten.start}")

    async def _first(self, log: CommittedLog, start: int, offset: int) -> KnownSegment | None:
        """Return the first segment with a base from ``start`` up to ``offset``, or None if there is none."""
        limit = _FIRST_KEYS
        while start <= offset:
            found, start = await self._list(log, start, limit)
            if found:
                return found[0] if found[0].base_offset <= offset else None
            limit = _PAGE
        return None

    async def _learn(self, log: CommittedLog, start: int) -> tuple[list[KnownSegment], int]:
        """List a page from base ``start``, add it to the segment map, and return it and the start of the next page.

        Raises Damaged if it lacks the log's last segment, because an endpoint may lead to an empty replica for a while.
        """
        last = log.segments.last_base
        listed, covered = await self._list(log, start, _PAGE)
        found = [segment for segment in listed if segment.base_offset < covered]
        if max(start, log.log_start) <= last < covered and all(segment.base_offset != last for segment in found):
            raise Damaged(f"{log.name}: a listing lacks the last segment, {last}")
        log.segments.listed(start, found, covered)
        return found, covered

    async def _list(self, log: CommittedLog, start: int, limit: int) -> tuple[list[KnownSegment], int]:
        """Return the segments among the next ``limit`` keys, and the base up to which these are all committed ones.

        An index may exist without its segment, if the writer died between the two puts.
        """
        prefix = paths.partition_prefix(self._namespace, log.topic, log.partition)
        after = paths.segment_key(self._namespace, log.topic, log.partition, start - 1) if start else ""
        # Segments committed while the listing is under way may be missing from it.
        end = log.segments_end
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
            # The page had no segment keys; continue with the next one.
            after, limit = listed[-1].key, _PAGE
        return segments, min(covered, end)
