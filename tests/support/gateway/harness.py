"""A gateway on a loopback port with fake storage, and clients that send it bytes."""

import struct
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import trio
from kio.index import load_request_schema, load_response_schema
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_reader
from kio.static.primitive import i16, i32

from kafscale import paths
from kafscale.config.listeners import Listener
from kafscale.kafka import codec
from kafscale.metadata.acls import AclCatalog
from kafscale.metadata.interface import Delete, Put
from kafscale.metadata.members import LiveMember, Members, MembersView
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.ownership import OwnershipMap
from kafscale.metadata.quotas import QuotaCatalog
from kafscale.metadata.topic_values import TopicInfo
from kafscale.metadata.topics import TopicCatalog
from kafscale.metadata.users import UserCatalog
from kafscale.process.tokens import open_verifier
from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch
from kafscale.v1.metadata_pb2 import EpochHistory, Member
from services.gateway.service import Gateway, GatewayDependencies
from services.gateway.settings import GatewaySettings
from tests.support.gateway.fake_coordinator import FakeCoordinator
from tests.support.gateway.fake_storage import FakeStorage, Partition
from tests.support.strategies.kio_types import written

NOW_MS = 1_700_000_000_000
LISTENER = "127.0.0.1:0"
NAMESPACE = "test"
LEASE_TTL_SECONDS = 10


