"""``python -m services.gateway`` runs a gateway in its own process."""

import sys

import trio

from kafscale.config.calls import RpcSettings
from kafscale.config.network import LeaseSettings
from kafscale.config.stores import NamespaceSettings
from kafscale.metadata.acls import AclCatalog
from kafscale.metadata.members import Members
from kafscale.metadata.ownership import OwnershipMap
from kafscale.metadata.quotas import QuotaCatalog
from kafscale.metadata.topics import TopicCatalog
from kafscale.metadata.users import UserCatalog
from kafscale.process.logging import LogSettings
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
from kafscale.process.tokens import open_verifier
from kafscale.process.totals import Totals
from kafscale.rpc.admin import bind_admin
from kafscale.rpc.generated import GroupCoordinatorClient, ProcessClient, SegmentStorageClient
from kafscale.rpc.peer_health import PeerHealth
from kafscale.rpc.services import bind_process
from services.gateway.admin.cluster import ClusterReport
from services.gateway.admin.needs import NEEDS
from services.gateway.admin.service import AdminService
from services.gateway.admin.totals import TotalsReport
from services.gateway.monitoring import show
from services.gateway.service import Gateway, GatewayDependencies
from services.gateway.settings import GatewaySettings

SETTINGS = (GatewaySettings, *EVERY_SERVICE)


async def serve(settings: Loaded, stopping: trio.Event) -> None:
    """Start the watches, the listeners and the registration, and run until stopped. Clients are drained first."""
    namespace, own = settings[NamespaceSettings].namespace, settings[GatewaySettings]
    token = own.token()
    async with (
        open_operations(settings, "gateway", stopping) as operations,
        open_metadata(settings, operations) as metadata,
        open_verifier(own, wanted=own.uses_tokens) as tokens,
    ):
        endpoint = await Endpoint.bind("gateway", settings, operations)
        catalog, ownership = TopicCatalog(metadata, namespace), OwnershipMap(metadata, namespace)
        users, quotas = UserCatalog(metadata, namespace), QuotaCatalog(metadata, namespace)
        check_callers(settings, own)
        audit = own.audit_log()
        acls = AclCatalog(metadata, namespace, own.without_acls())
        storages, gateways, coordinators, indexers = (
            Members(metadata, namespace, service) for service in ("storage", "gateway", "coordinator", "indexer")
        )
        parts = GatewayDependencies(
            settings=own,
            namespace=namespace,
            metadata=metadata,
            catalog=catalog,
            users=users,
            acls=acls,
            audit=audit,
            quotas=quotas,
            storages=storages,
            gateways=gateways,
            coordinators=coordinators,
            ownership=ownership,
            connect=connector(settings, operations, SegmentStorageClient),
            connect_coordinator=connector(settings, operations, GroupCoordinatorClient),
            lease_ttl_seconds=settings[LeaseSettings].lease_ttl_seconds,
            address=endpoint.address,
            tokens=tokens,
            tracer=operations.tracer,
            log_requests=settings[LogSettings].log_level == "debug",
        )
        gateway = Gateway(parts)
        report = ClusterReport(parts, indexers, operations.health, connector(settings, operations, PeerHealth))
        own_totals, connect = Totals(operations.metrics), connector(settings, operations, ProcessClient)
        totals = TotalsReport(report.members, endpoint.address, own_totals.current, connect)
        verify = tokens.verify if tokens else None
        guard = own.guard(lambda: acls.current, NEEDS, audit=audit, token=token, verify=verify)
        admin = bind_admin(AdminService(gateway, report, totals), token=token, guard=guard)
        members = (storages.run, gateways.run, coordinators.run, indexers.run)
        watched = (catalog.run, users.run, acls.run, quotas.run, *members, ownership.run)
        async with (
            running(settings, *watched),
            endpoint.serving(admin, bind_process(own_totals, guard)),
            trio.open_nursery() as nursery,
        ):
            show(gateway, parts.counters, operations)
            # Without a confirmed lease the gateway continues to serve, because it knows the owners.
            operations.watch_lease(lambda: gateway.membership, unready_from=None)
            operations.watch_address(lambda: gateway.membership, gateways)
            await start_in_time(nursery, settings, gateway.run, stopping)
            endpoint.ready(operations)


def grace_ms(settings: Loaded) -> int:
    return settings[GatewaySettings].shutdown_grace_ms + settings[RpcSettings].drain_timeout_ms


if __name__ == "__main__":
    sys.exit(run_process(SETTINGS, serve, service="gateway", check=check_shared, grace_ms=grace_ms))
