"""The pool of indexers, on virtual time: the choice of an indexer, retries, and errors without one."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import CorruptData, NotSent, Refused, Unavailable
from kafscale.rpc.client import Channel
from kafscale.rpc.generated import IndexerClient
from kafscale.rpc.pool import IndexerPool
from kafscale.telemetry import Finding, State
from kafscale.v1.indexer_pb2 import RewriteEvent, RewriteRequest, SegmentRef, VerifyReply

REQUEST = SegmentRef(topic="t")


class FakeChannel:
    """``seconds``: the duration of a call; infinite if it hangs. ``error``: raised afterwards."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.seconds = 0.0
        self.error: Exception | None = None
        self.calls = 0
        self.timeouts: list[float] = []
        self.closed = False

    async def call(self, method: Any, request: Any, *, timeout: float, metadata: Any = ()) -> VerifyReply:
        assert not self.closed
        self.calls += 1
        self.timeouts.append(timeout)
        with trio.move_on_after(timeout) as late:
            await trio.sleep(self.seconds)
        if late.cancelled_caught:
            raise Unavailable("no answer in time")
        if self.error is not None:
            raise self.error
        return VerifyReply(detail=self.address)

    @asynccontextmanager
    async def stream(self, method: Any, request: Any, *, metadata: Any = ()) -> AsyncIterator["FakeChannel"]:
        self.calls += 1
        yield self

    async def receive(self) -> RewriteEvent:
        await trio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return RewriteEvent(detail=self.address)

    async def aclose(self) -> None:
        self.closed = True


class Peers:
    def __init__(self) -> None:
        self.opened: list[str] = []
        self.channels: dict[str, FakeChannel] = {}

    def connect(self, address: str) -> Channel:
        self.opened.append(address)
        return cast(Channel, self[address])

    def __getitem__(self, address: str) -> FakeChannel:
        return self.channels.setdefault(address, FakeChannel(address))


@asynccontextmanager
async def _pool(*addresses: str) -> AsyncIterator[tuple[IndexerPool, Peers]]:
    peers = Peers()
    async with trio.open_nursery() as nursery:
        pool = IndexerPool(nursery, peers.connect)
        pool.update({f"run-{address}": address for address in addresses})
        with trio.fail_after(600):
            yield pool, peers
        nursery.cancel_scope.cancel()


async def _ask(pool: IndexerPool, timeout: float = 1.0) -> str:
    return (await IndexerClient(pool).verify(REQUEST, timeout=timeout)).detail


async def test_calls_alternate_between_indexers(autojump_clock: MockClock) -> None:
    async with _pool("a", "b", "c") as (pool, peers):
        assert sorted([await _ask(pool) for _ in range(9)]) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
        assert sorted(peers.opened) == ["a", "b", "c"]


async def test_a_busy_indexer_gets_fewer_calls(autojump_clock: MockClock) -> None:
    async with _pool("slow", "quick") as (pool, peers):
        peers["slow"].seconds = 0.9
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(_ask, pool, 2.0)
            await trio.sleep(0.1)
            for _ in range(5):
                assert await _ask(pool) == "quick"
        assert (peers["slow"].calls, peers["quick"].calls) == (1, 6)


async def test_a_call_to_an_unreachable_indexer_is_retried_with_another(autojump_clock: MockClock) -> None:
    async with _pool("a", "b") as (pool, peers):
        peers["a"].error = Unavailable("connection refused")
        assert [await _ask(pool) for _ in range(4)] == ["b"] * 4
        # It is avoided for a while, and not tried again with each call.
        assert peers["a"].calls == 1
        assert pool.unanswered == 0


async def test_a_hanging_indexer_uses_only_its_share_of_the_time(autojump_clock: MockClock) -> None:
    async with _pool("a", "b", "c") as (pool, peers):
        for address in ("a", "b"):
            peers[address].seconds = math.inf
        began = trio.current_time()
        assert await _ask(pool, 1.0) == "c"
        assert trio.current_time() - began < 1.0
        assert await _ask(pool, 1.0) == "c"


async def test_the_last_indexer_gets_all_the_remaining_time(autojump_clock: MockClock) -> None:
    async with _pool("a") as (pool, peers):
        peers["a"].seconds = 0.99
        assert await _ask(pool, 1.0) == "a"
        assert peers["a"].timeouts == [1.0]


async def test_a_call_fails_at_once_without_indexers(autojump_clock: MockClock) -> None:
    async with _pool() as (pool, _):
        began = trio.current_time()
        with pytest.raises(Unavailable, match="no indexer is available"):
            await _ask(pool, 60.0)
        assert trio.current_time() == began
        assert pool.unanswered == 1


async def test_a_call_fails_at_once_if_all_indexers_have_just_failed(autojump_clock: MockClock) -> None:
    async with _pool("a") as (pool, peers):
        peers["a"].seconds = math.inf
        with pytest.raises(Unavailable):
            await _ask(pool, 1.0)
        began = trio.current_time()
        with pytest.raises(Unavailable):
            await _ask(pool, 1.0)
        assert trio.current_time() == began
        peers["a"].seconds = 0.0
        await trio.sleep(1.0)
        assert await _ask(pool) == "a"


async def test_a_failing_indexer_is_tried_less_and_less_until_it_succeeds(
    autojump_clock: MockClock,
) -> None:
    async with _pool("a") as (pool, peers):
        peers["a"].error = Unavailable("no")
        for _ in range(600):
            with pytest.raises(Unavailable):
                await _ask(pool)
            await trio.sleep(0.1)
        assert peers["a"].calls <= 10
        peers["a"].error = None
        await trio.sleep(10)
        assert await _ask(pool) == "a"
        peers["a"].error = Unavailable("no")
        with pytest.raises(Unavailable):
            await _ask(pool)
        peers["a"].error = None
        await trio.sleep(1.0)
        assert await _ask(pool) == "a"


