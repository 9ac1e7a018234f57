"""Finds records by timestamp in stored segments. Segments are read a few at a time, and no more than necessary."""

from collections.abc import Callable, Iterator, Sequence

import trio

from kafscale.errors import KafscaleError
from kafscale.segment.reader import ParsedSegment
from kafscale.segment.search import FoundRecord, better, first_at_or_after, largest_timestamp
from kafscale.v1.indexer_pb2 import LocateTimestampRequest, SegmentRef
from services.indexer.stored import StoredSegments

MAX_TIMESTAMP = -3
"""The timestamp in Kafka's ListOffsets that requests the record with the largest timestamp."""

_Candidate = tuple[SegmentRef, int]  # a segment and the epoch that it must have
_Found = tuple[SegmentRef, FoundRecord]
_Search = Callable[[ParsedSegment], FoundRecord | None]
NOT_READ = -2


class TimeSearch:
    """Searches segments by timestamp. Each request reads at most ``reads`` segments at the same time."""

    def __init__(self, stored: StoredSegments, *, reads: int, decode_bytes: int) -> None:
        self._stored = stored
        self._reads = reads
        self._decode_bytes = decode_bytes

    async def locate(self, request: LocateTimestampRequest) -> tuple[_Found | None, list[int]]:
        """Return the requested record, and the largest timestamp of each segment of ``request``, or NOT_READ.

        Objects with a different epoch than requested do not belong to the log and are ignored.

        Raises ValueError if the request is inconsistent; CorruptData, ObjectNotFound, Unavailable, Refused.
        """
        if len(request.epochs) != len(request.base_offsets):
            raise ValueError(f"{len(request.base_offsets)} segments but {len(request.epochs)} epochs")
        if request.timestamp < 0 and request.timestamp != MAX_TIMESTAMP:
            raise ValueError(f"invalid timestamp {request.timestamp}")
        rewritten = {entry.base_offset: entry for entry in request.rewritten}
        if not rewritten.keys() <= set(request.base_offsets):
            raise ValueError("a rewritten object has none of the base offsets")
        candidates = [
            (
                SegmentRef(
                    topic=request.topic, partition=request.partition, base_offset=base, rewritten=rewritten.get(base)
                ),
                epoch,
            )
            for base, epoch in zip(request.base_offsets, request.epochs, strict=True)
        ]
        newest: dict[int, int] = {}
        if request.timestamp == MAX_TIMESTAMP:
            found = await self._largest(candidates, request.start_offset, newest)
        else:
            found = await self._first(candidates, request.timestamp, request.start_offset, newest)
        return found, [newest.get(base, NOT_READ) for base in request.base_offsets]

    async def _first(
        self, candidates: Sequence[_Candidate], timestamp: int, start_offset: int, newest: dict[int, int]
    ) -> _Found | None:
        def search(segment: ParsedSegment) -> FoundRecord | None:
            return first_at_or_after(segment, timestamp, start_offset=start_offset, max_bytes=self._decode_bytes)

        for window in self._windows(candidates):
            results = await self._study(window, search, newest)
            for (ref, _), found in zip(window, results, strict=True):
                if isinstance(found, KafscaleError):
                    raise found
                if found is not None:
                    return ref, found
        return None

    async def _largest(
        self, candidates: Sequence[_Candidate], start_offset: int, newest: dict[int, int]
    ) -> _Found | None:
        """Search from the newest segment on. If timestamps ascend, no batch of older segments is decoded."""
        best: _Found | None = None
        for window in self._windows(candidates[::-1]):
            # Records without a timestamp (-1) are not searched.
            at_least = best[1].timestamp if best else 0

            def search(segment: ParsedSegment, at_least: int = at_least) -> FoundRecord | None:
                return largest_timestamp(
                    segment, at_least=at_least, start_offset=start_offset, max_bytes=self._decode_bytes
                )

            for (ref, _), found in zip(window, await self._study(window, search, newest), strict=True):
                if isinstance(found, KafscaleError):
                    raise found
                if found is not None and (best is None or better(best[1], found) is found):
                    best = ref, found
        return best

    def _windows(self, candidates: Sequence[_Candidate]) -> Iterator[Sequence[_Candidate]]:
        """Yield the first candidate alone, because most lookups end there, then ``reads`` candidates at a time."""
        yield candidates[:1]
        for start in range(1, len(candidates), self._reads):
            yield candidates[start : start + self._reads]

    async def _study(
        self, window: Sequence[_Candidate], search: _Search, newest: dict[int, int]
    ) -> list[FoundRecord | KafscaleError | None]:
        """Return the result of ``search`` or the error for each segment. Add their largest timestamps to ``newest``."""
        results: list[FoundRecord | KafscaleError | None] = [None] * len(window)

        async def one(number: int, ref: SegmentRef, epoch: int) -> None:
            def look(segment: ParsedSegment) -> tuple[FoundRecord | None, int]:
                if segment.header.epoch != epoch:
                    return None, NOT_READ
                return search(segment), segment.max_timestamp_ms

            try:
                results[number], newest[ref.base_offset] = await self._stored.study(ref, look)
            except KafscaleError as error:
                results[number] = error

        async with trio.open_nursery() as nursery:
            for number, (ref, epoch) in enumerate(window):
                nursery.start_soon(one, number, ref, epoch)
        return results
