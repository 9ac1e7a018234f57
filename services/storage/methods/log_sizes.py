"""LogSizes: how much a partition's log takes in the object store: what has no records is not taken over for that."""

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
    """A result for each query. What is known too late is known when it is asked for again."""
    results = [_failed(Status.UNAVAILABLE, Unavailable("the log's size is not known in time")) for _ in request.queries]
    left = iter(enumerate(request.queries))

    async def answer() -> None:
        for index, query in left:
            results[index] = await _log_size(run, query)

    with trio.move_on_after(request.wait_ms / 1000 if request.wait_ms else math.inf):
        async with trio.open_nursery() as nursery:
            # Each may list its whole partition.
            for _ in range(min(deps.settings.reads_in_flight, len(results))):
                nursery.start_soon(answer)
    return LogSizesReply(results=results)


async def _log_size(run: Run, query: SizeQuery) -> LogSize:
    """As the answer to one query. Segments are listed once and known then, of a very long log only the end."""
    ref = query.partition
    try:
        if run.owned.may_have(ref) and not await run.owned.has_records(ref):
            return LogSize()
        view = (await run.owned.acquire(ref)).log
        if view.log_start == view.high_watermark:
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
