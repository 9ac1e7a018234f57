"""The pool of indexers, on virtual time: who is asked, who is asked next, and when nobody is."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import CorruptData, Refused, Unavailable
from kafscale.rpc.client import Channel
from kafscale.rpc.generated import IndexerClient
from kafscale.rpc.pool import IndexerPool
from kafscale.telemetry import Finding, State
from kafscale.v1.indexer_pb2 import BuildReply, BuildRequest

REQUEST = BuildRequest(offsets=[0], positions=[32])


class FakeChannel:
    """``seconds``: that a call takes; infinite: it hangs. ``error``: what it raises then."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.seconds = 0.0
        self.error: Exception | None = None
        self.calls = 0
        self.timeouts: list[float] = []
        self.closed = False

    async def call(self, method: Any, request: Any, *, timeout: float, metadata: Any = ()) -> BuildReply:
        assert not self.closed
        self.calls += 1
        self.timeouts.append(timeout)
        with trio.move_on_after(timeout) as late:
            await trio.sleep(self.seconds)
        if late.cancelled_caught:
            raise Unavailable("no answer in time")
        if self.error is not None:
            raise self.error
        return BuildReply(index=self.address.encode())

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


async def _build(pool: IndexerPool, timeout: float = 1.0) -> str:
    return (await IndexerClient(pool).build(REQUEST, timeout=timeout)).index.decode()


async def test_calls_go_round(autojump_clock: MockClock) -> None:
    async with _pool("a", "b", "c") as (pool, peers):
        assert sorted([await _build(pool) for _ in range(9)]) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
        assert sorted(peers.opened) == ["a", "b", "c"]


async def test_one_that_is_busy_gets_less(autojump_clock: MockClock) -> None:
    async with _pool("slow", "quick") as (pool, peers):
        peers["slow"].seconds = 0.9
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(_build, pool, 2.0)
            await trio.sleep(0.1)
            for _ in range(5):
                assert await _build(pool) == "quick"
        assert (peers["slow"].calls, peers["quick"].calls) == (1, 6)


async def test_a_call_that_finds_nobody_at_home_goes_to_another(autojump_clock: MockClock) -> None:
    async with _pool("a", "b") as (pool, peers):
        peers["a"].error = Unavailable("connection refused")
        assert [await _build(pool) for _ in range(4)] == ["b"] * 4
        # Avoided for a while, not asked at each call.
        assert peers["a"].calls == 1
        assert pool.unanswered == 0


async def test_one_that_hangs_takes_only_its_share_of_the_time(autojump_clock: MockClock) -> None:
    async with _pool("a", "b", "c") as (pool, peers):
        for address in ("a", "b"):
            peers[address].seconds = math.inf
        began = trio.current_time()
        assert await _build(pool, 1.0) == "c"
        assert trio.current_time() - began < 1.0
        assert await _build(pool, 1.0) == "c"


async def test_the_last_one_gets_all_the_time_there_is(autojump_clock: MockClock) -> None:
    async with _pool("a") as (pool, peers):
        peers["a"].seconds = 0.99
        assert await _build(pool, 1.0) == "a"
        assert peers["a"].timeouts == [1.0]


async def test_where_nobody_is_there_the_caller_knows_at_once(autojump_clock: MockClock) -> None:
    async with _pool() as (pool, _):
        began = trio.current_time()
        with pytest.raises(Unavailable, match="no indexer is available"):
            await _build(pool, 60.0)
        assert trio.current_time() == began
        assert pool.unanswered == 1


async def test_where_all_failed_just_now_the_caller_knows_at_once_too(autojump_clock: MockClock) -> None:
    async with _pool("a") as (pool, peers):
        peers["a"].seconds = math.inf
        with pytest.raises(Unavailable):
            await _build(pool, 1.0)
        began = trio.current_time()
        with pytest.raises(Unavailable):
            await _build(pool, 1.0)
        assert trio.current_time() == began
        peers["a"].seconds = 0.0
        await trio.sleep(1.0)
        assert await _build(pool) == "a"


