"""DescribeSegment: read a segment and its index, and describe what is in them, for operators."""

from kafscale.metadata.outage import STORE_FAILURES
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import DescribeSegmentRequest, SegmentDescribed
from services.storage.log.known_segment import KnownSegment
from services.storage.log.partition import CommittedLog
from services.storage.owning.takeover import NotAvailable
from services.storage.reading.contents import contents_of
from services.storage.reading.finder import Damaged
from services.storage.run import Run

_MOST_BATCHES = 1000


async def describe_segment(run: Run, request: DescribeSegmentRequest) -> SegmentDescribed:
    """Return the contents of the segment that holds an offset. Errors are in the reply's status."""
    limit = min(request.limit or _MOST_BATCHES, _MOST_BATCHES)
    if limit < 0 or request.first_batch < 0:
        return SegmentDescribed(status=Status.INVALID, detail="the page begins or ends below 0")
    try:
        partition = await run.owned.acquire(request.partition)
        log = partition.log
        offset = max(request.offset, log.log_start)
        if offset >= log.segments_end:
            return SegmentDescribed(status=Status.INVALID, detail=f"the segments end at offset {log.segments_end}")
        async with run.verify_turns:
            segment = await _holding(run, log, offset)
            stored, epoch = await run.reader.stored(log, segment), log.epoch_of(segment.base_offset)
            contents = await run.reader.run_sync(lambda: contents_of(stored, epoch, request.first_batch, limit))
        return SegmentDescribed(contents=contents)
    except NotAvailable as error:
        return SegmentDescribed(status=error.status, detail=str(error), owner=error.owner)
    except Damaged as error:
        return SegmentDescribed(status=Status.DAMAGED, detail=str(error))
    except STORE_FAILURES as error:
        return SegmentDescribed(status=Status.UNAVAILABLE, detail=str(error))


async def _holding(run: Run, log: CommittedLog, offset: int) -> KnownSegment:
    """Return the segment, even if it is damaged. Raises Damaged if there is none, Unavailable, Refused."""
    try:
        return await run.reader.holding(log, offset)
    except Damaged:
        # It is by its name that the object of a damaged segment is found.
        return await run.reader.finder.holding(log, offset)
