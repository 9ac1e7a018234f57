"""The one-process mode: the objects of the four services, connected by the direct transport, and the console.

Readers and writers of whole topics, such as Spark jobs, call its storage over gRPC. Operators and the console call its
Admin service.
"""

import random
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial

import structlog
import trio

from kafscale.clock import wall_clock_ms
from kafscale.config.calls import RpcSettings
from kafscale.config.kafka_client import KafkaClientSettings
from kafscale.config.listeners import Listener
from kafscale.config.network import HttpSettings, LeaseSettings, NetworkSettings
from kafscale.config.settings import documented
from kafscale.config.stores import NamespaceSettings, S3Settings, open_object_store
from kafscale.metadata.acls import AclCatalog
from kafscale.metadata.members import LiveMember, Members
from kafscale.metadata.ownership import OwnershipMap
from kafscale.metadata.quotas import QuotaCatalog
from kafscale.metadata.sqlite import open_sqlite
from kafscale.metadata.topics import TopicCatalog
from kafscale.metadata.users import UserCatalog
from kafscale.objects.availability import StoreHealth
from kafscale.objects.lifecycle import LifecycleWatch
from kafscale.objects.metrics import OperationCounters
from kafscale.process.health import HealthSettings
from kafscale.process.logging import LogSettings
from kafscale.process.operations import Operations
from kafscale.process.process import Loaded, run_process
from kafscale.process.startup import Endpoint, connector
from kafscale.process.tokens import open_verifier
from kafscale.process.totals import Totals
from kafscale.rpc.admin import bind_admin
from kafscale.rpc.direct import Direct
from kafscale.rpc.generated import GroupCoordinatorClient, IndexerClient, ProcessClient, SegmentStorageClient
from kafscale.rpc.peer_health import PeerHealth
from kafscale.rpc.services import bind_coordinator, bind_indexer, bind_storage
from kafscale.threads import run_in_thread
from services.all_in_one.console import serve_own_console
from services.all_in_one.settings import OneProcessSettings
from services.console.records.settings import RecordsSettings
from services.console.settings import ConsoleSettings
from services.coordinator.monitoring import show as show_coordinator
from services.coordinator.run import Dependencies as CoordinatorDependencies
from services.coordinator.service import CoordinatorService
from services.coordinator.settings import CoordinatorSettings
from services.gateway.admin.cluster import ClusterReport
from services.gateway.admin.needs import NEEDS
from services.gateway.admin.service import AdminService
from services.gateway.admin.totals import TotalsReport
from services.gateway.monitoring import show as show_gateway
from services.gateway.service import Gateway, GatewayDependencies
from services.gateway.settings import GatewaySettings
from services.indexer.monitoring import families as indexer_families
from services.indexer.service import IndexerService
from services.indexer.settings import IndexerSettings
from services.storage.dependencies import Dependencies
from services.storage.methods.append import append_at_once
from services.storage.monitoring import show as show_storage
from services.storage.needs import needs
from services.storage.service import StorageService
from services.storage.settings import StorageSettings

SETTINGS = (
    GatewaySettings,
    StorageSettings,
    IndexerSettings,
    CoordinatorSettings,
    S3Settings,
    NamespaceSettings,
    LeaseSettings,
    NetworkSettings,
    RpcSettings,
    HttpSettings,
    HealthSettings,
    LogSettings,
    OneProcessSettings,
    ConsoleSettings,
    RecordsSettings,
    KafkaClientSettings,
)
log = structlog.get_logger()


def run_all_in_one() -> int:
    """Read the environment, run until a signal arrives, and return the exit status."""
    # Only the settings of this process are known, which include those of the admin commands. Settings of separate
    # services, such as etcd's address, have no effect here, so they cause a warning.
    known = [declared.env for _, settings in documented(SETTINGS) for declared in settings]
    return run_process(SETTINGS, _serve, grace_ms=_grace_ms, known=known)


def _grace_ms(settings: Loaded) -> int:
    # Storage and the coordinator stop at the same time.
    stores_ms = max(settings[StorageSettings].drain_timeout_ms, settings[CoordinatorSettings].group_handover_timeout_ms)
    return settings[GatewaySettings].shutdown_grace_ms + stores_ms


