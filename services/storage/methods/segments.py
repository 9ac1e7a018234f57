"""Segments: list the segments of a log and verify their objects, for operators."""

import math
from itertools import pairwise
from typing import NamedTuple

import trio

from kafscale.errors import KafscaleError, Unavailable
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.rpc.generated import IndexerClient
from kafscale.v1.common_pb2 import Status
from kafscale.v1.indexer_pb2 import SegmentRef
from kafscale.v1.storage_pb2 import SegmentsReply, SegmentsRequest, StoredSegment
from services.storage.dependencies import Dependencies
from services.storage.log.known_segment import KnownSegment
from services.storage.log.partition import IMPORTED, CommittedLog, Partition
from services.storage.owning.takeover import NotAvailable
from services.storage.reading.finder import Damaged, OfAnotherEpoch
from services.storage.run import Run

_MAX_SEGMENTS = 1000
_MAX_VERIFIED, _MAX_VERIFIED_BYTES = 32, 64 << 20
"""Per reply, because they must be read before the call times out. At least one segment is, however large."""
_INDEX_SECONDS = 20.0


async def segments(run: Run, deps: Dependencies, request: SegmentsRequest) -> SegmentsReply:
    """Return some of the partition's segments, from the requested offset on. Errors are in the reply's status."""
    maximum = _MAX_VERIFIED if request.verify else _MAX_SEGMENTS
    limit = min(request.limit or maximum, maximum)
    try:
        partition = await run.owned.acquire(request.partition)
        log = partition.log
        page = await _page(run, partition, request.start, limit, _MAX_VERIFIED_BYTES if request.verify else math.inf)
        reply = SegmentsReply(segments=_described(run, log, page), next=page.end, high_watermark=log.segments_end)
        if request.verify:
            await _verify(run, log, deps.indexer, page.found, reply, reindex=request.reindex)
        if page.hole is not None:
            reply.segments.insert(0, page.hole)
        return reply
    except NotAvailable as error:
        return SegmentsReply(status=error.status, detail=str(error), owner=error.owner)
    except STORE_FAILURES as error:
        return SegmentsReply(status=Status.UNAVAILABLE, detail=str(error))


class _Page(NamedTuple):
    """Consecutive segments.

    ``hole``: offsets before them that no object holds. ``end``: one past the last offset of the last segment.
    """

    hole: StoredSegment | None
    found: list[KnownSegment]
    end: int


async def _page(run: Run, partition: Partition, start: int, limit: int, max_bytes: float) -> _Page:
    """Return at most ``limit`` segments, counting a hole as one, of at most ``max_bytes`` unless it is a single one.

    Raises NotAvailable, Unavailable, Refused.
    """
    log = partition.log
    offset = max(start, log.log_start)
    if offset >= log.segments_end:
        return _Page(None, [], log.segments_end)
    hole: StoredSegment | None = None
    found: list[KnownSegment] = []
    segment: KnownSegment | None
    try:
        segment = await run.reader.holding(log, offset)
    except Damaged as error:
        if not run.membership.proven:
            # A later owner may have deleted the missing object.
            raise NotAvailable(Status.NOT_OWNER, str(error), run.owned.elsewhere(partition.key)) from error
        if offset < log.log_start:
            # The segment was deleted meanwhile.
            return await _page(run, partition, start, limit, max_bytes)
        run.retention.look_at(partition)
        segment = await _listed(run, log, offset)
        if segment is None or segment.base_offset > offset:
            hole = _hole(log, offset, log.segments_end if segment is None else segment.base_offset)
            limit -= 1
    size = 0
    while segment is not None and len(found) < limit:
        size += segment.size
        if found and size > max_bytes:
            break
        found.append(segment)
        segment = await run.reader.finder.after(log, segment)
    return _Page(hole, found, log.segments_end if segment is None else segment.base_offset)


async def _listed(run: Run, log: CommittedLog, offset: int) -> KnownSegment | None:
    """Return the segment whose base offset precedes ``offset``, without checking its object, or else the oldest."""
    try:
        return await run.reader.finder.holding(log, offset)
    except Damaged:
        return await run.reader.finder.oldest(log)


