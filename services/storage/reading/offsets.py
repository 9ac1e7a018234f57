"""Look up offsets by timestamp, and the log start and high watermark, for ListOffsets."""

from contextlib import aclosing
from functools import partial

import structlog

from kafscale.errors import Unavailable
from kafscale.rpc.generated import IndexerClient
from kafscale.segment.reader import ParsedSegment, parse_segment
from kafscale.segment.search import first_at_or_after, largest_timestamp
from kafscale.segment.writer import build_segment
from kafscale.v1.common_pb2 import Status
from kafscale.v1.indexer_pb2 import LocateTimestampRequest
from kafscale.v1.storage_pb2 import PartitionOffset
from services.storage.log.known_segment import UNKNOWN_TIME, KnownSegment
from services.storage.log.partition import CommittedLog
from services.storage.reading.catalogs import Catalogs
from services.storage.reading.finder import Damaged, OfAnotherEpoch
from services.storage.reading.reader import Reader

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
_TIMEOUT = 60.0
_CHUNK = 64
_DECODED_BYTES = 64 << 20
"""The limit on a batch's decompressed size if no indexer decodes it. For larger ones the header is used."""

_Found = tuple[int, int]  # offset and timestamp

log = structlog.get_logger()


async def list_offset(
    view: CommittedLog, timestamp: int, *, reader: Reader, catalogs: Catalogs, indexer: IndexerClient
) -> PartitionOffset:
    """Return Kafka's ListOffsets result for one partition. Raises Damaged, Unavailable."""
    if timestamp == LATEST:
        return _answer(view, view.high_watermark, -1)
    if timestamp == EARLIEST:
        return _answer(view, view.log_start, -1)
    if timestamp < 0 and timestamp != MAX_TIMESTAMP:
        return PartitionOffset(status=Status.INVALID, detail=f"timestamp {timestamp} is not supported", offset=-1)
    look_up = _LookUp(view, timestamp, reader=reader, catalogs=catalogs, indexer=indexer)
    found = await (look_up.largest() if timestamp == MAX_TIMESTAMP else look_up.first())
    return _answer(view, *found) if found else _answer(view, -1, -1)


