"""Take over the partitions that a request needs and this run does not own yet."""

import math

import trio

from kafscale.v1.common_pb2 import PartitionRef
from services.storage.log.partition import Partition
from services.storage.owning.takeover import NotAvailable
from services.storage.run import Run


async def acquire_all(
    run: Run, refs: list[PartitionRef], *, patience: float = math.inf
) -> list[Partition | NotAvailable]:
    """Return the partition, or why it is not available, for each of ``refs``. Take-overs run concurrently.

    ``patience``: how long to wait for a take-over, in seconds.
    """
    found: list[Partition | NotAvailable | None] = [run.owned.get((ref.topic_id, ref.partition)) for ref in refs]
    if None in found:
        async with trio.open_nursery() as nursery:
            for i, one in enumerate(found):
                if one is None:
                    nursery.start_soon(_acquire_into, run, refs[i], patience, found, i)
    return [one for one in found if one is not None]


async def _acquire_into(
    run: Run, ref: PartitionRef, patience: float, found: list[Partition | NotAvailable | None], index: int
) -> None:
    try:
        found[index] = await run.owned.acquire(ref, patience=patience)
    except NotAvailable as error:
        found[index] = error
