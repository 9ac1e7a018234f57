"""Flush: store and commit the write buffers of partitions."""

from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import FlushReply, FlushRequest, PartitionFlushed
from services.storage.log.partition import Partition
from services.storage.methods.acquiring import acquire_all
from services.storage.owning.takeover import NotAvailable
from services.storage.run import Run


async def flush(run: Run, request: FlushRequest) -> FlushReply:
    """Return a result for each partition of the request, or for all owned partitions if the request names none."""
    if request.partitions:
        found = await acquire_all(run, list(request.partitions))
    else:
        found = list(run.owned)
    # Seal all of them first, so that they are uploaded concurrently.
    for one in found:
        if isinstance(one, Partition):
            run.seal(one, "request")
    reply = FlushReply()
    for one in found:
        if isinstance(one, NotAvailable):
            reply.results.append(PartitionFlushed(status=one.status, detail=str(one), owner=one.owner))
            continue
        done = await run.flush(one, "request")
        result = PartitionFlushed(partition=one.ref, high_watermark=one.log.high_watermark)
        if one.offline:
            result.status, result.detail = Status.DAMAGED, one.offline
        elif not done:
            result.status, result.owner = Status.NOT_OWNER, run.owned.elsewhere(one.key)
        reply.results.append(result)
    return reply
