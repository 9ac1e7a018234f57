"""``python -m services.storage``: run a storage instance as a separate process."""

import sys

import trio

from kafscale.clock import wall_clock_ms
from kafscale.config.access import AccessSettings
from kafscale.config.calls import RpcSettings
from kafscale.config.stores import NamespaceSettings
from kafscale.config.tokens import TokenSettings
from kafscale.metadata.acls import AclCatalog
from kafscale.metadata.members import Members
from kafscale.metadata.topics import TopicCatalog
from kafscale.process.process import Loaded, run_process
from kafscale.process.startup import (
    EVERY_SERVICE,
    WITH_OBJECTS,
    Endpoint,
    check_callers,
    check_shared,
    connector,
    indexer_pool,
    open_metadata,
    open_objects,
    open_operations,
    running,
)
from kafscale.process.tokens import open_verifier
from kafscale.process.totals import Totals
from kafscale.rpc.generated import IndexerClient, SegmentStorageClient
from kafscale.rpc.services import bind_process, bind_storage
from kafscale.threads import run_in_thread
from services.storage.dependencies import Dependencies
from services.storage.monitoring import show
from services.storage.needs import needs
from services.storage.service import StorageService
from services.storage.settings import StorageSettings

SETTINGS = (StorageSettings, AccessSettings, TokenSettings, *WITH_OBJECTS, *EVERY_SERVICE)


async def serve(settings: Loaded, stopping: trio.Event) -> None:
    """Open stores and listener, register, and serve. On shutdown partitions are handed over while calls are served."""
    namespace, access = settings[NamespaceSettings].namespace, settings[AccessSettings]
    async with (
        open_operations(settings, "storage", stopping) as operations,
        open_metadata(settings, operations) as metadata,
        open_objects(settings, operations, watch_lifecycle=True) as objects,
        open_verifier(settings[TokenSettings], wanted=access.acls) as tokens,
    ):
        endpoint = await Endpoint.bind("storage", settings, operations)
        catalog = TopicCatalog(metadata, namespace)
        check_callers(settings, access)
        acls = AclCatalog(metadata, namespace, access.without_acls())
        members, indexers = (Members(metadata, namespace, service) for service in ("storage", "indexer"))
        async with (
            running(settings, catalog.run, acls.run, members.run, indexers.run),
            indexer_pool(indexers, settings, operations) as indexer,
        ):
            deps = Dependencies(
                settings=settings[StorageSettings].resolved(directory=False),
                namespace=namespace,
                objects=objects,
                single_tries=objects.inner,
                metadata=metadata,
                catalog=catalog,
                members=members,
                indexer=IndexerClient(indexer),
                now_ms=wall_clock_ms,
                run_sync=run_in_thread,
                address=endpoint.address,
                connect=connector(settings, operations, SegmentStorageClient),
                tracer=operations.tracer,
            )
            storage = StorageService(deps)
            show(storage, deps.counters, members, operations)
            verify, audit = tokens.verify if tokens else None, access.audit_log()
            guard = access.guard(lambda: acls.current, needs(catalog), audit=audit, verify=verify)
            async with (
                endpoint.serving(bind_storage(storage, guard), bind_process(Totals(operations.metrics), guard)),
                trio.open_nursery() as nursery,
            ):
                await nursery.start(storage.run, stopping)
                endpoint.ready(operations)


def grace_ms(settings: Loaded) -> int:
    return settings[StorageSettings].drain_timeout_ms + settings[RpcSettings].drain_timeout_ms


if __name__ == "__main__":
    sys.exit(run_process(SETTINGS, serve, service="storage", check=check_shared, grace_ms=grace_ms))