class Client:
    """One client connection. ``client_id`` is sent with each request."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.client_id: str | None = "test"
        self._correlation = 0
        self._buffer = bytearray()
        self._pending: dict[int, tuple[int, int]] = {}
        self.last_reply = b""

    async def send(self, api_key: int, version: int, body: bytes) -> int:
        """Send a request and return its correlation id."""
        self._correlation += 1
        schema = HeaderV2 if codec.is_flexible(api_key, version) else HeaderV1
        header = written(
            schema(
                request_api_key=i16(api_key),
                request_api_version=i16(version),
                correlation_id=i32(self._correlation),
                client_id=self.client_id,
            )
        )
        self._pending[self._correlation] = (api_key, version)
        await self.send_frame(header + body)
        return self._correlation

    async def send_frame(self, frame: bytes) -> None:
        await self.stream.send_all(struct.pack(">i", len(frame)) + frame)

    def expect(self, correlation: int, api_key: int, version: int) -> None:
        """Register a request that was sent without `send`."""
        self._correlation = correlation
        self._pending[correlation] = (api_key, version)

    async def receive(self) -> tuple[int, bytes]:
        """Return correlation id and body of the next reply. Raise EOFError if the connection was closed."""
        frame = await self.receive_frame()
        (correlation,) = struct.unpack_from(">i", frame)
        api_key, version = self._pending.pop(correlation)
        tagged = codec.is_flexible(api_key, version) and api_key != 18
        if tagged:
            assert frame[4] == 0
        self.last_reply = frame[5 if tagged else 4 :]
        return correlation, self.last_reply

    async def receive_frame(self) -> bytes:
        with trio.fail_after(5):
            while len(self._buffer) < 4 or len(self._buffer) < 4 + struct.unpack_from(">i", self._buffer)[0]:
                data = await self.stream.receive_some(65536)
                if not data:
                    raise EOFError
                self._buffer += data
        (size,) = struct.unpack_from(">i", self._buffer)
        frame = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        return frame

    async def call(self, api_key: int, version: int, body: bytes) -> bytes:
        correlation = await self.send(api_key, version, body)
        answered, reply = await self.receive()
        assert answered == correlation
        return reply

    async def ask(self, api_key: int, version: int, /, **values: Any) -> Any:
        """Send kio's request of this version and return kio's response. The response must have no trailing bytes."""
        return read_response(api_key, version, await self.call(api_key, version, request(api_key, version, **values)))

    async def closed(self) -> bool:
        """Return whether the gateway closes the connection within 5 seconds."""
        try:
            with trio.move_on_after(5):
                while await self.stream.receive_some(65536):
                    pass
                return True
        except trio.BrokenResourceError:
            return True
        return False


def request(api_key: int, version: int, /, **values: Any) -> bytes:
    schema: Any = load_request_schema(api_key, version)
    return written(schema(**values))


def read_response(api_key: int, version: int, body: bytes) -> Any:
    entity: Any
    entity, end = entity_reader(load_response_schema(api_key, version))(body, 0)
    assert end == len(body), "the response has trailing bytes"
    return entity


class Cluster:
    """A metadata store with fake storage instances, whose ownership tests decide, and fake coordinators."""

    def __init__(self) -> None:
        self.metadata = MemoryMetadataStore()
        self.storages: dict[str, FakeStorage] = {}
        self.coordinators: dict[str, FakeCoordinator] = {}
        # The total time for which the gateway was suspended.
        self.suspended_seconds = 0.0
        self.wall_ahead_seconds = 0.0
        self.log_requests = False

    async def add(
        self, run_id: str, storage: FakeStorage, *, address: str = "", leaving: bool = False, state_format: int = 0
    ) -> None:
        """Register a storage instance, or update its registration."""
        self.storages[run_id] = storage
        member = Member(
            format=1,
            run_id=run_id,
            service="storage",
            address=address or f"{run_id}:9095",
            leaving=leaving,
            state_format=state_format,
        )
        await self.metadata.txn((), [Put(paths.member_key(NAMESPACE, "storage", run_id), member.SerializeToString())])

    async def remove(self, run_id: str) -> None:
        """Let an instance's lease expire."""
        service = "coordinator" if run_id in self.coordinators else "storage"
        await self.metadata.txn((), [Delete(paths.member_key(NAMESPACE, service, run_id))])

    async def add_coordinator(self, run_id: str, coordinator: FakeCoordinator) -> None:
        """Register a coordinator, and give each coordinator its assigned shards."""
        self.coordinators[run_id] = coordinator
        members = [LiveMember(Member(run_id=name, address=f"{name}:9096"), 1) for name in self.coordinators]
        view = MembersView.of(1, members)
        assigned = {shard: view.shard_owner(shard) for shard in range(paths.GROUP_SHARDS)}
        for name, each in self.coordinators.items():
            each.shards = [shard for shard, owner in assigned.items() if owner is not None and owner.run_id == name]
        member = Member(format=1, run_id=run_id, service="coordinator", address=f"{run_id}:9096")
        key = paths.member_key(NAMESPACE, "coordinator", run_id)
        await self.metadata.txn((), [Put(key, member.SerializeToString())])

    async def own(self, topic: TopicInfo, run_id: str, *, partition: int = 0, epoch: int = 1) -> None:
        """Store an epoch history in which an instance owns a partition."""
        history = EpochHistory(
            format=1, topic_id=topic.id, owner=run_id, entries=[EpochHistory.Entry(epoch=epoch, first_offset=0)]
        )
        key = paths.epoch_history_key(NAMESPACE, topic.name, partition)
        await self.metadata.txn((), [Put(key, history.SerializeToString())])


@dataclass
class Harness:
    """A running gateway and its surroundings. ``storage`` is the first storage instance that was added."""

    storage: FakeStorage
    catalog: TopicCatalog
    cluster: Cluster
    parts: GatewayDependencies
    gateway: Gateway
    listeners: tuple[Listener, ...]
    nursery: trio.Nursery
    stop: trio.Event
    stopped: trio.Event
    clients: list[Client] = field(default_factory=list)

    @property
    def storages(self) -> Members:
        return self.parts.storages

    @property
    def gateways(self) -> Members:
        return self.parts.gateways

    @property
    def coordinator(self) -> FakeCoordinator:
        """The first coordinator that was added."""
        return next(iter(self.cluster.coordinators.values()))

    @property
    def metadata(self) -> MemoryMetadataStore:
        return self.cluster.metadata

    async def run_beside(self, gateway: Gateway) -> None:
        """Run another gateway on the same watches, for a gateway that is expected to fail at startup."""
        await gateway.run(trio.Event())

    async def connect(self, listener: int = 0) -> Client:
        stream = await trio.open_tcp_stream("127.0.0.1", self.listeners[listener].port)
        client = Client(stream)
        self.clients.append(client)
        return client

    async def topic(self, name: str = "t", partitions: int = 1, **configs: str) -> TopicInfo:
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        return await self.catalog.create(
            name, partitions, settings, now_ms=0, topic_id=name.encode().ljust(16, b"-")[:16]
        )

    def partition(self, topic: TopicInfo, index: int = 0) -> Partition:
        return self.storage.partitions[topic.id, index]


