"""The product's services as processes of the simulation, wired like in their programs."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast
from unittest import mock

import trio
import trio.testing

from kafscale.config.listeners import Listener
from kafscale.errors import Unavailable
from kafscale.metadata.acls import AclCatalog
from kafscale.metadata.members import LiveMember, Members
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.ownership import OwnershipMap
from kafscale.metadata.quotas import QuotaCatalog
from kafscale.metadata.topics import TopicCatalog
from kafscale.metadata.users import UserCatalog
from kafscale.objects.memory import MemoryObjectStore
from kafscale.objects.retry import Backoff, RetryingObjectStore
from kafscale.rpc.generated import GroupCoordinatorClient, IndexerClient, SegmentStorageClient
from kafscale.security.principals import ANONYMOUS
from kafscale.threads import run_inline
from services.gateway.access.authentication import Authentication, Authenticator
from services.gateway.api import Environment
from services.gateway.clients.connection import ClientConnection, peer_of
from services.gateway.owners.appends import Appended, AppendMessage
from services.gateway.owners.commit_view import CommitEvent
from services.gateway.service import Gateway, GatewayDependencies
from services.gateway.settings import GatewaySettings
from services.indexer.service import IndexerService
from services.indexer.settings import IndexerSettings
from services.storage.dependencies import Dependencies
from services.storage.methods.append import append_at_once
from services.storage.service import StorageService
from services.storage.settings import StorageSettings
from tests.sim.faults import Faults
from tests.sim.process import Process, current_process
from tests.sim.settings import LONGEST_REWRITE_MS
from tests.sim.stores import Network, RemoteMetadata, RemoteObjects
from tests.sim.trace import Trace
from tests.sim.transport import RemoteIndexer, RemoteStorage, StorageProcess

T = TypeVar("T")

NAMESPACE = "sim"
EPOCH_MS = 1_700_000_000_000
_SEGMENTS_PER_PAGE = 5
_SEGMENTS_BETWEEN_SNAPSHOTS = 4
_SMALL_REWRITES = (
    ("services.storage.log.rewriting.MERGED_SEGMENTS", 2),
    ("services.storage.rewriting.rewrites.MERGED_SEGMENTS", 2),
    ("services.storage.log.rewriting._MERGED_AGE_MS", 100),
    ("services.storage.log.rewriting._LEAST_SHARE", 1),
    ("services.storage.log.rewriting.MOST_INPUTS", 6),
    ("services.storage.rewriting.rewrites._STEPS_OF_A_PASS", 2),
    ("services.storage.rewriting.rewrites._LONGEST_MS", LONGEST_REWRITE_MS),
    ("services.storage.rewriting.rewrites._PAUSE_AFTER_FAILURE", 0.2),
    ("services.storage.reading.rewritten.PART_BYTES", 1500),
    ("kafscale.rewritten.index.INTERVAL_BYTES", 600),
)
_BACKOFF = Backoff(deadline=1.5, first=0.03, longest=0.3)


@dataclass(slots=True)
class Cluster:
    """The shared parts of all processes: the stores behind the network, settings, and addresses."""

    faults: Faults
    trace: Trace
    network: Network
    objects: MemoryObjectStore
    metadata: MemoryMetadataStore
    storage_settings: StorageSettings
    gateway_settings: GatewaySettings
    defect: Callable[[str, BaseException], None]
    storages: dict[str, StorageProcess] = field(default_factory=dict)
    gateways: dict[str, "GatewayProcess"] = field(default_factory=dict)
    # Connects a gateway to a coordinator, if groups are simulated.
    connect_coordinator: Callable[[Process, LiveMember], AbstractAsyncContextManager[GroupCoordinatorClient]] | None = (
        None
    )
    # Skipped time in seconds, which all clocks include.
    passed_over: float = 0.0

    def now_ms(self, process: Process | None = None) -> int:
        """Return the true time, or the wall clock of a process."""
        ahead = 0.0 if process is None else process.wall_ahead
        return EPOCH_MS + int((trio.current_time() + self.passed_over + ahead) * 1000)

    def objects_of(self, process: Process) -> RetryingObjectStore:
        return RetryingObjectStore(
            RemoteObjects(self.objects, self.network, process), self.faults.dice.random, _BACKOFF
        )

    def metadata_of(self, process: Process) -> RemoteMetadata:
        return RemoteMetadata(self.metadata, self.network, process)


@asynccontextmanager
async def connect_storage(
    cluster: Cluster, process: Process, member: LiveMember
) -> AsyncIterator[SegmentStorageClient]:
    there = partial(cluster.storages.get, member.address)
    yield SegmentStorageClient(RemoteStorage(process, there, cluster.faults, cluster.trace))


def append_here(
    cluster: Cluster, process: Process, message: AppendMessage, report: Callable[[CommitEvent], bool]
) -> Sequence[Appended] | None:
    """Append in the storage process that has the stream, as in the one-process mode, unless either is cut off.

    Its events are taken at once too, unless the gateway is frozen or cut off by then.
    """
    for there in cluster.storages.values():
        if _are_one(process, there):

            def take(event: CommitEvent, there: StorageProcess = there) -> bool:
                return _are_one(process, there) and process.call_at_once(partial(report, event))

            results = there.call_at_once(partial(append_at_once, there.service, message, take))
            if results is not None:
                return results
    return None


def _are_one(gateway: Process, storage: Process) -> bool:
    """Whether both can act as one process."""
    return all(one.serving and not one.frozen and not one.cut_from_peers for one in (gateway, storage))


async def serve_storage(cluster: Cluster, process: StorageProcess, stop: trio.Event) -> None:
    """Run a storage process until ``stop`` is set and everything is handed over."""
    objects, metadata = cluster.objects_of(process), cluster.metadata_of(process)
    catalog = TopicCatalog(metadata, NAMESPACE)
    members = Members(metadata, NAMESPACE, "storage")
    # A separate process, so that it finishes its work even if the caller has died.
    elsewhere = cluster.objects_of(Process(f"{process.name}.indexer", "", cluster.defect))
    indexer = IndexerService(
        elsewhere, NAMESPACE, IndexerSettings(), run_sync=run_inline, now_ms=partial(cluster.now_ms, process)
    )
    service = StorageService(
        Dependencies(
            settings=cluster.storage_settings,
            namespace=NAMESPACE,
            objects=objects,
            single_tries=objects.inner,
            metadata=metadata,
            catalog=catalog,
            members=members,
            indexer=IndexerClient(RemoteIndexer(indexer, cluster.faults, cluster.network)),
            now_ms=partial(cluster.now_ms, process),
            run_sync=run_inline,
            address=process.address,
            connect=partial(connect_storage, cluster, process),
            lease_clock=process.lease_clock,
        )
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(catalog.run)
        await nursery.start(members.run)
        ended = trio.Event()

        async def serve(task_status: trio.TaskStatus[None]) -> None:
            await service.run(stop, task_status=task_status)
            ended.set()

        process.service = service
        process.open(nursery)
        await nursery.start(serve)
        await ended.wait()
        nursery.cancel_scope.cancel()


class GatewayProcess(Process):
    """A process with a gateway. Clients use `connect`."""

    appends_at_once: bool = False
    acceptor: "_Acceptor | None" = None
    catalog: TopicCatalog | None = None

    def knows(self, topic_id: bytes) -> bool:
        """Return whether the gateway resolves a name to this topic."""
        return self.catalog is not None and self.catalog.view.live_by_id(topic_id) is not None

    async def connect(self) -> trio.abc.Stream:
        """Return the client's end of a new connection. Raise Unavailable."""
        if self.acceptor is None or not self.serving:
            raise Unavailable("connection refused")
        client, server = trio.testing.memory_stream_pair()
        acceptor = self.acceptor
        self.spawn(lambda: acceptor.serve(_Stream(server)))
        return client


