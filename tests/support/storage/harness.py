"""The storage service on in-memory stores and Trio's virtual clock, and a caller that follows its commit stream."""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import trio
from google.protobuf.message import Message

from kafscale import paths
from kafscale.errors import KafscaleError, NotSent, Unavailable
from kafscale.metadata.interface import MetadataStore, Put, Unchanged
from kafscale.metadata.members import LiveMember, Members
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.topic_values import INTAKE_STATE_FORMAT, REWRITE_STATE_FORMAT, ClusterInfo
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.interface import ObjectStore
from kafscale.objects.memory import MemoryObjectStore
from kafscale.records.batch import walk
from kafscale.records.record import Record, build_batch, read_records
from kafscale.rpc.direct import Direct
from kafscale.rpc.generated import IndexerClient, SegmentStorageClient
from kafscale.rpc.interface import MessageStream
from kafscale.rpc.methods import Method
from kafscale.rpc.services import bind_indexer, bind_storage
from kafscale.tracing import Tracer
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from kafscale.v1.storage_pb2 import (
    AppendReply,
    AppendRequest,
    Bound,
    CommitsEvent,
    CommitsRequest,
    Committed,
    DeleteRecordsRequest,
    EpochEnd,
    EpochEndsRequest,
    EpochQuery,
    FetchRequest,
    FlushReply,
    FlushRequest,
    ListOffsetsRequest,
    PartitionAppend,
    PartitionAppended,
    PartitionFetch,
    PartitionFetched,
    PartitionOffset,
    PartitionPlan,
    PartitionQuery,
    PartitionScan,
    PartitionTruncated,
    PartitionTruncation,
    PlanScanRequest,
    ScanPiece,
    ScanRequest,
)
from services.indexer.service import IndexerService
from services.indexer.settings import IndexerSettings
from services.storage.counters import StorageCounters
from services.storage.dependencies import Dependencies
from services.storage.intake.recovery import IntakeRecovery
from services.storage.intake.register import open_register
from services.storage.owning.takeover import TakenOver, take_over
from services.storage.service import StorageService
from services.storage.settings import StorageSettings

T = TypeVar("T")
Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
NAMESPACE = "test"
TIMEOUT = 1000.0


async def inline(function: Callable[[], T]) -> T:
    return function()


class NoIndexer:
    """An indexer that is never available."""

    async def call(self, method: Method[Q, A], request: Q, *, timeout: float) -> A:
        raise NotSent("no indexer")

    def stream(self, method: Method[Q, A], request: Q) -> AbstractAsyncContextManager[MessageStream[A]]:
        raise Unavailable("no indexer")


def batch(*values: bytes, timestamp: int = 1_000) -> bytes:
    """Build one batch with these values, as a producer sends it."""
    return build_batch([Record(i, timestamp, None, value, ()) for i, value in enumerate(values)], base_offset=0)


def state_key(ref: PartitionRef) -> str:
    return paths.partition_state_key(NAMESPACE, ref.topic, ref.partition)


def siblings(ref: PartitionRef, count: int) -> list[PartitionRef]:
    """Return the first ``count`` partitions of the topic of ``ref``."""
    return [PartitionRef(topic=ref.topic, topic_id=ref.topic_id, partition=index) for index in range(count)]


def values(records: bytes) -> list[bytes | None]:
    """Return all values in fetched batches."""
    return [
        record.value
        for position, header in walk(records)
        for record in read_records(records[position : position + header.size], max_bytes=1 << 24)
    ]


