"""One `Peer` for all indexers that are alive: any of them serves any partition."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import structlog
import trio
from google.protobuf.message import Message

from kafscale.errors import KafscaleError, Refused, Unavailable
from kafscale.rpc.client import Channel
from kafscale.rpc.interface import MessageStream
from kafscale.rpc.methods import Method
from kafscale.telemetry import HEALTHY, Family, Finding, State, counter, gauge

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

_FIRST_AVOIDED_SECONDS = 1.0
_LONGEST_AVOIDED_SECONDS = 10.0
"""A member that failed is not asked for the first of these, after each further failure for twice as long."""

_log = structlog.get_logger(__name__)


class _Peer:
    """One indexer. Its channel is opened by the first call, and closed when it has gone and the last call ended."""

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
        """Whether its last call failed; one that was never called has not."""
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


class IndexerPool:
    """`show` tells which indexers there are. Channels are closed by tasks of ``nursery``, the last ones by `aclose`.

    A call goes to the member with the fewest calls under way, among those to the one that was called longest ago. One
    that does not answer in its share of the call's time, or not at all, is left for the next, and avoided for a while:
    all methods of an indexer may be called twice. So is one that refuses: its address may be another service's by now.
    Where nobody is left to ask, Unavailable is raised at once.
    """

    def __init__(self, nursery: trio.Nursery, connect: Callable[[str], Channel]) -> None:
        self._nursery = nursery
        self._connect = connect
        self._peers: dict[str, _Peer] = {}
        self._leaving: set[_Peer] = set()
        self._calls = 0
        self.unanswered = 0
        """Calls that no indexer answered: those who made them helped themselves, or failed."""

    @property
    def alive(self) -> int:
        """Members that are there, avoided ones included."""
        return len(self._peers)

    def finding(self) -> Finding:
        """Whether there is an indexer that answers, as far as calls have told."""
        if not self._peers:
            return Finding(State.DEGRADED, "no indexer is registered")
        if all(peer.failing for peer in self._peers.values()):
            return Finding(State.DEGRADED, f"none of {self.alive} indexers answered when last asked")
        return HEALTHY

    def show(self, members: Mapping[str, str]) -> None:
        """The members that are there now: addresses by run id."""
        for run_id in self._peers.keys() - members.keys():
            peer = self._peers.pop(run_id)
            peer.gone = True
            self._leaving.add(peer)
            self._close_unused(peer)
        for run_id in members.keys() - self._peers.keys():
            self._peers[run_id] = _Peer(members[run_id], self._connect)

    async def aclose(self) -> None:
        """Close every channel; calls under way fail."""
        with trio.CancelScope(shield=True):
            for peer in (*self._peers.values(), *self._leaving):
                await peer.aclose()

    async def call(self, method: Method[Q, A], request: Q, *, timeout: float) -> A:
        """The reply of the first that answers. Raises Unavailable."""
        deadline = trio.current_time() + timeout
        asked: set[_Peer] = set()
        failure = "no indexer is there"
        while (candidates := self._candidates(asked)) and (left := deadline - trio.current_time()) > 0:
            peer = min(candidates, key=lambda peer: (peer.in_flight, peer.last_called))
            asked.add(peer)
            try:
                # The last one may take all the time there is.
                return await self._ask(peer, method, request, left / min(len(candidates), 2))
            except (Unavailable, Refused) as error:
                failure = f"{peer.address}: {error}"
                _log.info("indexer does not answer", address=peer.address, error=str(error))
        self.unanswered += 1
        raise Unavailable(f"no indexer answered: {failure}")

    def stream(self, method: Method[Q, A], request: Q) -> AbstractAsyncContextManager[MessageStream[A]]:
        """Raises Refused: an indexer has no streaming methods."""
        raise Refused(f"{method.path} is no method of an indexer")

    def _candidates(self, asked: set[_Peer]) -> list[_Peer]:
        now = trio.current_time()
        return [peer for peer in self._peers.values() if peer not in asked and peer.avoided_until <= now]

    async def _ask(self, peer: _Peer, method: Method[Q, A], request: Q, seconds: float) -> A:
        self._calls += 1
        peer.last_called = self._calls
        peer.in_flight += 1
        try:
            reply = await peer.channel().call(method, request, timeout=seconds)
        except (Unavailable, Refused):
            peer.failed(trio.current_time())
            raise
        except KafscaleError:
            peer.answered()
            raise
        else:
            peer.answered()
            return reply
        finally:
            peer.in_flight -= 1
            self._close_unused(peer)

    def _close_unused(self, peer: _Peer) -> None:
        if peer.gone and not peer.in_flight and peer in self._leaving:
            self._leaving.discard(peer)
            self._nursery.start_soon(peer.aclose)


def pool_families(pool: Callable[[], IndexerPool]) -> list[Family]:
    """What the pool that ``pool`` gives shows of itself."""
    return [
        gauge("kafscale_indexers", "The number of registered indexers.", lambda: pool().alive),
        counter(
            "kafscale_indexer_calls_unanswered_total",
            "The number of calls that no indexer answered. Storage did the work itself, or failed.",
            lambda: pool().unanswered,
        ),
    ]
