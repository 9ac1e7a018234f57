"""Producers: describe the idempotent producers of partitions, for operators."""

from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import PartitionProducers, ProducersQuery, ProducersReply, ProducersRequest
from services.storage.dependencies import Dependencies
from services.storage.methods.refusal import refusal_of
from services.storage.owning.takeover import NotAvailable
from services.storage.run import Run


async def producers(run: Run, deps: Dependencies, request: ProducersRequest) -> ProducersReply:
    """Return a result for each query."""
    return ProducersReply(results=[await _of_partition(run, deps, query) for query in request.queries])


async def _of_partition(run: Run, deps: Dependencies, query: ProducersQuery) -> PartitionProducers:
    try:
        partition = await run.owned.acquire(query.partition)
        refusal = await refusal_of(run, deps, partition, -1, partition.log.log_start)
    except NotAvailable as error:
        refusal = error
    if refusal is None and partition.offline:
        # Its producers may not be restored, so an empty list would be wrong.
        refusal = NotAvailable(Status.DAMAGED, partition.offline)
    if refusal is not None:
        return PartitionProducers(status=refusal.status, detail=str(refusal), owner=refusal.owner)
    return PartitionProducers(producers=partition.producers.describe())
