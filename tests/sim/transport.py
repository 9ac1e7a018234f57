"""Calls between processes: the direct transport over a network that delays, loses answers and abandons calls."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import Generic, TypeVar

import trio
from google.protobuf.message import Message

from kafscale.errors import KafscaleError, Unavailable
from kafscale.rpc.direct import Direct
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.rpc.interface import MessageStream
from kafscale.rpc.methods import Method
from kafscale.rpc.services import bind_indexer, bind_storage
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import ScanPiece, ScanRequest
from services.indexer.service import IndexerService
from services.storage.service import StorageService
from tests.sim.faults import Faults
from tests.sim.process import Process
from tests.sim.stores import Network
from tests.sim.trace import Trace

T = TypeVar("T")
Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
_FOREVER = 1000.0
_BUFFERED = 16
_STORING = ("/Rebuild", "/WriteCatalogPage")


class StorageProcess(Process):
    """A process with a storage service, once it has started."""

    service: StorageService

    @cached_property
    def peer(self) -> Direct:
        """Calls the service directly."""
        return Direct(bind_storage(self.service))


class RemoteStorage:
    """The `Peer` of the process ``here`` for the storage process ``there``."""

    def __init__(self, here: Process, there: Callable[[], StorageProcess | None], faults: Faults, trace: Trace) -> None:
        self._here = here
        self._there = there
        self._faults = faults
        self._trace = trace

    async def call(self, method: Method[Q, A], request: Q, *, timeout: float) -> A:
        return await self._call(method.path, lambda peer: peer.call(method, request, timeout=_FOREVER), timeout)

    async def pieces(self, request: ScanRequest, *, timeout: float) -> list[ScanPiece]:
        """Return all pieces of a scan. The last one may be an error."""

        async def take(peer: Direct) -> list[ScanPiece]:
            pieces: list[ScanPiece] = []
            async with SegmentStorageClient(peer).scan(request) as stream:
                while not pieces or (pieces[-1].status == Status.OK and pieces[-1].next_offset < request.end):
                    pieces.append(await stream.receive())
            return pieces

        return await self._call("scan", take, timeout)

    async def _call(self, name: str, do: Callable[[Direct], Awaitable[T]], timeout: float) -> T:
        faults = self._faults
        with trio.move_on_after(timeout):
            there = await self._reach()
            if faults.hits("call-error"):
                raise Unavailable("connection reset")
            late = faults.hits("call-late")
            way = faults.between(0.05, 1.5) if late or faults.hits("call-slow") else faults.latency()
            if late:
                self._trace.add(f"fault: {name} to {there.name} arrives {way:.3f} s later")

            async def serve() -> T:
                await trio.sleep(way)
                return await do(there.peer)

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
    async def stream(self, method: Method[Q, A], request: Q) -> AsyncIterator[MessageStream[A]]:
        """Open a commit stream, the only kind of stream of storage in the simulation."""
        sender, receiver = trio.open_memory_channel[A](_BUFFERED)
        stream = _Received(receiver)
        scope = trio.CancelScope()

        async def serve(there: StorageProcess) -> None:
            try:
                with scope:
                    async with (
                        sender,
                        there.peer.stream(method, request) as messages,
                    ):
                        await self._forward(there, messages, sender)
            except KafscaleError as error:
                stream.ended = error
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                # The receiver has ended.
                return

        there = self._there()
        try:
            await trio.sleep(self._faults.latency())
            if there is None or not there.serving:
                raise Unavailable("connection refused")
            # Opening a stream does not wait for the peer, so an unreachable peer just sends nothing.
            if not self._cut_off(there):
                there.spawn(lambda: serve(there))
            yield stream
        finally:
            if self._faults.calm or self._faults.dice.random() < 0.7:
                scope.cancel()
            else:
                # The peer does not notice that the receiver has ended.
                self._trace.add("fault: the peer keeps its half of a commit stream")

    async def _forward(
        self,
        there: StorageProcess,
        messages: MessageStream[A],
        sender: "trio.MemorySendChannel[A]",
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


class _Received(Generic[A]):
    def __init__(self, messages: "trio.MemoryReceiveChannel[A]") -> None:
        self._messages = messages
        self.ended: KafscaleError = Unavailable("connection reset")

    async def receive(self) -> A:
        try:
            return await self._messages.receive()
        except trio.EndOfChannel:
            raise self.ended from None


class RemoteIndexer:
    """The `Peer` for an indexer that sometimes fails. What it stores lands even if its caller has died."""

    def __init__(self, service: IndexerService, faults: Faults, network: Network) -> None:
        self._peer = Direct(bind_indexer(service))
        self._faults = faults
        self._network = network

    async def call(self, method: Method[Q, A], request: Q, *, timeout: float) -> A:
        await self._travel(timeout)
        if method.path.endswith(_STORING):
            await self._stall(timeout, lambda: self._peer.call(method, request, timeout=_FOREVER))
        return await self._peer.call(method, request, timeout=timeout)

    @asynccontextmanager
    async def stream(self, method: Method[Q, A], request: Q) -> AsyncIterator[MessageStream[A]]:
        """Have a log rewritten, which is the only kind of stream of an indexer.

        An indexer may not notice that its caller has gone, and continues. Its events may be late, and may be lost with
        the connection.
        """
        faults = self._faults
        await self._travel(faults.between(0.0, 1.0))
        sender, receiver = trio.open_memory_channel[A](_BUFFERED)
        stream, scope = _Received(receiver), trio.CancelScope()

        async def serve() -> None:
            with scope:
                try:
                    async with sender, self._peer.stream(method, request) as messages:
                        while True:
                            event = await messages.receive()
                            if faults.hits("rewrite-slow"):
                                await trio.sleep(faults.between(0.1, 2.0))
                            if faults.hits("rewrite-broken"):
                                raise Unavailable("connection reset")
                            with suppress(trio.BrokenResourceError):
                                await sender.send(event)
                except KafscaleError as error:
                    stream.ended = error

        self._network.nursery.start_soon(serve)
        try:
            yield stream
        finally:
            receiver.close()
            if not faults.hits("rewrite-goes-on"):
                scope.cancel()

    async def _stall(self, timeout: float, do: Callable[[], Awaitable[object]]) -> None:
        if self._faults.hits("indexer-stalled"):
            self._network.later(do)
            await trio.sleep(timeout)
            raise Unavailable("the indexer does not answer")

    async def _travel(self, timeout: float) -> None:
        if self._faults.hits("indexer-error"):
            await trio.sleep(timeout if self._faults.dice.random() < 0.5 else 0)
            raise Unavailable("no indexer")
        await trio.sleep(self._faults.latency())
