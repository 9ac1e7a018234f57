"""ListOffsets: the log's ends, and records by time."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

import structlog

from kafscale.errors import Unavailable
from kafscale.rpc.interface import IndexerClient
from kafscale.segment.search import first_at_or_after, largest_timestamp
from kafscale.v1.common_pb2 import Status
from kafscale.v1.indexer_pb2 import LocateTimestampRequest
from kafscale.v1.storage_pb2 import PartitionOffset
from services.storage.finder import Damaged, OfAnotherEpoch
from services.storage.partition import CommittedLog
from services.storage.reader import Reader
from services.storage.segments import UNKNOWN_TIME, KnownSegment

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
_TIMEOUT = 60.0
_CHUNK = 64
_DECODED_BYTES = 64 << 20
"""What one batch may decompress to when no indexer decodes it; for larger ones the header counts."""

log = structlog.get_logger()


async def list_offset(view: CommittedLog, timestamp: int, *, reader: Reader, indexer: IndexerClient) -> PartitionOffset:
    """Kafka's answer for one partition. Raises Damaged, Unavailable."""
    if timestamp == LATEST:
        return _found(view, view.committed_end, -1)
    if timestamp == EARLIEST:
        return _found(view, view.log_start, -1)
    if timestamp < 0 and timestamp != MAX_TIMESTAMP:
        return PartitionOffset(status=Status.INVALID, detail=f"timestamp {timestamp} has no meaning", offset=-1)
    best: tuple[int, int] | None = None
    candidates: list[KnownSegment] = []
    async with aclosing(_segments(view, reader)) as segments:
        async for segment in segments:
            if segment.max_timestamp == UNKNOWN_TIME or segment.max_timestamp >= timestamp:
                candidates.append(segment)
            if len(candidates) == _CHUNK:
                best = _better(best, await _locate(view, candidates, timestamp, reader, indexer))
                candidates = []
                if best and timestamp != MAX_TIMESTAMP:
                    break
    if candidates:
        best = _better(best, await _locate(view, candidates, timestamp, reader, indexer))
    return _found(view, *best) if best else _found(view, -1, -1)


async def _segments(view: CommittedLog, reader: Reader) -> AsyncGenerator[KnownSegment, None]:
    if view.log_start == view.committed_end:
        return
    segment: KnownSegment | None = await reader.holding(view, view.log_start)
    while segment is not None:
        yield segment
        segment = await reader.finder.after(view, segment)


async def _locate(
    view: CommittedLog, segments: list[KnownSegment], timestamp: int, reader: Reader, indexer: IndexerClient
) -> tuple[int, int] | None:
    request = LocateTimestampRequest(
        topic=view.topic,
        partition=view.partition,
        base_offsets=[segment.base_offset for segment in segments],
        epochs=[view.epoch_of(segment.base_offset) for segment in segments],
        timestamp=timestamp,
        start_offset=view.log_start,
    )
    try:
        reply = await indexer.locate_timestamp(request, timeout=_TIMEOUT)
    except Unavailable as error:
        log.warning("no indexer answered, segments searched here", topic=view.topic, error=str(error))
        return await _search(view, segments, timestamp, reader)
    if reply.status == Status.DAMAGED:
        raise Damaged(reply.detail)
    if reply.status != Status.OK:
        raise Unavailable(reply.detail)
    return (reply.offset, reply.timestamp) if reply.found else None


async def _search(
    view: CommittedLog, segments: list[KnownSegment], timestamp: int, reader: Reader
) -> tuple[int, int] | None:
    """What an indexer would answer, one segment at a time."""
    best: tuple[int, int] | None = None
    for segment in segments:
        try:
            parsed = await reader.parsed(view, segment)
        except OfAnotherEpoch:
            continue
        if timestamp == MAX_TIMESTAMP:
            search = partial(largest_timestamp, at_least=best[1] if best else 0)
        else:
            search = partial(first_at_or_after, timestamp=timestamp)
        found = await reader.run_sync(partial(search, parsed, start_offset=view.log_start, max_bytes=_DECODED_BYTES))
        if found is not None:
            best = _better(best, (found.offset, found.timestamp))
            if timestamp != MAX_TIMESTAMP:
                break
    return best


def _better(best: tuple[int, int] | None, found: tuple[int, int] | None) -> tuple[int, int] | None:
    if best is None or (found is not None and found[1] > best[1]):
        return found
    return best


def _found(view: CommittedLog, offset: int, timestamp: int) -> PartitionOffset:
    leader_epoch = view.epochs[-1][0] if offset < 0 or offset >= view.committed_end else view.epoch_of(offset)
    return PartitionOffset(offset=offset, timestamp=timestamp, leader_epoch=leader_epoch)
