"""``python -m services.indexer``: an indexer in a separate process."""

import sys

import trio

from kafscale.config.access import AccessSettings
from kafscale.config.calls import RpcSettings
from kafscale.config.stores import NamespaceSettings
from kafscale.metadata.acls import AclCatalog
from kafscale.process.process import Loaded, run_process
from kafscale.process.startup import (
    EVERY_SERVICE,
    WITH_OBJECTS,
    Endpoint,
    check_callers,
    check_shared,
    open_metadata,
    open_objects,
    open_operations,
    registered,
    running,
)
from kafscale.process.totals import Totals
from kafscale.rpc.services import bind_indexer, bind_process
from services.indexer.monitoring import families
from services.indexer.service import IndexerService
from services.indexer.settings import IndexerSettings

SETTINGS = (IndexerSettings, AccessSettings, *WITH_OBJECTS, *EVERY_SERVICE)


async def serve(settings: Loaded, stopping: trio.Event) -> None:
    """Open the stores, serve calls and register. To stop, deregister first, then let calls in flight finish."""
    async with (
        open_operations(settings, "indexer", stopping) as operations,
        open_metadata(settings, operations) as metadata,
        open_objects(settings, operations) as objects,
    ):
        endpoint = await Endpoint.bind("indexer", settings, operations)
        indexer = IndexerService(objects, settings[NamespaceSettings].namespace, settings[IndexerSettings])
        operations.metrics.add(families(indexer.counters))
        access = settings[AccessSettings]
        check_callers(settings, access)
        acls = AclCatalog(metadata, settings[NamespaceSettings].namespace, access.without_acls())
        guard = access.guard(lambda: acls.current, {}, audit=access.audit_log())
        async with (
            running(settings, acls.run),
            endpoint.serving(bind_indexer(indexer, guard), bind_process(Totals(operations.metrics), guard)),
            registered(endpoint, metadata, settings, operations),
        ):
            endpoint.ready(operations)
            await stopping.wait()


def grace_ms(settings: Loaded) -> int:
    return settings[RpcSettings].drain_timeout_ms


if __name__ == "__main__":
    sys.exit(run_process(SETTINGS, serve, service="indexer", check=check_shared, grace_ms=grace_ms))
