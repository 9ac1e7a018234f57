"""Looks for records by time in stored segments: a few at a time, as few as needed."""

from collections.abc import Callable, Iterator, Sequence

import trio

from kafscale.errors import KafscaleError
from kafscale.segment.reader import ParsedSegment
from kafscale.segment.search import FoundRecord, better, first_at_or_after, largest_timestamp
from kafscale.v1.indexer_pb2 import LocateTimestampRequest, SegmentRef
from services.indexer.stored import StoredSegments

MAX_TIMESTAMP = -3
"""Kafka's ListOffsets timestamp that asks for the record with the largest one."""

_Candidate = tuple[SegmentRef, int]  # and the epoch that it must have
_Found = tuple[SegmentRef, FoundRecord]
_Search = Callable[[ParsedSegment], FoundRecord | None]
NOT_READ = -2


class TimeSearch:
    """At most ``reads`` segments are asked for at the same time for one request."""

    def __init__(self, stored: StoredSegments, *, reads: int, decode_bytes: int) -> None:
        self._stored = stored
        self._reads = reads
        self._decode_bytes = decode_bytes

    async def locate(self, request: LocateTimestampRequest) -> tuple[_Found | None, list[int]]:
        """The record that ``request`` asks for, and the largest timestamp of each of its segments, or NOT_READ.

        Objects of another epoch than asked for are not the log: passed over.

        Raises ValueError where the request contradicts itself; CorruptData, ObjectNotFound, Unavailable, Refused.
        """
        if len(request.epochs) != len(request.base_offsets):
            raise ValueError(f"{len(request.base_offsets)} segments but {len(request.epochs)} epochs")
        if request.timestamp < 0 and request.timestamp != MAX_TIMESTAMP:
            raise ValueError(f"timestamp {request.timestamp} has no meaning")
        candidates = [
            (SegmentRef(topic=request.topic, partition=request.partition, base_offset=base), epoch)
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
        """From the newest segment on: where times rise, no batch of the older ones is decoded."""
        best: _Found | None = None
        for window in self._windows(candidates[::-1]):
            # No timestamp (-1) is none to find.
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
        """The first one alone, since most look-ups end there."""
        yield candidates[:1]
        for start in range(1, len(candidates), self._reads):
            yield candidates[start : start + self._reads]

    async def _study(
        self, window: Sequence[_Candidate], search: _Search, newest: dict[int, int]
    ) -> list[FoundRecord | KafscaleError | None]:
        """What ``search`` finds in each, or why it could not be searched; ``newest`` takes their largest timestamps."""
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