async def _serve(settings: Loaded, stopping: trio.Event) -> None:
    stores, own, namespace = settings[S3Settings], settings[GatewaySettings], settings[NamespaceSettings].namespace
    token, counters, s3 = own.token(), OperationCounters(), StoreHealth(settings[HealthSettings].thresholds())
    lifecycle = LifecycleWatch(namespace) if stores.bucket else None
    async with (
        Operations.open(settings[HttpSettings], "gateway", stopping, runs="all") as operations,
        open_object_store(stores, recorder=counters, health=s3, random=random.random, lifecycle=lifecycle) as objects,
        open_sqlite(stores.data_dir / "metadata.sqlite") as sqlite,
        open_verifier(own, wanted=own.uses_tokens) as tokens,
        trio.open_nursery() as nursery,
    ):
        operations.observe_objects(objects, s3, counters, lifecycle)
        endpoint = await Endpoint.bind("storage", settings, operations)
        # Before clients are served, so that they do not notice a wrong setting of it.
        await nursery.start(serve_own_console, settings, endpoint, operations, stopping)
        metadata = operations.observed(sqlite)
        catalog, storage_members = TopicCatalog(metadata, namespace), Members(metadata, namespace, "storage")
        indexer = IndexerService(objects, namespace, settings[IndexerSettings])
        operations.metrics.add(indexer_families(indexer.counters))
        deps = Dependencies(
            settings=settings[StorageSettings].resolved(directory=not stores.bucket),
            namespace=namespace,
            objects=objects,
            single_tries=objects.inner,
            intake_unsynced=not stores.bucket and not stores.intake_fsync,
            metadata=metadata,
            catalog=catalog,
            members=storage_members,
            indexer=IndexerClient(Direct(bind_indexer(indexer))),
            now_ms=wall_clock_ms,
            run_sync=run_in_thread,
            listener=endpoint.address,
        )
        storage = StorageService(deps)
        show_storage(storage, deps.counters, storage_members, operations)

        def connect_storage(_: LiveMember) -> AbstractAsyncContextManager[SegmentStorageClient]:
            return nullcontext(SegmentStorageClient(Direct(bind_storage(storage))))

        coordinator_members, gateways, indexers = (
            Members(metadata, namespace, service) for service in ("coordinator", "gateway", "indexer")
        )
        coordinator_parts = CoordinatorDependencies(
            settings=settings[CoordinatorSettings],
            namespace=namespace,
            metadata=metadata,
            members=coordinator_members,
            storages=storage_members,
            connect=connect_storage,
            now_ms=wall_clock_ms,
        )
        coordinator = CoordinatorService(coordinator_parts)
        show_coordinator(coordinator, coordinator_parts.counters, operations)
        ownership, quotas = OwnershipMap(metadata, namespace), QuotaCatalog(metadata, namespace)
        verify, audit = tokens.verify if tokens else None, own.audit_log()
        users, acls = UserCatalog(metadata, namespace), AclCatalog(metadata, namespace, own.without_acls())
        gateway_parts = GatewayDependencies(
            # A message to storage costs nothing here.
            settings=replace(own, append_gather_ms=0),
            namespace=namespace,
            metadata=metadata,
            catalog=catalog,
            users=users,
            acls=acls,
            audit=audit,
            quotas=quotas,
            storages=storage_members,
            gateways=gateways,
            coordinators=coordinator_members,
            ownership=ownership,
            connect=connect_storage,
            append_at_once=partial(append_at_once, storage),
            connect_coordinator=lambda _: nullcontext(GroupCoordinatorClient(Direct(bind_coordinator(coordinator)))),
            lease_ttl_seconds=settings[LeaseSettings].lease_ttl_seconds,
            tokens=tokens,
            now_ms=wall_clock_ms,
            log_requests=settings[LogSettings].log_level == "debug",
        )
        gateway = Gateway(gateway_parts)
        show_gateway(gateway, gateway_parts.counters, operations)
        report = ClusterReport(gateway_parts, indexers, operations.health, connector(settings, operations, PeerHealth))
        admin = bind_admin(
            AdminService(
                gateway,
                report,
                TotalsReport(
                    report.members,
                    gateway_parts.address,
                    Totals(operations.metrics).current,
                    connector(settings, operations, ProcessClient),
                ),
            ),
            token=token,
            guard=own.guard(lambda: acls.current, NEEDS, audit=audit, token=token, verify=verify),
        )
        gateway_stopped, storage_stopped, coordinator_stopped = trio.Event(), trio.Event(), trio.Event()

        async def serve_storage(task_status: trio.TaskStatus[None]) -> None:
            await storage.run(gateway_stopped, task_status=task_status)
            storage_stopped.set()

        async def serve_groups(task_status: trio.TaskStatus[None]) -> None:
            await coordinator.run(gateway_stopped, task_status=task_status)
            coordinator_stopped.set()

        async def serve_clients(task_status: trio.TaskStatus[tuple[Listener, ...]]) -> None:
            await gateway.run(stopping, task_status=task_status)
            gateway_stopped.set()

        for decides in (catalog.run, users.run, acls.run, quotas.run):
            # Nothing is served before what decides about it is known.
            await nursery.start(decides)
        await nursery.start(storage_members.run)
        await nursery.start(serve_storage)
        await nursery.start(
            endpoint.serve,
            stopping,
            bind_storage(storage, own.guard(lambda: acls.current, needs(catalog), audit=audit, verify=verify)),
            admin,
        )
        await nursery.start(coordinator_members.run)
        await nursery.start(serve_groups)
        for watched in (gateways.run, indexers.run, ownership.run):
            await nursery.start(watched)
        # On shutdown, clients are disconnected first, then their records are stored, then the stores are closed.
        await nursery.start(serve_clients)
        endpoint.ready(operations)
        await storage_stopped.wait()
        await coordinator_stopped.wait()
        log.info("object store closed", **counters.totals())
        nursery.cancel_scope.cancel()