@dataclass
class Caller:
    """A minimal gateway: sends numbered appends and collects the events of one commit stream."""

    storage: SegmentStorageClient
    service: StorageService
    stream_id: str
    # The run ids of its service so far, oldest first.
    runs: list[str] = field(default_factory=list)
    sequence: int = 0
    news: list[Committed] = field(default_factory=list)
    moved: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)

    @property
    def run_id(self) -> str:
        return self.runs[-1]

    async def follow(self, stream: MessageStream[CommitsEvent]) -> None:
        while True:
            try:
                event = await stream.receive()
            except Unavailable:
                self.ended.set()
                return
            self.news += event.committed
            self.moved.set()
            self.moved = trio.Event()

    async def send(self, *appends: PartitionAppend, seen: int | None = None, wait_ms: int = 0) -> AppendReply:
        self.sequence += 1
        return await self.storage.append(
            AppendRequest(
                stream_id=self.stream_id,
                sequence=self.sequence,
                seen=self.sequence - 1 if seen is None else seen,
                appends=appends,
                wait_ms=wait_ms,
            ),
            timeout=TIMEOUT,
        )

    async def append(self, ref: PartitionRef, records: bytes, *, unacknowledged: bool = False) -> PartitionAppended:
        reply = await self.send(PartitionAppend(partition=ref, records=records, unacknowledged=unacknowledged))
        return reply.results[0]

    async def durable(self, appended: PartitionAppended, ref: PartitionRef | None = None) -> bool:
        """Wait as a gateway does. Return True if the append is committed, False if its epoch is lost.

        ``ref`` is needed if appends to several partitions are in flight.
        """
        with trio.fail_after(TIMEOUT):
            while True:
                for news in self.news:
                    if ref is not None and news.partition != ref:
                        continue
                    if news.epoch == appended.epoch and news.high_watermark >= appended.end_offset:
                        return True
                    if news.epoch == appended.epoch and news.lost:
                        return False
                await self.moved.wait()

    async def fetch(
        self, ref: PartitionRef, offset: int, *, max_bytes: int = 1 << 20, scan: bool = False
    ) -> PartitionFetched:
        request = FetchRequest(
            stream_id=self.stream_id,
            max_bytes=max_bytes,
            scan=scan,
            fetches=[PartitionFetch(partition=ref, offset=offset, max_bytes=max_bytes, leader_epoch=-1)],
        )
        return (await self.storage.fetch(request, timeout=TIMEOUT)).results[0]

    async def read_all(self, ref: PartitionRef, offset: int = 0, *, scan: bool = False) -> list[bytes | None]:
        """Return every value from ``offset`` to the high watermark."""
        found: list[bytes | None] = []
        while True:
            fetched = await self.fetch(ref, offset, scan=scan)
            assert fetched.status == Status.OK, fetched.detail
            if not fetched.records:
                return found
            found += values(fetched.records)
            offset = list(walk(fetched.records))[-1][1].next_offset

    async def plan(
        self,
        *refs: PartitionRef,
        start: Bound | None = None,
        end: Bound | None = None,
        **options: Any,
    ) -> list[PartitionPlan]:
        """Plan a scan, by default from the earliest to the latest offset."""
        start, end = start or Bound(earliest=True), end or Bound(latest=True)
        scans = [PartitionScan(partition=ref, start=start, end=end) for ref in refs]
        return list((await self.storage.plan_scan(PlanScanRequest(scans=scans, **options), timeout=TIMEOUT)).plans)

    async def scan(self, ref: PartitionRef, start: int, end: int, **options: Any) -> list[ScanPiece]:
        """Return all pieces of the stream."""
        pieces = []
        async with self.storage.scan(ScanRequest(partition=ref, start=start, end=end, **options)) as stream:
            with trio.fail_after(TIMEOUT):
                while True:
                    try:
                        pieces.append(await stream.receive())
                    except Unavailable as error:
                        if str(error) != "the stream ended":
                            raise
                        return pieces

    async def offset_at(self, ref: PartitionRef, timestamp: int) -> PartitionOffset:
        query = PartitionQuery(partition=ref, timestamp=timestamp, leader_epoch=-1)
        return (await self.storage.list_offsets(ListOffsetsRequest(queries=[query]), timeout=TIMEOUT)).results[0]

    async def delete_records(self, ref: PartitionRef, offset: int) -> PartitionTruncated:
        request = DeleteRecordsRequest(partitions=[PartitionTruncation(partition=ref, offset=offset)])
        return (await self.storage.delete_records(request, timeout=TIMEOUT)).results[0]

    async def epoch_end(self, ref: PartitionRef, epoch: int, leader_epoch: int = -1) -> EpochEnd:
        query = EpochQuery(partition=ref, epoch=epoch, leader_epoch=leader_epoch)
        return (await self.storage.epoch_ends(EpochEndsRequest(queries=[query]), timeout=TIMEOUT)).results[0]

    async def flush(self, *refs: PartitionRef) -> FlushReply:
        return await self.storage.flush(FlushRequest(partitions=refs), timeout=TIMEOUT)

    async def fill(self, ref: PartitionRef, segments: int, batches: int = 4) -> None:
        """Write and commit segments, each with ``batches`` batches of 50 records."""
        for s in range(segments):
            for b in range(batches):
                appended = await self.append(ref, batch(*(b"%d.%d.%d" % (s, b, i) for i in range(50))))
            await self.flush(ref)
            assert await self.durable(appended)
        # Indexes follow the commit.
        await trio.sleep(1)


