"""Entry point of the coordinator process: ``python -m services.coordinator``."""

import sys

import trio

from kafscale.clock import wall_clock_ms
from kafscale.config.access import AccessSettings
from kafscale.config.calls import RpcSettings
from kafscale.config.stores import NamespaceSettings
from kafscale.metadata.acls import AclCatalog
from kafscale.metadata.members import Members
from kafscale.metadata.membership import Membership
from kafscale.process.process import Loaded, run_process
from kafscale.process.startup import (
    EVERY_SERVICE,
    Endpoint,
    check_callers,
    check_shared,
    connector,
    open_metadata,
    open_operations,
    running,
    start_in_time,
)
from kafscale.process.totals import Totals
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.rpc.services import bind_coordinator, bind_process
from kafscale.telemetry import State
from services.coordinator.monitoring import show
from services.coordinator.run import Dependencies
from services.coordinator.service import CoordinatorService
from services.coordinator.settings import CoordinatorSettings

SETTINGS = (CoordinatorSettings, AccessSettings, *EVERY_SERVICE)


async def serve(settings: Loaded, stopping: trio.Event) -> None:
    """Connect to etcd, listen, and register. On shutdown, release all groups while still serving calls."""
    namespace = settings[NamespaceSettings].namespace
    async with (
        open_operations(settings, "coordinator", stopping) as operations,
        open_metadata(settings, operations) as metadata,
    ):
        endpoint = await Endpoint.bind("coordinator", settings, operations)
        members, storages = (Members(metadata, namespace, service) for service in ("coordinator", "storage"))
        deps = Dependencies(
            settings=settings[CoordinatorSettings],
            namespace=namespace,
            metadata=metadata,
            members=members,
            storages=storages,
            connect=connector(settings, operations, SegmentStorageClient),
            now_ms=wall_clock_ms,
            address=endpoint.address,
        )
        coordinator = CoordinatorService(deps)
        access = settings[AccessSettings]
        check_callers(settings, access)
        acls = AclCatalog(metadata, namespace, access.without_acls())
        guard = access.guard(lambda: acls.current, {}, audit=access.audit_log())

        def membership() -> Membership | None:
            return coordinator.current.membership if coordinator.current else None

        operations.watch_lease(membership)
        operations.watch_address(membership, members, unready_from=State.UNAVAILABLE)
        show(coordinator, deps.counters, operations)
        async with (
            running(settings, acls.run, members.run, storages.run),
            endpoint.serving(bind_coordinator(coordinator, guard), bind_process(Totals(operations.metrics), guard)),
            trio.open_nursery() as nursery,
        ):
            await start_in_time(nursery, settings, coordinator.run, stopping)
            endpoint.ready(operations)


def grace_ms(settings: Loaded) -> int:
    return settings[CoordinatorSettings].group_handover_timeout_ms + settings[RpcSettings].drain_timeout_ms


if __name__ == "__main__":
    sys.exit(run_process(SETTINGS, serve, service="coordinator", check=check_shared, grace_ms=grace_ms))
