"""ListOffsets: log start offsets, high watermarks, and the first record at or after a timestamp."""

import structlog

from kafscale.metadata.outage import STORE_FAILURES
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import ListOffsetsReply, ListOffsetsRequest, PartitionOffset, PartitionQuery
from services.storage.dependencies import Dependencies
from services.storage.log.partition import Partition
from services.storage.methods.acquiring import acquire_all
from services.storage.methods.refusal import refusal_of, unanswered
from services.storage.owning.takeover import NotAvailable
from services.storage.reading.finder import Damaged
from services.storage.reading.offsets import list_offset
from services.storage.run import Run

log = structlog.get_logger()


async def list_offsets(run: Run, deps: Dependencies, request: ListOffsetsRequest) -> ListOffsetsReply:
    """Return a result for each query."""
    partitions = await acquire_all(run, [query.partition for query in request.queries])
    results = [
        _no_offset(found) if isinstance(found, NotAvailable) else await _list_one(run, deps, found, query)
        for query, found in zip(request.queries, partitions, strict=True)
    ]
    return ListOffsetsReply(results=results)


async def _list_one(run: Run, deps: Dependencies, partition: Partition, query: PartitionQuery) -> PartitionOffset:
    refusal = await refusal_of(run, deps, partition, query.leader_epoch, partition.log.log_start)
    if refusal is not None:
        return _no_offset(refusal)
    log_start, rewritten = partition.log.log_start, partition.log.segments.rewritten
    try:
        return await list_offset(
            partition.log,
            query.timestamp,
            reader=run.reader,
            catalogs=run.catalogs,
            indexer=deps.indexer,
        )
    except Damaged as error:
        if log_start < partition.log.log_start or partition.log.segments.rewritten is not rewritten:
            # The object was deleted meanwhile.
            return await _list_one(run, deps, partition, query)
        log.error("committed data cannot be read", partition=partition.name, reason=str(error))
        return _no_offset(NotAvailable(Status.DAMAGED, str(error)))
    except STORE_FAILURES as error:
        return _no_offset(unanswered(run, partition, error))


def _no_offset(error: NotAvailable) -> PartitionOffset:
    return PartitionOffset(
        status=error.status, detail=str(error), offset=-1, timestamp=-1, leader_epoch=-1, owner=error.owner
    )
