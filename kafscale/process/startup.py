"""Startup steps that services in separate processes share: connect to etcd and S3, serve calls, register, stop."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar

import structlog
import trio

from kafscale.clock import wall_clock_ms
from kafscale.config.access import AccessSettings
from kafscale.config.calls import REQUIRED, RpcSettings
from kafscale.config.etcd import EtcdSettings, open_etcd_store
from kafscale.config.network import HttpSettings, LeaseSettings, NetworkSettings
from kafscale.config.stores import NamespaceSettings, S3Settings, open_object_store
from kafscale.errors import ConfigError, Unavailable
from kafscale.metadata.compaction import Upkeep
from kafscale.metadata.etcd_space import EtcdSpace
from kafscale.metadata.interface import MetadataStore
from kafscale.metadata.members import LiveMember, Members, MembersView
from kafscale.metadata.membership import Membership, new_run_id, stay_registered
from kafscale.objects.availability import StoreHealth
from kafscale.objects.lifecycle import LifecycleWatch
from kafscale.objects.metrics import OperationCounters
from kafscale.objects.retry import RetryingObjectStore
from kafscale.process.health import HealthSettings
from kafscale.process.logging import LogSettings
from kafscale.process.operations import Operations
from kafscale.process.process import Loaded
from kafscale.process.tracing import TracingSettings, open_tracer
from kafscale.process.version import kafscale_version
from kafscale.rpc.client import Channel
from kafscale.rpc.methods import BoundService
from kafscale.rpc.pool import IndexerPool, pool_families
from kafscale.rpc.server import RpcServer
from kafscale.rpc.tls import channel_credentials
from kafscale.v1.metadata_pb2 import Member

EVERY_SERVICE = (
    NetworkSettings,
    LeaseSettings,
    RpcSettings,
    EtcdSettings,
    NamespaceSettings,
    HttpSettings,
    LogSettings,
    TracingSettings,
)
"""The settings of every service."""
WITH_OBJECTS = (S3Settings, HealthSettings)
"""The additional settings of services that use the bucket."""

_log = structlog.get_logger(__name__)
C = TypeVar("C")


class Runnable(Protocol):
    """A task that runs until it is cancelled and reports when it has started."""

    def __call__(self, *, task_status: trio.TaskStatus[None]) -> Awaitable[None]: ...


def check_shared(settings: Loaded) -> None:
    """Raise ConfigError if settings for etcd or S3 are missing or invalid. Does not connect to them."""
    settings[EtcdSettings].config()
    if S3Settings in settings:
        settings[S3Settings].shared()


@asynccontextmanager
async def open_operations(settings: Loaded, service: str, stopping: trio.Event) -> AsyncIterator[Operations]:
    """Serve /healthz, /readyz and /metrics during the whole life of the process.

    If the process is stopped before `Endpoint.ready`, the body is cancelled immediately, because it owns nothing yet.
    """
    network = settings[NetworkSettings]
    instance = network.advertised(service, network.rpc(service).port)
    async with (
        open_tracer(settings[TracingSettings], service, instance) as tracer,
        Operations.open(settings[HttpSettings], service, stopping) as operations,
        trio.open_nursery() as nursery,
    ):
        operations.tracer = tracer

        async def end_early() -> None:
            await stopping.wait()
            if operations.health.starting:
                nursery.cancel_scope.cancel()

        nursery.start_soon(end_early)
        yield operations
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_metadata(settings: Loaded, operations: Operations) -> AsyncIterator[MetadataStore]:
    """Connect to etcd and keep it from filling up. Raises ConfigError, or Unavailable if etcd does not come up."""
    etcd, namespace = settings[EtcdSettings], settings[NamespaceSettings].namespace
    async with (
        open_etcd_store(etcd, namespace, random=random.random, patience=_patience(settings)) as opened,
        trio.open_nursery() as nursery,
    ):
        store, space = operations.observed(opened), EtcdSpace(etcd.quota_bytes)
        operations.watch_space(space)
        upkeep = Upkeep(
            store,
            opened.maintenance,
            space,
            history_seconds=etcd.history_ms / 1000,
            recovers=etcd.recover_space,
            random=random.random,
        )
        nursery.start_soon(upkeep.run)
        yield store
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_objects(
    settings: Loaded, operations: Operations, *, watch_lifecycle: bool = False
) -> AsyncIterator[RetryingObjectStore]:
    """Open the bucket. Raises ConfigError, or Unavailable if S3 does not come up.

    ``watch_lifecycle``: report lifecycle rules of the bucket that endanger the cluster.
    """
    lifecycle = LifecycleWatch(settings[NamespaceSettings].namespace) if watch_lifecycle else None
    counters, s3 = OperationCounters(), StoreHealth(settings[HealthSettings].thresholds())
    async with open_object_store(
        settings[S3Settings],
        recorder=counters,
        health=s3,
        random=random.random,
        patience=_patience(settings),
        lifecycle=lifecycle,
    ) as objects:
        operations.observe_objects(objects, s3, counters, lifecycle)
        yield objects
    _log.info("object store closed", **counters.totals())


@asynccontextmanager
async def running(settings: Loaded, *runs: Runnable) -> AsyncIterator[None]:
    """Run ``runs`` in the background, after starting each in turn. Raises Unavailable if one does not start in time."""
    async with trio.open_nursery() as nursery:
        for run in runs:
            await start_in_time(nursery, settings, run)
        yield
        nursery.cancel_scope.cancel()


async def start_in_time(
    nursery: trio.Nursery, settings: Loaded, run: Callable[..., Awaitable[object]], *args: object
) -> None:
    """Start a task that retries until etcd answers. Raises Unavailable if that takes too long."""
    # At the end of the patience, a call may be in flight, or the lease of the former process has yet to expire.
    extra = max(settings[EtcdSettings].timeout_ms / 1000, settings[LeaseSettings].lease_ttl_seconds)
    with trio.move_on_after(_patience(settings) + extra):
        await nursery.start(run, *args)
        return
    raise Unavailable("the startup calls to etcd did not succeed within KAFSCALE_START_PATIENCE_MS")


class Endpoint:
    """The bound port on which this process serves calls. `serving` accepts calls, `ready` reports that it is ready."""

    def __init__(self, server: RpcServer, service: str, address: str, port: int) -> None:
        self._server = server
        self._services: list[str] = []
        self.service = service
        self.address = address
        """The address at which other services reach it."""
        self.port = port
        """The bound port, which may be another one than that of the address."""

    @classmethod
    async def bind(cls, service: str, settings: Loaded, operations: Operations) -> "Endpoint":
        """Bind the configured port. Raises ConfigError if the port or the TLS files cannot be used."""
        network, rpc = settings[NetworkSettings], settings[RpcSettings]
        if rpc.tls_ca_file is not None and rpc.tls_cert_file is None:
            raise ConfigError("KAFSCALE_RPC_TLS_CERT_FILE is required for services if KAFSCALE_RPC_TLS_CA_FILE is set")
        server = RpcServer(limits=rpc.limits(), tls=rpc.tls(), tracer=operations.tracer)
        try:
            port = await server.bind(network.rpc(service).bindable)
        except ConfigError as error:
            raise ConfigError(f"KAFSCALE_RPC_ADDR: {error}") from error
        server.set_serving(serving=False)
        return cls(server, service, network.advertised(service, port), port)

    @asynccontextmanager
    async def serving(self, *services: BoundService) -> AsyncIterator[None]:
        """Serve calls. On exit, accept no more calls and let those in flight finish."""
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(self.serve, stop, *services)
            yield
            stop.set()

    async def serve(
        self, stop: trio.Event, *services: BoundService, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve calls until ``stop`` is set. After that, let those in flight finish."""
        for service in services:
            self._server.add(service)
            # Per service, so that callers that look for a ready peer skip this one until `ready`, but not when its
            # health becomes bad later.
            self._server.set_serving(service=service.name, serving=False)
            self._services.append(service.name)
        await self._server.serve(stop, task_status)

    def ready(self, operations: Operations) -> None:
        """Report the services as serving. From now on the server's health follows the health of ``operations``."""
        for service in self._services:
            self._server.set_serving(service=service, serving=True)
        operations.observe_server(self._server)
        operations.health.start()
        _log.info("serving", rpc=self.address)


