"""The idempotent producers of partitions, as they are shown to operators."""

from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import PartitionProducers, ProducersQuery, ProducersRequest
from services.storage.parts import Parts
from services.storage.refusal import refusal_of
from services.storage.run import Run
from services.storage.takeover import NotAvailable


async def producers_of(run: Run, parts: Parts, request: ProducersRequest) -> list[PartitionProducers]:
    """A result for each query."""
    return [await _of_partition(run, parts, query) for query in request.queries]


async def _of_partition(run: Run, parts: Parts, query: ProducersQuery) -> PartitionProducers:
    try:
        partition = await run.owned.acquire(query.partition)
        refusal = await refusal_of(run, parts, partition, -1, partition.log.log_start)
    except NotAvailable as error:
        refusal = error
    if refusal is None and partition.offline:
        # Its producers may not be restored: an empty list would say that there are none.
        refusal = NotAvailable(Status.DAMAGED, partition.offline)
    if refusal is not None:
        return PartitionProducers(status=refusal.status, detail=str(refusal), owner=refusal.owner)
    return PartitionProducers(producers=partition.producers.shown())
