"""A `Peer` that distributes calls among all live indexers. Any indexer serves any partition."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Generic, TypeVar

import structlog
import trio
from google.protobuf.message import Message

from kafscale.errors import KafscaleError, NotSent, Refused, Unavailable
from kafscale.rpc.client import Channel
from kafscale.rpc.interface import MessageStream
from kafscale.rpc.methods import Method
from kafscale.telemetry import HEALTHY, Family, Finding, State, counter, gauge

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

_FIRST_AVOIDED_SECONDS = 1.0
_LONGEST_AVOIDED_SECONDS = 10.0
"""After a failure, a member is avoided for the first of these. Each further failure doubles the time."""

_log = structlog.get_logger(__name__)


class _Peer:
    """An indexer. The first call opens its channel, which is closed when the indexer is gone and has no more calls."""

    def __init__(self, address: str, connect: Callable[[str], Channel]) -> None:
        self.address = address
        self.in_flight = 0
        self.last_called = 0
        self.avoided_until = 0.0
        self.gone = False
        self._pause = 0.0
        self._connect = connect
        self._channel: Channel | None = None

    def channel(self) -> Channel:
        if self._channel is None:
            self._channel = self._connect(self.address)
        return self._channel

    @property
    def failing(self) -> bool:
        """Whether its last call failed. False if it was never called."""
        return self._pause > 0

    def answered(self) -> None:
        self._pause = 0.0
        self.avoided_until = 0.0

    def failed(self, now: float) -> None:
        self._pause = min(max(2 * self._pause, _FIRST_AVOIDED_SECONDS), _LONGEST_AVOIDED_SECONDS)
        self.avoided_until = now + self._pause

    async def aclose(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.aclose()


class _PeerStream(Generic[A]):
    """The messages of an indexer. Whether it answers shows with the first one: later, a stream may just end."""

    def __init__(self, peer: _Peer, messages: MessageStream[A]) -> None:
        self._peer = peer
        self._messages = messages
        self._answered = False

    async def receive(self) -> A:
        try:
            message = await self._messages.receive()
        except (Unavailable, Refused):
            if not self._answered:
                self._peer.failed(trio.current_time())
            raise
        if not self._answered:
            self._answered = True
            self._peer.answered()
        return message


def _least_busy(peers: Iterable[_Peer]) -> _Peer:
    return min(peers, key=lambda peer: (peer.in_flight, peer.last_called))


class IndexerPool:
    """Distributes calls among the indexers set by `update`. Tasks of ``nursery`` close the channels of those that left.

    A call is sent to the member with the fewest calls in flight and, among these, the least recently called. If it does
    not answer within its share of the timeout, fails or refuses, the next member is tried and the first is avoided for
    a while. (All methods that do not stream can be repeated. A refusal may mean that another service has the address
    now.) If no member remains, Unavailable is raised immediately. A stream is opened at one member, and never repeated.
    """

    def __init__(self, nursery: trio.Nursery, connect: Callable[[str], Channel]) -> None:
        self._nursery = nursery
        self._connect = connect
        self._peers: dict[str, _Peer] = {}
        self._leaving: set[_Peer] = set()
        self._calls = 0
        self.unanswered = 0
        """The number of calls that no indexer answered. The callers did the work themselves, or failed."""

    @property
    def alive(self) -> int:
        """The number of members, including avoided ones."""
        return len(self._peers)

    def finding(self) -> Finding:
        """Return the health according to the last calls: degraded if no indexer answers."""
        if not self._peers:
            return Finding(State.DEGRADED, "no indexer is registered")
        if all(peer.failing for peer in self._peers.values()):
            return Finding(State.DEGRADED, f"the last calls to all {self.alive} indexers failed")
        return HEALTHY

    def update(self, members: Mapping[str, str]) -> None:
        """Set the current members: addresses by run id."""
        for run_id in self._peers.keys() - members.keys():
            peer = self._peers.pop(run_id)
            peer.gone = True
            self._leaving.add(peer)
            self._close_unused(peer)
        for run_id in members.keys() - self._peers.keys():
            self._peers[run_id] = _Peer(members[run_id], self._connect)

    async def aclose(self) -> None:
        """Close all channels. Calls in flight fail."""
        with trio.CancelScope(shield=True):
            for peer in (*self._peers.values(), *self._leaving):
                await peer.aclose()

    async def call(self, method: Method[Q, A], request: Q, *, timeout: float) -> A:
        """Return the reply of the first member that answers. Raises Unavailable; NotSent if nothing was done."""
        deadline = trio.current_time() + timeout
        tried: set[_Peer] = set()
        failure, may_be_done = "no indexer is available", False
        while (candidates := self._candidates(tried)) and (remaining := deadline - trio.current_time()) > 0:
            peer = _least_busy(candidates)
            tried.add(peer)
            try:
                # The last candidate may take all the remaining time.
                return await self._call_peer(peer, method, request, remaining / min(len(candidates), 2))
            except (Unavailable, Refused) as error:
                failure = f"{peer.address}: {error}"
                may_be_done = may_be_done or isinstance(error, Unavailable)
                _log.info("indexer call failed", address=peer.address, error=str(error))
        self.unanswered += 1
        kind = Unavailable if may_be_done else NotSent
        raise kind(f"no indexer answered: {failure}")

    @asynccontextmanager
    async def stream(self, method: Method[Q, A], request: Q) -> AsyncIterator[MessageStream[A]]:
        """Open the replies of one member, which counts as a call in flight. Raises NotSent if none is available.

        The member is avoided for a while if the stream fails before its first message.
        """
        candidates = self._candidates(set())
        if not candidates:
            self.unanswered += 1
            raise NotSent("no indexer is available")
        peer = _least_busy(candidates)
        with self._in_flight(peer):
            async with peer.channel().stream(method, request) as messages:
                yield _PeerStream(peer, messages)

    def _candidates(self, tried: set[_Peer]) -> list[_Peer]:
        now = trio.current_time()
        return [peer for peer in self._peers.values() if peer not in tried and peer.avoided_until <= now]

    async def _call_peer(self, peer: _Peer, method: Method[Q, A], request: Q, seconds: float) -> A:
        with self._in_flight(peer):
            try:
                reply = await peer.channel().call(method, request, timeout=seconds)
            except (Unavailable, Refused):
                peer.failed(trio.current_time())
                raise
            except KafscaleError:
                peer.answered()
                raise
            peer.answered()
            return reply

    @contextmanager
    def _in_flight(self, peer: _Peer) -> Iterator[None]:
        self._calls += 1
        peer.last_called = self._calls
        peer.in_flight += 1
        try:
            yield
        finally:
            peer.in_flight -= 1
            self._close_unused(peer)

    def _close_unused(self, peer: _Peer) -> None:
        if peer.gone and not peer.in_flight and peer in self._leaving:
            self._leaving.discard(peer)
            self._nursery.start_soon(peer.aclose)


def pool_families(pool: Callable[[], IndexerPool]) -> list[Family]:
    """Return the metrics of the pool that ``pool`` returns."""
    return [
        gauge("kafscale_indexers", "The number of registered indexers.", lambda: pool().alive),
        counter(
            "kafscale_indexer_calls_unanswered_total",
            "The number of calls that no indexer answered. Storage did the work itself, or failed.",
            lambda: pool().unanswered,
        ),
    ]
