"""How much a partition's log takes in the object store: what has no records is not taken over for that."""

from kafscale.errors import KafscaleError
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import LogSize, SizeQuery
from services.storage.finder import Damaged
from services.storage.run import Run
from services.storage.takeover import NotAvailable


async def log_size(run: Run, query: SizeQuery) -> LogSize:
    """As the answer to one query. Segments are listed once and known then, of a very long log only the end."""
    ref = query.partition
    try:
        if run.owned.may_have(ref) and not await run.owned.has_records(ref):
            return LogSize()
        view = (await run.owned.acquire(ref)).log
        if view.log_start == view.committed_end:
            return LogSize()
        first = await run.reader.holding(view, view.log_start)
        return LogSize(bytes=await run.reader.finder.size_from(view, first))
    except NotAvailable as error:
        return LogSize(status=error.status, detail=str(error), owner=error.owner)
    except Damaged as error:
        return _failed(Status.DAMAGED, error)
    except STORE_FAILURES as error:
        return _failed(Status.UNAVAILABLE, error)


def _failed(status: Status, error: KafscaleError) -> LogSize:
    return LogSize(status=status, detail=str(error))
