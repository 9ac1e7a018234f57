"""Finds the segments of a committed log: from what is known, else by listing, a few keys at a time."""

from kafscale import paths
from kafscale.errors import KafscaleError
from kafscale.objects.interface import ObjectStore
from services.storage.partition import CommittedLog
from services.storage.segments import UNKNOWN_TIME, KnownSegment

_PAGE = 1000
_FIRST_STEP = 4096  # offsets


class Damaged(KafscaleError):
    """Committed bytes are missing or wrong; reported, never skipped."""


class SegmentFinder:
    """S3 lists forwards only: step back from the offset, twice as far each time, until a key at or below it appears."""

    def __init__(self, objects: ObjectStore, namespace: str) -> None:
        self._objects = objects
        self._namespace = namespace

    async def holding(self, log: CommittedLog, offset: int) -> KnownSegment:
        """The segment with the highest base at or below ``offset``, which lies in the log. Raises Damaged."""
        known = log.segments.holding(offset)
        if known is not None:
            return known
        step = _FIRST_STEP
        while True:
            start = max(0, offset - step)
            first = await self._list(log, start, 2)
            if first and first[0].base_offset <= offset:
                break
            if start == 0:
                raise Damaged(f"{log.topic}-{log.partition}: no segment holds offset {offset}")
            step *= 8
        while (known := log.segments.holding(offset)) is None:
            if start > offset:
                raise Damaged(f"{log.topic}-{log.partition}: no segment holds offset {offset}")
            start = await self._learn(log, start)
        return known

    async def after(self, log: CommittedLog, segment: KnownSegment) -> KnownSegment | None:
        """The segment that follows in the log; None: it was the last one. Raises Damaged."""
        known = log.segments.after(segment.base_offset)
        start = segment.base_offset + 1
        while known is None and start < log.committed_end:
            start = await self._learn(log, start)
            known = log.segments.after(segment.base_offset)
        return known

    async def _learn(self, log: CommittedLog, start: int) -> int:
        """List a page from base ``start``, keep it, and give where the next page starts."""
        found = [s for s in await self._list(log, start, _PAGE) if s.base_offset < log.committed_end]
        covered = found[-1].base_offset + 1 if len(found) >= _PAGE // 2 else log.committed_end
        log.segments.listed(start, found, covered)
        return covered

    async def _list(self, log: CommittedLog, start: int, limit: int) -> list[KnownSegment]:
        prefix = paths.partition_prefix(self._namespace, log.topic, log.partition)
        after = paths.segment_key(self._namespace, log.topic, log.partition, start - 1) if start else ""
        segments = []
        for info in await self._objects.list_from(prefix, after, limit):
            key = paths.parse_segment_key(info.key)
            if key is not None and key.kind == "kfs":
                segments.append(KnownSegment(key.base_offset, info.size, UNKNOWN_TIME))
        return segments