def check_callers(settings: Loaded, access: AccessSettings) -> None:
    """Raise ConfigError if ACLs are enforced and separate services could not tell who calls."""
    rpc = settings[RpcSettings]
    if access.acls and (rpc.tls_ca_file is None or rpc.tls_client_auth != REQUIRED):
        raise ConfigError(
            "KAFSCALE_ACLS needs KAFSCALE_RPC_TLS_CA_FILE and KAFSCALE_RPC_TLS_CLIENT_AUTH=required, because services "
            "know each other by their certificates"
        )


@asynccontextmanager
async def registered(
    endpoint: Endpoint, metadata: MetadataStore, settings: Loaded, operations: Operations
) -> AsyncIterator[None]:
    """Register at ``endpoint``, as a service that does not own anything."""
    current: Membership | None = None
    operations.watch_lease(lambda: current)

    async def join() -> Membership:
        nonlocal current
        member = Member(
            format=1,
            run_id=new_run_id(),
            service=endpoint.service,
            address=endpoint.address,
            started_ms=wall_clock_ms(),
            version=kafscale_version(),
        )
        membership = Membership(
            metadata,
            namespace=settings[NamespaceSettings].namespace,
            member=member,
            ttl_seconds=settings[LeaseSettings].lease_ttl_seconds,
        )
        current = membership
        await membership.join()
        return membership

    async with trio.open_nursery() as nursery:
        await start_in_time(nursery, settings, stay_registered, join)
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def indexer_pool(indexers: Members, settings: Loaded, operations: Operations) -> AsyncIterator[IndexerPool]:
    """Open a pool for calls to the live indexers. ``indexers`` must be running."""
    open_channel = _channels(settings, operations)
    async with trio.open_nursery() as nursery:
        pool = IndexerPool(nursery, open_channel)
        pool.update(_addresses(indexers.view))
        operations.health.add("indexers", pool.finding)
        operations.metrics.add(pool_families(lambda: pool))

        async def follow() -> None:
            view = indexers.view
            while True:
                pool.update(_addresses(view))
                view = await indexers.wait_change(view)

        nursery.start_soon(follow)
        try:
            yield pool
        finally:
            nursery.cancel_scope.cancel()
            await pool.aclose()