async def test_an_indexer_whose_address_another_service_uses_is_skipped(autojump_clock: MockClock) -> None:
    async with _pool("a", "b") as (pool, peers):
        peers["a"].error = Refused("unknown method")
        assert [await _ask(pool) for _ in range(3)] == ["b"] * 3
        assert peers["a"].calls == 1
        peers["b"].error = Refused("unknown method")
        with pytest.raises(Unavailable, match="unknown method"):
            await _ask(pool)


async def test_an_error_answer_of_an_indexer_is_not_retried(autojump_clock: MockClock) -> None:
    async with _pool("a", "b") as (pool, peers):
        for address in ("a", "b"):
            peers[address].error = CorruptData("no segment's batches")
        with pytest.raises(CorruptData):
            await _ask(pool)
        assert peers["a"].calls + peers["b"].calls == 1


async def test_a_removed_indexer_gets_no_calls_and_is_closed_after_its_last_one(autojump_clock: MockClock) -> None:
    async with _pool("a", "b") as (pool, peers):
        peers["a"].seconds = peers["b"].seconds = 0.5
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(_ask, pool, 5.0)
            await trio.sleep(0.1)
            pool.update({"run-b": "b"})
            await trio.sleep(0.1)
            assert not peers["a"].closed
        await trio.testing.wait_all_tasks_blocked()
        assert peers["a"].closed
        assert not peers["b"].closed
        assert [await _ask(pool, 5.0) for _ in range(3)] == ["b"] * 3
        assert pool.alive == 1


async def test_a_restarted_indexer_is_a_new_one(autojump_clock: MockClock) -> None:
    async with _pool("a") as (pool, peers):
        peers["a"].error = Unavailable("it died")
        with pytest.raises(Unavailable):
            await _ask(pool)
        peers.channels.clear()
        pool.update({"another-run": "a"})
        assert await _ask(pool) == "a"
        assert peers.opened == ["a", "a"]


async def test_health_depends_on_the_indexers_that_are_registered_now(autojump_clock: MockClock) -> None:
    async with _pool() as (pool, peers):
        assert pool.finding() == Finding(State.DEGRADED, "no indexer is registered")
        pool.update({"run-a": "a"})
        assert pool.finding().state is State.HEALTHY
        peers["a"].error = Unavailable("it died")
        with pytest.raises(Unavailable):
            await _ask(pool)
        assert pool.finding().state is State.DEGRADED
        # A new run has not failed yet, although nobody has called it.
        pool.update({"run-a": "a", "another-run": "b"})
        assert pool.finding().state is State.HEALTHY
        pool.update({})
        assert pool.finding() == Finding(State.DEGRADED, "no indexer is registered")


async def test_an_indexer_that_refuses_a_call_is_healthy(autojump_clock: MockClock) -> None:
    async with _pool("a") as (pool, peers):
        peers["a"].error = CorruptData("no such segment")
        with pytest.raises(CorruptData):
            await _ask(pool)
        assert pool.finding().state is State.HEALTHY


async def test_closing_the_pool_closes_all_channels(autojump_clock: MockClock) -> None:
    async with _pool("a", "b") as (pool, peers):
        await _ask(pool)
        await _ask(pool)
        await pool.aclose()
        assert peers["a"].closed
        assert peers["b"].closed


async def test_a_stream_is_opened_at_the_least_busy_indexer_and_counts_as_a_call(autojump_clock: MockClock) -> None:
    async with _pool("a", "b") as (pool, _), IndexerClient(pool).rewrite(RewriteRequest()) as events:
        there = (await events.receive()).detail
        other = "b" if there == "a" else "a"
        assert [await _ask(pool) for _ in range(3)] == [other] * 3
        async with IndexerClient(pool).rewrite(RewriteRequest()) as others:
            assert (await others.receive()).detail == other


async def test_a_stream_is_not_repeated_and_its_silent_indexer_is_avoided(autojump_clock: MockClock) -> None:
    async with _pool("a", "b") as (pool, peers):
        for address in ("a", "b"):
            peers[address].error = Unavailable("connection refused")
        for calls in (1, 2):
            with pytest.raises(Unavailable, match="connection refused"):
                async with IndexerClient(pool).rewrite(RewriteRequest()) as events:
                    await events.receive()
            assert peers["a"].calls + peers["b"].calls == calls
        with pytest.raises(NotSent, match="no indexer is available"):
            async with IndexerClient(pool).rewrite(RewriteRequest()):
                pass
        assert pool.unanswered == 1
        for address in ("a", "b"):
            peers[address].error = None
        await trio.sleep(1.0)
        assert await _ask(pool) in {"a", "b"}


async def test_an_indexer_whose_stream_ends_is_not_avoided(autojump_clock: MockClock) -> None:
    async with _pool("a") as (pool, peers):
        async with IndexerClient(pool).rewrite(RewriteRequest()) as events:
            await events.receive()
            peers["a"].error = Unavailable("the stream ended")
            with pytest.raises(Unavailable):
                await events.receive()
        peers["a"].error = None
        assert await _ask(pool) == "a"


async def test_a_removed_indexer_is_closed_after_its_stream(autojump_clock: MockClock) -> None:
    async with _pool("a") as (pool, peers):
        async with IndexerClient(pool).rewrite(RewriteRequest()) as events:
            pool.update({})
            await trio.testing.wait_all_tasks_blocked()
            assert not peers["a"].closed
            await events.receive()
        await trio.testing.wait_all_tasks_blocked()
        assert peers["a"].closed