class _Stream:
    """A memory stream with the socket methods that a gateway uses."""

    def __init__(self, stream: "trio.StapledStream[Any, Any]") -> None:
        self._stream = stream
        self.recv = stream.receive_some
        self.aclose = stream.aclose
        self.socket = self

    def getpeername(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    def setsockopt(self, *_: int) -> None:
        """Do nothing, because a memory stream has no kernel."""

    async def sendmsg(self, pieces: list[Any]) -> int:
        await self._stream.send_all(b"".join(pieces))
        return sum(map(len, pieces))

    async def __aenter__(self) -> "_Stream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()


class _Acceptor:
    """Replaces `services.gateway.clients.listener.Acceptor`. Connections are memory streams."""

    def __init__(self, process: GatewayProcess, listeners: tuple[Listener, ...]) -> None:
        self._process = process
        self._listeners = listeners
        self._environment: Environment | None = None
        self._connections: dict[ClientConnection, None] = {}

    @property
    def connections(self) -> int:
        return len(self._connections)

    def close(self) -> None:
        """Do nothing, because no socket is bound."""

    async def bind(self) -> tuple[Listener, ...]:
        return self._listeners

    async def run(self, stop: trio.Event, environment: Environment) -> None:
        self._environment = environment
        self._process.acceptor = self
        await stop.wait()
        environment.stopping = True
        for connection in list(self._connections):
            connection.leave()

    async def serve(self, stream: _Stream) -> None:
        if self._environment is None:
            return
        socket = cast(trio.SocketStream, stream)
        peer, host = peer_of(socket)
        connection = ClientConnection(
            socket,
            Authentication(ANONYMOUS),
            self._environment,
            self._listeners[0],
            peer=peer,
            host=host,
            on_authenticated=lambda: None,
        )
        self._connections[connection] = None
        try:
            await connection.run()
        finally:
            del self._connections[connection]


async def serve_gateway(cluster: Cluster, process: GatewayProcess, stop: trio.Event) -> None:
    """Run a gateway process."""
    metadata = cluster.metadata_of(process)
    process.catalog = catalog = TopicCatalog(metadata, NAMESPACE)
    storages, gateways = Members(metadata, NAMESPACE, "storage"), Members(metadata, NAMESPACE, "gateway")
    ownership = OwnershipMap(metadata, NAMESPACE)

    coordinators = Members(metadata, NAMESPACE, "coordinator")
    followers = [catalog.run, storages.run, gateways.run, ownership.run]
    if cluster.connect_coordinator is not None:
        followers.append(coordinators.run)

    gateway = Gateway(
        GatewayDependencies(
            settings=replace(cluster.gateway_settings, broker_addr=process.address),
            namespace=NAMESPACE,
            metadata=metadata,
            catalog=catalog,
            # Not watched, because there are none.
            users=UserCatalog(metadata, NAMESPACE),
            acls=AclCatalog(metadata, NAMESPACE, cluster.gateway_settings.without_acls()),
            audit=cluster.gateway_settings.audit_log(),
            quotas=QuotaCatalog(metadata, NAMESPACE),
            storages=storages,
            gateways=gateways,
            coordinators=coordinators,
            ownership=ownership,
            connect=partial(connect_storage, cluster, process),
            append_at_once=partial(append_here, cluster, process) if process.appends_at_once else None,
            connect_coordinator=partial(cluster.connect_coordinator or _no_coordinator, process),
            lease_ttl_seconds=cluster.storage_settings.lease_ttl_seconds,
            address=process.address,
            now_ms=partial(cluster.now_ms, process),
            lease_clock=process.lease_clock,
            boot_clock=process.lease_clock,
        )
    )
    async with trio.open_nursery() as nursery:
        process.open(nursery)
        for follower in followers:
            await nursery.start(follower)
        await gateway.run(stop)
        nursery.cancel_scope.cancel()


def _no_coordinator(_: Process, member: LiveMember) -> AbstractAsyncContextManager[GroupCoordinatorClient]:
    """Raise, because without simulated groups there are no coordinators."""
    raise AssertionError(member.address)


@contextmanager
def small_logs() -> Iterator[None]:
    """Within the block, catalog pages and producer snapshots are written after few segments, intakes are tidied after
    few objects, and logs are rewritten soon, in small objects with small parts."""
    with ExitStack() as stack:
        for module in ("kafscale.catalog.page", "services.storage.reading.catalogs", "services.storage.log.pages"):
            stack.enter_context(mock.patch(f"{module}.SEGMENTS_PER_PAGE", _SEGMENTS_PER_PAGE))
        stack.enter_context(
            mock.patch("services.storage.owning.snapshots.SEGMENTS_BETWEEN", _SEGMENTS_BETWEEN_SNAPSHOTS)
        )
        for name, small in (("_CARRIED_AFTER", 1.5), ("_TIDY_SECONDS", 0.4), ("_DELETED_AT_A_TIME", 3)):
            stack.enter_context(mock.patch(f"services.storage.intake.writer.{name}", small))
        for name, small in _SMALL_REWRITES:
            stack.enter_context(mock.patch(name, small))
        yield


def in_memory_connections() -> AbstractContextManager[object]:
    """Within the block, gateways of simulated processes listen in memory."""

    def make(listeners: tuple[Listener, ...], _: GatewaySettings, __: Authenticator) -> _Acceptor:
        process = current_process.get()
        assert isinstance(process, GatewayProcess)
        return _Acceptor(process, listeners)

    return mock.patch("services.gateway.service.Acceptor", make)
