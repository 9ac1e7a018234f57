"""LogSizes: the size of partitions' logs in the object store. Empty partitions are not taken over for it."""

import math

import trio

from kafscale.errors import KafscaleError, Unavailable
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import LogSize, LogSizesReply, LogSizesRequest, SizeQuery
from services.storage.dependencies import Dependencies
from services.storage.owning.takeover import NotAvailable
from services.storage.reading.finder import Damaged
from services.storage.run import Run


async def log_sizes(run: Run, deps: Dependencies, request: LogSizesRequest) -> LogSizesReply:
    """Return a result for each query. A size that is not known in time is cached for the next request."""
    results = [_failed(Status.UNAVAILABLE, Unavailable("the log's size is not known in time")) for _ in request.queries]
    remaining = iter(enumerate(request.queries))

    async def answer() -> None:
        for index, query in remaining:
            results[index] = await _log_size(run, query)

    with trio.move_on_after(request.wait_ms / 1000 if request.wait_ms else math.inf):
        async with trio.open_nursery() as nursery:
            # Bounded, because each query may list its whole partition.
            for _ in range(min(deps.settings.reads_in_flight, len(results))):
                nursery.start_soon(answer)
    return LogSizesReply(results=results)


async def _log_size(run: Run, query: SizeQuery) -> LogSize:
    """Answer one query. The listed segments are remembered, except that of a very long log only the end is."""
    ref = query.partition
    try:
        if run.owned.may_acquire(ref) and not await run.owned.has_records(ref):
            return LogSize()
        view = (await run.owned.acquire(ref)).log
        if view.log_start == view.segments_end:
            return LogSize()
        first = await run.reader.holding(view, view.log_start)
        extent = await run.reader.finder.extent_from(view, first)
        return LogSize(bytes=extent.bytes, segments=extent.segments)
    except NotAvailable as error:
        return LogSize(status=error.status, detail=str(error), owner=error.owner)
    except Damaged as error:
        return _failed(Status.DAMAGED, error)
    except STORE_FAILURES as error:
        return _failed(Status.UNAVAILABLE, error)


def _failed(status: Status, error: KafscaleError) -> LogSize:
    return LogSize(status=status, detail=str(error))