class _LookUp:
    """One lookup by timestamp.

    Timestamps are not monotone, so every segment is searched unless its largest one is known to be too small.
    """

    def __init__(
        self, view: CommittedLog, timestamp: int, *, reader: Reader, catalogs: Catalogs, indexer: IndexerClient
    ) -> None:
        self._view = view
        # Taken first, so that what becomes a segment during the search is found in either place.
        self._tail = view.tail.durable() if view.tail is not None else []
        self._timestamp = timestamp
        self._reader = reader
        self._catalogs = catalogs
        self._indexer = indexer

    async def first(self) -> _Found | None:
        """Find the first record at or after the timestamp."""
        return await self._first_in_segments() or await self._in_tail(None)

    async def _first_in_segments(self) -> _Found | None:
        candidates: list[KnownSegment] = []
        async with aclosing(self._catalogs.segments(self._view, at_least=self._timestamp)) as segments:
            async for segment in segments:
                if segment.max_timestamp == UNKNOWN_TIME or segment.max_timestamp >= self._timestamp:
                    candidates.append(segment)
                if len(candidates) == _CHUNK:
                    found = await self._locate(candidates)
                    if found:
                        return found
                    candidates = []
        return await self._locate(candidates)

    async def largest(self) -> _Found | None:
        """Find the first record with the largest timestamp in the log."""
        best, claimed = await self._largest_of(UNKNOWN_TIME, UNKNOWN_TIME, None)
        if claimed >= 0 and (best is None or best[1] <= claimed):
            best, _ = await self._largest_of(claimed, claimed, best)
        if claimed >= 0 and (best is None or best[1] < claimed):
            # Batch headers claim a larger timestamp than any record has.
            best, _ = await self._largest_of(best[1] if best else 0, claimed - 1, best)
        return _better(best, await self._in_tail(best))

    async def _largest_of(self, minimum: int, maximum: int, best: _Found | None) -> tuple[_Found | None, int]:
        """Search the segments whose largest timestamp is unknown or between ``minimum`` and ``maximum``.

        Return the better of ``best`` and what was found, and the largest known timestamp.
        """
        candidates: list[KnownSegment] = []
        claimed = -1
        async with aclosing(self._catalogs.segments(self._view, at_least=minimum)) as segments:
            async for segment in segments:
                claimed = max(claimed, segment.max_timestamp)
                # A failed read elsewhere in the log may have dropped known timestamps.
                if segment.max_timestamp == UNKNOWN_TIME or minimum <= segment.max_timestamp <= maximum:
                    candidates.append(segment)
                if len(candidates) == _CHUNK:
                    best = _better(best, await self._locate(candidates))
                    candidates = []
        return _better(best, await self._locate(candidates)), claimed

    async def _locate(self, segments: list[KnownSegment]) -> _Found | None:
        """Have an indexer search the segments, and remember the timestamps that it returns."""
        if not segments:
            return None
        view = self._view
        request = LocateTimestampRequest(
            topic=view.topic,
            partition=view.partition,
            base_offsets=[segment.base_offset for segment in segments],
            epochs=[
                segment.rewritten.epoch if segment.rewritten is not None else view.epoch_of(segment.base_offset)
                for segment in segments
            ],
            rewritten=[segment.rewritten for segment in segments if segment.rewritten is not None],
            timestamp=self._timestamp,
            start_offset=view.log_start,
        )
        try:
            reply = await self._indexer.locate_timestamp(request, timeout=_TIMEOUT)
        except Unavailable as error:
            log.warning("no indexer answered, searching segments locally", topic=view.topic, error=str(error))
            return await self._search(segments)
        if reply.status == Status.DAMAGED:
            # A listed object of a dead owner may have been deleted since, so the next attempt lists again.
            for segment in segments:
                view.segments.forget_stretch(segment.base_offset)
            raise Damaged(reply.detail)
        if reply.status != Status.OK:
            raise Unavailable(reply.detail)
        # An indexer of the previous release returns no timestamps.
        for segment, newest in zip(segments, reply.newest, strict=False):
            if newest != UNKNOWN_TIME:
                view.segments.learn_time(segment.base_offset, newest)
        return (reply.offset, reply.timestamp) if reply.found else None

    async def _search(self, segments: list[KnownSegment]) -> _Found | None:
        """Search the segments here, one at a time, with the same result as an indexer."""
        view, best = self._view, None
        for segment in segments:
            try:
                parsed = await self._reader.parsed(view, segment)
            except OfAnotherEpoch:
                continue
            view.segments.learn_time(segment.base_offset, parsed.max_timestamp_ms)
            found = await self._reader.run_sync(partial(self._search_one, parsed, best))
            if found is not None:
                best = _better(best, found)
                if self._timestamp != MAX_TIMESTAMP:
                    break
        return best

    async def _in_tail(self, best: _Found | None) -> _Found | None:
        """Search the durable records that are not in segments yet."""
        if not self._tail:
            return None

        def search() -> _Found | None:
            built = build_segment(self._tail, epoch=self._view.epochs[-1][0], created_ms=0)
            return self._search_one(parse_segment(built.data), best)

        return await self._reader.run_sync(search)

    def _search_one(self, segment: ParsedSegment, best: _Found | None) -> _Found | None:
        """Search a segment for the timestamp, or for a larger one than that of ``best``."""
        if self._timestamp == MAX_TIMESTAMP:
            search = partial(largest_timestamp, at_least=best[1] if best else 0)
        else:
            search = partial(first_at_or_after, timestamp=self._timestamp)
        found = search(segment, start_offset=self._view.log_start, max_bytes=_DECODED_BYTES)
        return (found.offset, found.timestamp) if found is not None else None


def _better(best: _Found | None, found: _Found | None) -> _Found | None:
    if best is None or found is None:
        return best or found
    return max(best, found, key=lambda one: (one[1], -one[0]))


def _answer(view: CommittedLog, offset: int, timestamp: int) -> PartitionOffset:
    leader_epoch = view.epochs[-1][0] if offset < 0 or offset >= view.high_watermark else view.epoch_of(offset)
    return PartitionOffset(offset=offset, timestamp=timestamp, leader_epoch=leader_epoch)
