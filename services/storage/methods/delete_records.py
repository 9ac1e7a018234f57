"""DeleteRecords: move the log start offset of partitions."""

import trio

from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import DeleteRecordsReply, DeleteRecordsRequest, PartitionTruncated
from services.storage.dependencies import Dependencies
from services.storage.log.partition import Partition
from services.storage.methods.acquiring import acquire_all
from services.storage.methods.refusal import refusal_of
from services.storage.owning.takeover import NotAvailable
from services.storage.run import Run


async def delete_records(run: Run, deps: Dependencies, request: DeleteRecordsRequest) -> DeleteRecordsReply:
    """Return a result for each partition."""
    found = await acquire_all(run, [truncation.partition for truncation in request.partitions])
    reply = DeleteRecordsReply(results=[PartitionTruncated() for _ in found])
    async with trio.open_nursery() as nursery:
        for one, truncation, result in zip(found, request.partitions, reply.results, strict=True):
            if isinstance(one, NotAvailable):
                result.status, result.detail, result.owner = one.status, str(one), one.owner
            else:
                nursery.start_soon(_delete_records_of, run, deps, one, truncation.offset, result)
    return reply


async def _delete_records_of(
    run: Run, deps: Dependencies, partition: Partition, offset: int, result: PartitionTruncated
) -> None:
    view = partition.log
    # This confirms log start and high watermark. After it the only wait is for a commit, which confirms them too.
    refusal = await refusal_of(run, deps, partition, -1, view.log_start)
    if refusal is None and partition.offline:
        refusal = NotAvailable(Status.DAMAGED, partition.offline)
    if refusal is not None:
        result.status, result.detail, result.owner = refusal.status, str(refusal), refusal.owner
        return
    offset = view.high_watermark if offset == -1 else offset
    if not 0 <= offset <= view.high_watermark:
        result.status, result.detail = Status.OFFSET_OUT_OF_RANGE, f"the log ends at {view.high_watermark}"
        return
    if offset > view.segments_end:
        # The log starts at a segment or inside one.
        await run.flush(partition, "request")
    if not partition.moving:
        await run.move_log_start(partition, offset)
    if view.log_start < offset:
        result.status, result.detail = Status.NOT_OWNER, "the partition is moving to another instance"
        result.owner = run.owned.elsewhere(partition.key)
        return
    run.retention.clean(partition)
    result.log_start = view.log_start
