"""Calls between processes: the direct transport over a network that delays, loses answers and keeps calls under way."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from kafscale.errors import KafscaleError, Unavailable
from kafscale.rpc.direct import DirectIndexer, DirectStorage
from kafscale.rpc.interface import MessageStream
from kafscale.v1.common_pb2 import Status
from kafscale.v1.indexer_pb2 import (
    BuildReply,
    BuildRequest,
    LocateOffsetRequest,
    LocateReply,
    LocateTimestampRequest,
    RebuildReply,
    SegmentRef,
    VerifyReply,
    WriteCatalogPageReply,
    WriteCatalogPageRequest,
)
from kafscale.v1.storage_pb2 import (
    AppendReply,
    AppendRequest,
    CommitsEvent,
    CommitSinkReply,
    CommitSinkRequest,
    CommitsRequest,
    DeleteRecordsReply,
    DeleteRecordsRequest,
    DiscardStagesReply,
    DiscardStagesRequest,
    EpochEndsReply,
    EpochEndsRequest,
    FetchReply,
    FetchRequest,
    FlushReply,
    FlushRequest,
    ListOffsetsReply,
    ListOffsetsRequest,
    LogSizesReply,
    LogSizesRequest,
    PlanScanReply,
    PlanScanRequest,
    ProducersReply,
    ProducersRequest,
    ScanPiece,
    ScanRequest,
    SegmentsReply,
    SegmentsRequest,
    StageReply,
    StageRequest,
)
from services.indexer.service import IndexerService
from services.storage.service import StorageService
from tests.sim.faults import Faults
from tests.sim.process import Process
from tests.sim.trace import Trace

T = TypeVar("T")
_FOREVER = 1000.0
_BUFFERED = 16


class StorageProcess(Process):
    """A process with a storage service in it, once that has started."""

    service: StorageService


class RemoteStorage:
    """`SegmentStorageClient` of the storage process ``there``, in the process ``here``."""

    def __init__(self, here: Process, there: Callable[[], StorageProcess | None], faults: Faults, trace: Trace) -> None:
        self._here = here
        self._there = there
        self._faults = faults
        self._trace = trace

    async def append(self, request: AppendRequest, *, timeout: float) -> AppendReply:
        return await self._call("append", lambda peer: peer.append(request, timeout=_FOREVER), timeout)

    async def fetch(self, request: FetchRequest, *, timeout: float) -> FetchReply:
        return await self._call("fetch", lambda peer: peer.fetch(request, timeout=_FOREVER), timeout)

    async def list_offsets(self, request: ListOffsetsRequest, *, timeout: float) -> ListOffsetsReply:
        return await self._call("list_offsets", lambda peer: peer.list_offsets(request, timeout=_FOREVER), timeout)

    async def flush(self, request: FlushRequest, *, timeout: float) -> FlushReply:
        return await self._call("flush", lambda peer: peer.flush(request, timeout=_FOREVER), timeout)

    async def delete_records(self, request: DeleteRecordsRequest, *, timeout: float) -> DeleteRecordsReply:
        return await self._call("delete_records", lambda peer: peer.delete_records(request, timeout=_FOREVER), timeout)

    async def epoch_ends(self, request: EpochEndsRequest, *, timeout: float) -> EpochEndsReply:
        return await self._call("epoch_ends", lambda peer: peer.epoch_ends(request, timeout=_FOREVER), timeout)

    async def producers(self, request: ProducersRequest, *, timeout: float) -> ProducersReply:
        return await self._call("producers", lambda peer: peer.producers(request, timeout=_FOREVER), timeout)

    async def log_sizes(self, request: LogSizesRequest, *, timeout: float) -> LogSizesReply:
        return await self._call("log_sizes", lambda peer: peer.log_sizes(request, timeout=_FOREVER), timeout)

    async def segments(self, request: SegmentsRequest, *, timeout: float) -> SegmentsReply:
        return await self._call("segments", lambda peer: peer.segments(request, timeout=_FOREVER), timeout)

    async def stage(self, request: StageRequest, *, timeout: float) -> StageReply:
        return await self._call("stage", lambda peer: peer.stage(request, timeout=_FOREVER), timeout)

    async def commit_sink(self, request: CommitSinkRequest, *, timeout: float) -> CommitSinkReply:
        return await self._call("commit_sink", lambda peer: peer.commit_sink(request, timeout=_FOREVER), timeout)

    async def discard_stages(self, request: DiscardStagesRequest, *, timeout: float) -> DiscardStagesReply:
        return await self._call("discard_stages", lambda peer: peer.discard_stages(request, timeout=_FOREVER), timeout)

    async def plan_scan(self, request: PlanScanRequest, *, timeout: float) -> PlanScanReply:
        return await self._call("plan_scan", lambda peer: peer.plan_scan(request, timeout=_FOREVER), timeout)

    async def scan(self, request: ScanRequest, *, timeout: float) -> list[ScanPiece]:
        """All pieces of a scan; the last one may tell that it cannot go on."""

        async def take(peer: DirectStorage) -> list[ScanPiece]:
            pieces: list[ScanPiece] = []
            async with peer.scan(request) as stream:
                while not pieces or (pieces[-1].status == Status.OK and pieces[-1].next_offset < request.end):
                    pieces.append(await stream.receive())
            return pieces

        return await self._call("scan", take, timeout)

    async def _call(self, name: str, do: Callable[[DirectStorage], Awaitable[T]], timeout: float) -> T:
        faults = self._faults
        with trio.move_on_after(timeout):
            there = await self._reach()
            if faults.hits("call-error"):
                raise Unavailable("connection reset")
            late = faults.hits("call-late")
            way = faults.between(0.05, 1.5) if late or faults.hits("call-slow") else faults.latency()
            if late:
                self._trace.add(f"fault: {name} to {there.name} arrives {way:.3f} s later")
            peer = DirectStorage(there.service)

            async def serve() -> T:
                await trio.sleep(way)
                return await do(peer)

            reply = await there.call(serve, abandon=lambda: late or faults.dice.random() < 0.3)
            if faults.hits("call-lost-answer"):
                self._trace.add(f"fault: the answer of {there.name} to {name} is lost")
                await trio.sleep_forever()
            await trio.sleep(faults.latency())
            return reply
        raise Unavailable(f"no answer within {timeout:g} s")

    async def _reach(self) -> StorageProcess:
        there = self._there()
        if self._cut_off(there):
            await trio.sleep_forever()
        if there is None or not there.serving:
            await trio.sleep(self._faults.latency())
            raise Unavailable("connection refused")
        return there

    def _cut_off(self, there: StorageProcess | None) -> bool:
        return self._here.dead or self._here.cut_from_peers or (there is not None and there.cut_from_peers)

    @asynccontextmanager
    async def commits(self, request: CommitsRequest) -> AsyncIterator[MessageStream[CommitsEvent]]:
        sender, receiver = trio.open_memory_channel[CommitsEvent](_BUFFERED)
        stream = _Received(receiver)
        scope = trio.CancelScope()

        async def serve(there: StorageProcess) -> None:
            try:
                with scope:
                    async with sender, DirectStorage(there.service).commits(request) as messages:
                        await self._forward(there, messages, sender)
            except KafscaleError as error:
                stream.ended = error
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                # The receiver went first.
                return

        there = self._there()
        try:
            await trio.sleep(self._faults.latency())
            if there is None or not there.serving:
                raise Unavailable("connection refused")
            # Where nobody is reached nothing is received: opening a stream does not wait for the peer.
            if not self._cut_off(there):
                there.spawn(lambda: serve(there))
            yield stream
        finally:
            if self._faults.calm or self._faults.dice.random() < 0.7:
                scope.cancel()
            else:
                # The peer does not learn that nobody listens.
                self._trace.add("fault: the peer keeps its half of a commit stream")

    async def _forward(
        self,
        there: StorageProcess,
        messages: MessageStream[CommitsEvent],
        sender: "trio.MemorySendChannel[CommitsEvent]",
    ) -> None:
        faults = self._faults
        silent = False
        while True:
            event = await messages.receive()
            if faults.hits("stream-broken"):
                self._trace.add("fault: a commit stream breaks")
                raise Unavailable("connection reset")
            if not silent and faults.hits("stream-silent"):
                self._trace.add("fault: a commit stream falls silent")
                silent = True
            while not faults.calm and (there.cut_from_peers or self._here.cut_from_peers):  # noqa: ASYNC110
                await trio.sleep(0.05)
            if not silent:
                await trio.sleep(faults.latency())
                await sender.send(event)


class _Received:
    def __init__(self, messages: "trio.MemoryReceiveChannel[CommitsEvent]") -> None:
        self._messages = messages
        self.ended: KafscaleError = Unavailable("connection reset")

    async def receive(self) -> CommitsEvent:
        try:
            return await self._messages.receive()
        except trio.EndOfChannel:
            raise self.ended from None


class RemoteIndexer:
    """`IndexerClient` of an indexer that fails now and then. ``later`` does something, some time."""

    def __init__(
        self, service: IndexerService, faults: Faults, later: Callable[[Callable[[], Awaitable[object]]], None]
    ) -> None:
        self._peer = DirectIndexer(service)
        self._faults = faults
        self._later = later

    async def build(self, request: BuildRequest, *, timeout: float) -> BuildReply:
        await self._travel(timeout)
        return await self._peer.build(request, timeout=timeout)

    async def verify(self, request: SegmentRef, *, timeout: float) -> VerifyReply:
        await self._travel(timeout)
        return await self._peer.verify(request, timeout=timeout)

    async def rebuild(self, request: SegmentRef, *, timeout: float) -> RebuildReply:
        await self._travel(timeout)
        await self._stall(timeout, lambda: self._peer.rebuild(request, timeout=_FOREVER))
        return await self._peer.rebuild(request, timeout=timeout)

    async def locate_offset(self, request: LocateOffsetRequest, *, timeout: float) -> LocateReply:
        await self._travel(timeout)
        return await self._peer.locate_offset(request, timeout=timeout)

    async def locate_timestamp(self, request: LocateTimestampRequest, *, timeout: float) -> LocateReply:
        await self._travel(timeout)
        return await self._peer.locate_timestamp(request, timeout=timeout)

    async def write_catalog_page(self, request: WriteCatalogPageRequest, *, timeout: float) -> WriteCatalogPageReply:
        await self._travel(timeout)
        await self._stall(timeout, lambda: self._peer.write_catalog_page(request, timeout=_FOREVER))
        return await self._peer.write_catalog_page(request, timeout=timeout)

    async def _stall(self, timeout: float, do: Callable[[], Awaitable[object]]) -> None:
        if self._faults.hits("indexer-stalled"):
            self._later(do)
            await trio.sleep(timeout)
            raise Unavailable("the indexer does not answer")

    async def _travel(self, timeout: float) -> None:
        if self._faults.hits("indexer-error"):
            await trio.sleep(timeout if self._faults.dice.random() < 0.5 else 0)
            raise Unavailable("no indexer")
        await trio.sleep(self._faults.latency())