def connector(
    settings: Loaded, operations: Operations, client: Callable[[Channel], C]
) -> Callable[[LiveMember], AbstractAsyncContextManager[C]]:
    """Return a function that connects to a member of another service, as a context manager."""
    open_channel = _channels(settings, operations)

    @asynccontextmanager
    async def connect(member: LiveMember) -> AsyncIterator[C]:
        async with open_channel(member.address) as channel:
            yield client(channel)

    return connect


def _channels(settings: Loaded, operations: Operations) -> Callable[[str], Channel]:
    """Return a function that opens channels to other services. Their calls are counted in the metrics.

    Raises ConfigError immediately if the TLS files cannot be used.
    """
    rpc = settings[RpcSettings]
    limits, tls = rpc.limits(), rpc.tls()
    if tls is not None:
        channel_credentials(tls)
    counters, traced = operations.calls_made(), operations.tracer is not None
    return lambda address: Channel(address, limits, tls=tls, counters=counters, traced=traced)


def _addresses(view: MembersView) -> dict[str, str]:
    """Return the addresses of the members that are called, by run id."""
    return {live.run_id: live.address for live in view.placed}


def _patience(settings: Loaded) -> float:
    """Return the startup patience in seconds."""
    return settings[NetworkSettings].start_patience_ms / 1000