async def test_one_that_goes_on_failing_is_asked_ever_less_and_forgiven_at_once(autojump_clock: MockClock) -> None:
    async with _pool("a") as (pool, peers):
        peers["a"].error = Unavailable("no")
        for _ in range(600):
            with pytest.raises(Unavailable):
                await _build(pool)
            await trio.sleep(0.1)
        assert peers["a"].calls <= 10
        peers["a"].error = None
        await trio.sleep(10)
        assert await _build(pool) == "a"
        peers["a"].error = Unavailable("no")
        with pytest.raises(Unavailable):
            await _build(pool)
        peers["a"].error = None
        await trio.sleep(1.0)
        assert await _build(pool) == "a"


async def test_one_whose_address_another_service_has_now_is_left_for_the_next(autojump_clock: MockClock) -> None:
    async with _pool("a", "b") as (pool, peers):
        peers["a"].error = Refused("unknown method")
        assert [await _build(pool) for _ in range(3)] == ["b"] * 3
        assert peers["a"].calls == 1
        peers["b"].error = Refused("unknown method")
        with pytest.raises(Unavailable, match="unknown method"):
            await _build(pool)


async def test_an_answer_that_says_no_is_an_answer(autojump_clock: MockClock) -> None:
    async with _pool("a", "b") as (pool, peers):
        for address in ("a", "b"):
            peers[address].error = CorruptData("no segment's batches")
        with pytest.raises(CorruptData):
            await _build(pool)
        assert peers["a"].calls + peers["b"].calls == 1


async def test_one_that_is_gone_is_asked_no_more_and_closed_after_its_last_call(autojump_clock: MockClock) -> None:
    async with _pool("a", "b") as (pool, peers):
        peers["a"].seconds = peers["b"].seconds = 0.5
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(_build, pool, 5.0)
            await trio.sleep(0.1)
            pool.update({"run-b": "b"})
            await trio.sleep(0.1)
            assert not peers["a"].closed
        await trio.testing.wait_all_tasks_blocked()
        assert peers["a"].closed
        assert not peers["b"].closed
        assert [await _build(pool, 5.0) for _ in range(3)] == ["b"] * 3
        assert pool.alive == 1


async def test_a_restarted_one_is_a_new_one(autojump_clock: MockClock) -> None:
    async with _pool("a") as (pool, peers):
        peers["a"].error = Unavailable("it died")
        with pytest.raises(Unavailable):
            await _build(pool)
        peers.channels.clear()
        pool.update({"another-run": "a"})
        assert await _build(pool) == "a"
        assert peers.opened == ["a", "a"]


async def test_its_health_is_that_of_the_indexers_that_are_there_now(autojump_clock: MockClock) -> None:
    async with _pool() as (pool, peers):
        assert pool.finding() == Finding(State.DEGRADED, "no indexer is registered")
        pool.update({"run-a": "a"})
        assert pool.finding().state is State.HEALTHY
        peers["a"].error = Unavailable("it died")
        with pytest.raises(Unavailable):
            await _build(pool)
        assert pool.finding().state is State.DEGRADED
        # One that came back is not known to fail, though nobody has called it yet.
        pool.update({"run-a": "a", "another-run": "b"})
        assert pool.finding().state is State.HEALTHY
        pool.update({})
        assert pool.finding() == Finding(State.DEGRADED, "no indexer is registered")


async def test_one_that_refuses_a_call_is_well(autojump_clock: MockClock) -> None:
    async with _pool("a") as (pool, peers):
        peers["a"].error = CorruptData("no such segment")
        with pytest.raises(CorruptData):
            await _build(pool)
        assert pool.finding().state is State.HEALTHY


async def test_the_end_closes_all(autojump_clock: MockClock) -> None:
    async with _pool("a", "b") as (pool, peers):
        await _build(pool)
        await _build(pool)
        await pool.aclose()
        assert peers["a"].closed
        assert peers["b"].closed