def parts_of(cluster: Cluster, **settings: Any) -> GatewayDependencies:
    """Build the parts of a gateway of ``cluster``. It listens on any free port by default."""
    metadata = cluster.metadata

    def connected(member: LiveMember) -> AbstractAsyncContextManager[FakeStorage]:
        return nullcontext(cluster.storages[member.run_id])

    def connected_coordinator(member: LiveMember) -> AbstractAsyncContextManager[FakeCoordinator]:
        return nullcontext(cluster.coordinators[member.run_id])

    made = GatewaySettings(**({} if "listeners" in settings else {"broker_addr": LISTENER}) | settings)
    return GatewayDependencies(
        settings=made,
        namespace=NAMESPACE,
        metadata=metadata,
        catalog=TopicCatalog(metadata, NAMESPACE),
        users=UserCatalog(metadata, NAMESPACE),
        acls=AclCatalog(metadata, NAMESPACE, made.without_acls()),
        audit=made.audit_log(),
        quotas=QuotaCatalog(metadata, NAMESPACE),
        storages=Members(metadata, NAMESPACE, "storage"),
        gateways=Members(metadata, NAMESPACE, "gateway"),
        coordinators=Members(metadata, NAMESPACE, "coordinator"),
        ownership=OwnershipMap(metadata, NAMESPACE),
        connect=connected,
        connect_coordinator=connected_coordinator,
        lease_ttl_seconds=LEASE_TTL_SECONDS,
        now_ms=lambda: NOW_MS,
        lease_clock=lambda: cluster.suspended_seconds + cluster.wall_ahead_seconds,
        boot_clock=lambda: cluster.suspended_seconds,
        log_requests=cluster.log_requests,
    )


@asynccontextmanager
async def running_gateway(
    storage: FakeStorage | None = None, *, cluster: Cluster | None = None, **settings: Any
) -> AsyncIterator[Harness]:
    """Run a gateway of ``cluster``, or of a new one with ``storage`` as its only instance and one coordinator."""
    if cluster is None:
        cluster = Cluster()
        await cluster.add("storage", storage or FakeStorage())
        await cluster.add_coordinator("coordinator", FakeCoordinator())
    parts = parts_of(cluster, **settings)
    tokens = open_verifier(parts.settings, wanted=parts.settings.uses_tokens, now=lambda: parts.now_ms() / 1000)
    stop, stopped = trio.Event(), trio.Event()

    async def run(task_status: trio.TaskStatus[tuple[Listener, ...]]) -> None:
        await gateway.run(stop, task_status=task_status)
        stopped.set()

    async with tokens as verifier, trio.open_nursery() as nursery:
        parts = replace(parts, tokens=verifier)
        gateway = Gateway(parts)
        for watched in (
            parts.catalog,
            parts.users,
            parts.acls,
            parts.quotas,
            parts.storages,
            parts.gateways,
            parts.coordinators,
            parts.ownership,
        ):
            await nursery.start(watched.run)
        listeners = await nursery.start(run)
        first = next(iter(cluster.storages.values()))
        harness = Harness(first, parts.catalog, cluster, parts, gateway, listeners, nursery, stop, stopped)
        if first.auto_ready:
            await first.wait_until(lambda: bool(first.opened))
        try:
            yield harness
        finally:
            for client in harness.clients:
                await trio.aclose_forcefully(client.stream)
            nursery.cancel_scope.cancel()


def batch(*values: bytes | None, codec_: Codec = Codec.NONE, timestamp: int = NOW_MS, **fields: int) -> bytes:
    """Build one magic-2 batch as a producer sends it."""
    records = [Record(offset, timestamp, None, value) for offset, value in enumerate(values or (b"v",))]
    return build_batch(records, base_offset=0, codec=codec_, **fields)