class World:
    """Stores that outlive the services started on them. Services share ``counters``.

    ``indexing`` adds an indexer. ``intake``: the cluster has state format 2, so records become durable in intakes.
    ``rewrites``: it has state format 3, so logs are rewritten.
    """

    def __init__(
        self,
        settings: StorageSettings | None = None,
        *,
        settle_seconds: float = 0.0,
        indexing: bool = False,
        intake: bool = True,
        rewrites: bool = False,
    ) -> None:
        self.objects = MemoryObjectStore(settle_seconds=settle_seconds)
        self.metadata = MemoryMetadataStore()
        self.indexer = IndexerClient(NoIndexer())
        if indexing:
            indexer = IndexerService(self.objects, NAMESPACE, IndexerSettings(), run_sync=inline)
            self.indexer = IndexerClient(Direct(bind_indexer(indexer)))
        self.settings = settings or StorageSettings(compression_codec="producer", retention_ms=-1)
        self.counters = StorageCounters()
        self.tracer: Tracer | None = None
        self.runs = 0
        self.run_prefix = "run-"
        self._state_format = REWRITE_STATE_FORMAT if rewrites else INTAKE_STATE_FORMAT if intake else 1
        self._services: dict[str, StorageService] = {}
        self.now_ms = 1_700_000_000_000

    @asynccontextmanager
    async def service(
        self,
        *,
        graceful: bool = True,
        address: str = "storage-0:9095",
        metadata: MetadataStore | None = None,
        objects: ObjectStore | None = None,
        **changes: Any,
    ) -> AsyncIterator[tuple[Caller, TopicCatalog]]:
        """Run a service, and stop it gracefully or as a kill would. It can have its own stores."""
        metadata = metadata or self.metadata
        if not self.runs:
            cluster = ClusterInfo(secrets.token_urlsafe(16), 0, state_format=self._state_format)
            key = paths.cluster_key(NAMESPACE)
            await self.metadata.txn([Unchanged(key, 0)], [Put(key, cluster.value())])
        catalog = TopicCatalog(metadata, NAMESPACE)
        members = Members(metadata, NAMESPACE, "storage")
        deps = Dependencies(
            settings=replace(self.settings, **changes).resolved(directory=False),
            namespace=NAMESPACE,
            objects=objects or self.objects,
            metadata=metadata,
            catalog=catalog,
            members=members,
            indexer=self.indexer,
            now_ms=lambda: self.now_ms,
            run_sync=inline,
            address=address,
            connect=self._connect,
            lease_clock=trio.current_time,
            counters=self.counters,
            tracer=self.tracer,
        )
        runs: list[str] = []

        def make_run_id() -> str:
            self.runs += 1
            runs.append(f"{self.run_prefix}{self.runs}")
            return runs[-1]

        service = StorageService(deps, make_run_id=make_run_id)
        self._services[address] = service
        stop, stopped = trio.Event(), trio.Event()

        async def serve(task_status: trio.TaskStatus[None]) -> None:
            await service.run(stop, task_status=task_status)
            stopped.set()

        async with trio.open_nursery() as nursery:
            await nursery.start(catalog.run)
            await nursery.start(members.run)
            await nursery.start(serve)
            storage = SegmentStorageClient(Direct(bind_storage(service)))
            caller = Caller(storage, service, f"stream-{self.runs}", runs)
            async with storage.commits(CommitsRequest(stream_id=caller.stream_id)) as stream:
                assert (await stream.receive()).ready
                nursery.start_soon(caller.follow, stream)
                yield caller, catalog
                if graceful:
                    stop.set()
                    await stopped.wait()
                nursery.cancel_scope.cancel()

    def _connect(self, member: LiveMember) -> AbstractAsyncContextManager[SegmentStorageClient]:
        return nullcontext(SegmentStorageClient(Direct(bind_storage(self._services[member.address]))))

    async def topic(
        self,
        catalog: TopicCatalog,
        name: str = "orders",
        *,
        partitions: int = 3,
        configs: Mapping[str, str] | None = None,
    ) -> PartitionRef:
        """Create a topic and return its first partition."""
        self.now_ms += 1
        made = await catalog.create(
            name, partitions, configs or {}, now_ms=self.now_ms, topic_id=self.now_ms.to_bytes(16, "big")
        )
        return PartitionRef(topic=name, topic_id=made.id, partition=0)

    async def state(self, ref: PartitionRef) -> PartitionState:
        """Return the stored state of a partition; an empty one if it never had an owner."""
        item = await self.metadata.get(state_key(ref))
        return PartitionState.FromString(item.value) if item else PartitionState()

    async def seize(self, ref: PartitionRef) -> None:
        """Make another run the partition's owner in the next epoch."""
        key = state_key(ref)
        item = await self.metadata.get(key)
        assert item is not None
        state = PartitionState.FromString(item.value)
        state.owner, state.epoch = "another", state.epoch + 1
        done = await self.metadata.txn([Unchanged(key, item.mod_revision)], [Put(key, state.SerializeToString())])
        assert done.succeeded

    async def take_over(
        self, run_id: str, ref: PartitionRef, *, fencing: Callable[[], None] = lambda: None
    ) -> TakenOver:
        """Take a partition over as a run without a service. Raises NotAvailable, Unavailable."""

        async def quiet(key: tuple[bytes, int]) -> None:
            await trio.lowlevel.checkpoint()

        register = await open_register(self.metadata, NAMESPACE, run_id)
        outcome: TakenOver | KafscaleError
        async with trio.open_nursery() as nursery:
            intakes = IntakeRecovery(
                self.objects,
                self.metadata,
                nursery=nursery,
                namespace=NAMESPACE,
                now_ms=lambda: self.now_ms,
                counters=self.counters,
                quiet=quiet,
            )
            try:
                outcome = await take_over(
                    self.metadata,
                    self.objects,
                    namespace=NAMESPACE,
                    register=register,
                    intakes=intakes,
                    ref=ref,
                    fencing=fencing,
                )
            except KafscaleError as error:
                outcome = error
        if isinstance(outcome, KafscaleError):
            raise outcome
        return outcome
