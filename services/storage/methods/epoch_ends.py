"""EpochEnds: the end offsets of leader epochs, by which clients detect truncation."""

from kafscale.v1.storage_pb2 import EpochEnd, EpochEndsReply, EpochEndsRequest, EpochQuery
from services.storage.dependencies import Dependencies
from services.storage.log.partition import Partition
from services.storage.methods.acquiring import acquire_all
from services.storage.methods.refusal import refusal_of
from services.storage.owning.takeover import NotAvailable
from services.storage.run import Run


async def epoch_ends(run: Run, deps: Dependencies, request: EpochEndsRequest) -> EpochEndsReply:
    """Return a result for each query."""
    partitions = await acquire_all(run, [query.partition for query in request.queries])
    results = [
        _no_epoch(found) if isinstance(found, NotAvailable) else await _epoch_end(run, deps, found, query)
        for query, found in zip(request.queries, partitions, strict=True)
    ]
    return EpochEndsReply(results=results)


async def _epoch_end(run: Run, deps: Dependencies, partition: Partition, query: EpochQuery) -> EpochEnd:
    refusal = await refusal_of(run, deps, partition, query.leader_epoch, partition.log.log_start)
    if refusal is not None:
        return _no_epoch(refusal)
    epoch, end_offset = partition.log.end_of_epoch(query.epoch)
    return EpochEnd(epoch=epoch, end_offset=end_offset)


def _no_epoch(error: NotAvailable) -> EpochEnd:
    return EpochEnd(status=error.status, detail=str(error), epoch=-1, end_offset=-1, owner=error.owner)