def _hole(log: CommittedLog, start: int, end: int) -> StoredSegment:
    fault = f"{log.topic}-{log.partition}: no segment holds the offsets from {start} to {end - 1}"
    return StoredSegment(base_offset=start, end_offset=end, epoch=log.epoch_of(start), faults=[fault])


def _described(run: Run, log: CommittedLog, page: _Page) -> list[StoredSegment]:
    ends = [*(following.base_offset for _, following in pairwise(page.found)), page.end]
    ends = [
        segment_end if segment.rewritten is None else segment.rewritten.next_offset
        for segment, segment_end in zip(page.found, ends, strict=False)
    ]
    return [
        StoredSegment(
            base_offset=segment.base_offset,
            end_offset=segment_end,
            bytes=segment.size,
            epoch=log.epoch_of(segment.base_offset),
            object=run.reader.key(log, segment),
        )
        for segment, segment_end in zip(page.found, ends, strict=False)
    ]


async def _verify(
    run: Run,
    log: CommittedLog,
    indexer: IndexerClient,
    found: list[KnownSegment],
    reply: SegmentsReply,
    *,
    reindex: bool,
) -> None:
    """Add the faults to the segments of ``reply``, after rebuilding wrong indexes if ``reindex``.

    Segments that were deleted meanwhile or do not belong to the log are removed. Raises Unavailable, Refused.
    """
    kept: dict[int, StoredSegment] = {}
    failures: list[KafscaleError] = []

    async def verify(number: int, segment: KnownSegment) -> None:
        described = reply.segments[number]
        try:
            async with run.verify_turns:
                described.faults.extend(await _faults(run, log, indexer, segment, described if reindex else None))
            kept[number] = described
        except OfAnotherEpoch:
            return
        except STORE_FAILURES as error:
            failures.append(error)
            # The reply is an error, so the other results are not needed.
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for number, segment in enumerate(found):
            nursery.start_soon(verify, number, segment)
    if failures:
        raise failures[0]
    whole = [kept[number] for number in sorted(kept) if kept[number].end_offset > log.log_start]
    reply.ClearField("segments")
    reply.segments.extend(whole)


async def _faults(
    run: Run, log: CommittedLog, indexer: IndexerClient, segment: KnownSegment, rebuilt: StoredSegment | None
) -> list[str]:
    """Return the faults of one segment and its index. ``rebuilt``: rebuild a wrong index and record it there.

    Raises OfAnotherEpoch for a leftover object of a dead owner; Unavailable, Refused.
    """
    try:
        end, epoch = await _end_and_epoch(run, log, segment)
        # The root says where rewritten objects end.
        faults = [] if segment.rewritten is not None else await _behind(run, log, end, epoch)
    except OfAnotherEpoch:
        raise
    except Damaged as error:
        return [str(error)]
    ref = SegmentRef(
        topic=log.topic, partition=log.partition, base_offset=segment.base_offset, rewritten=segment.rewritten
    )
    if rebuilt is None:
        index = await indexer.verify(ref, timeout=_INDEX_SECONDS)
        return faults if index.intact else [*faults, index.detail]
    reply = await indexer.rebuild(ref, timeout=_INDEX_SECONDS)
    if reply.status == Status.UNAVAILABLE:
        raise Unavailable(reply.detail)
    rebuilt.reindexed = reply.rebuilt
    return faults if reply.status == Status.OK else [*faults, reply.detail]


async def _end_and_epoch(run: Run, log: CommittedLog, segment: KnownSegment) -> tuple[int, int]:
    """Read a whole segment and return its end offset and epoch. Raises Damaged, Unavailable, Refused."""
    parsed = await run.reader.parsed(log, segment)
    return parsed.next_offset, parsed.header.epoch


async def _behind(run: Run, log: CommittedLog, end: int, epoch: int) -> list[str]:
    """Return a fault unless another segment begins at ``end``. Raises Damaged, Unavailable, Refused."""
    # Imported segments may have lost records to compaction in the system that wrote them.
    if end == log.segments_end or end <= log.log_start or epoch == IMPORTED:
        return []
    if end < log.segments_end and (await run.reader.holding(log, end)).base_offset == end:
        return []
    return [f"{log.topic}-{log.partition}: the segment at offset {end} is missing from the object store"]
