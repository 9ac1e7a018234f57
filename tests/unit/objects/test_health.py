"""When a store is healthy, degraded or unavailable, and how soon a recovery is detected."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import KafscaleError, Refused, Unavailable
from kafscale.objects.availability import StoreHealth, Thresholds, clock_finding
from kafscale.objects.interface import ObjectStore
from kafscale.objects.memory import Call, Fault, MemoryObjectStore
from kafscale.objects.metrics import MeteredObjectStore, OperationCounters
from kafscale.objects.retry import RetryingObjectStore
from kafscale.telemetry import State

MIB = 1 << 20


class Watched:
    """A store in memory whose health is checked every second, as in a process."""

    def __init__(self) -> None:
        self.bare = MemoryObjectStore()
        self.health = StoreHealth(Thresholds())
        self.counters = OperationCounters()
        self.store: ObjectStore = MeteredObjectStore(self.bare, self.counters, self.health)
        self.changes: list[tuple[float, State]] = [(trio.current_time(), State.HEALTHY)]

    def state(self) -> State:
        return self.changes[-1][1]

    async def look(self) -> None:
        while True:
            await trio.sleep(1)
            found = self.health.finding()
            if found.state is not self.state():
                assert found.reason or found.state is State.HEALTHY
                self.changes.append((trio.current_time(), found.state))

    async def ask(self, times: int, every: float = 0.1) -> None:
        for _ in range(times):
            await trio.sleep(every)
            try:
                await self.store.list_from("")
            except KafscaleError:
                continue

    def fail(self, *, share: int = 1, of: int = 1, error: Exception | None = None) -> None:
        asked = {"n": 0}

        def plan(call: Call) -> Fault | None:
            asked["n"] += 1
            return Fault(error=error or Unavailable("503")) if asked["n"] % of < share else None

        self.bare.plan = plan


@asynccontextmanager
async def watched(*, probing: bool = True) -> AsyncIterator[Watched]:
    found = Watched()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.look)
        if probing:
            nursery.start_soon(found.health.probe, found.store, "probe")
        yield found
        nursery.cancel_scope.cancel()


async def test_an_outage_and_its_end_are_detected_in_seconds_without_other_requests(autojump_clock: MockClock) -> None:
    async with watched() as it:
        await it.ask(600)
        it.fail()
        began = trio.current_time()
        await it.ask(1)
        await trio.sleep(300)
        asked = len(it.bare.calls)
        it.bare.plan = None
        ended = trio.current_time()
        await trio.sleep(30)
        (_, healthy), (down_at, down), (up_at, up) = it.changes
        assert (healthy, down, up) == (State.HEALTHY, State.UNAVAILABLE, State.HEALTHY)
        assert down_at - began <= 6
        assert up_at - ended <= 5
        assert asked - 600 <= 300 / 0.5 + 2


async def test_probes_are_rare_while_the_store_is_healthy(autojump_clock: MockClock) -> None:
    async with watched() as it:
        await it.ask(10)
        before = len(it.bare.calls)
        await trio.sleep(3600)
        assert len(it.bare.calls) - before <= 3600 / 30


async def test_one_failure_on_a_quiet_day_changes_nothing(autojump_clock: MockClock) -> None:
    async with watched() as it:
        await it.ask(1)
        it.fail(share=1, of=1)
        await it.ask(1)
        it.bare.plan = None
        await trio.sleep(100)
        assert len(it.changes) == 1


@pytest.mark.parametrize(("share", "state"), [(1, State.HEALTHY), (3, State.DEGRADED), (7, State.UNAVAILABLE)])
async def test_the_share_of_failures_determines_the_state(autojump_clock: MockClock, share: int, state: State) -> None:
    async with watched() as it:
        it.fail(share=share, of=10)
        await it.ask(1200)
        assert it.state() is state
        assert len(it.changes) <= 3


async def test_a_run_of_good_answers_makes_the_store_healthy_again(autojump_clock: MockClock) -> None:
    async with watched(probing=False) as it:
        it.fail(share=3, of=10)
        await it.ask(300)
        assert it.state() is State.DEGRADED
        it.bare.plan = None
        await it.ask(50)
        assert it.state() is State.HEALTHY


async def test_not_found_counts_as_an_answer_and_refusals_count_as_failures(
    autojump_clock: MockClock,
) -> None:
    async with watched() as it:
        for _ in range(50):
            with pytest.raises(KafscaleError):
                await it.store.get("nothing here")
            await trio.sleep(0.1)
        assert it.state() is State.HEALTHY
        assert it.counters.requests["get", "not_found"] == 50
        it.fail(error=Refused("403"))
        await it.ask(50)
        assert it.state() is State.UNAVAILABLE


@pytest.mark.parametrize(("delay", "state"), [(0.4, State.HEALTHY), (1.0, State.DEGRADED), (3.5, State.UNAVAILABLE)])
async def test_late_answers_determine_the_state_if_they_are_half_of_all(
    autojump_clock: MockClock, delay: float, state: State
) -> None:
    async with watched() as it:
        it.bare.plan = lambda call: Fault(delay=delay)
        await it.ask(40)
        assert it.state() is state


async def test_slow_large_puts_and_a_few_late_answers_do_not_degrade_health(autojump_clock: MockClock) -> None:
    async with watched(probing=False) as it:
        it.bare.plan = lambda call: Fault(delay=3.0 if call.size > MIB else 0.01)
        for number in range(30):
            await it.store.put_if_absent(f"large-{number}", bytes(4 * MIB))
        asked = {"n": 0}

        def some_late(call: Call) -> Fault:
            asked["n"] += 1
            return Fault(delay=4.0 if asked["n"] % 4 == 0 else 0.01)

        it.bare.plan = some_late
        await it.ask(100)
        assert it.changes == it.changes[:1]


async def test_a_store_that_does_not_answer_at_all_is_detected_before_any_timeout(autojump_clock: MockClock) -> None:
    async with watched() as it:
        await it.ask(100)
        held = trio.Event()
        it.bare.plan = lambda call: Fault(hold=held)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(it.ask, 1)
            await trio.sleep(20)
            held.set()
        assert it.state() is State.UNAVAILABLE
        assert it.changes[-1][0] - began <= 8
        it.bare.plan = None
        await trio.sleep(10)
        assert it.state() is State.HEALTHY


async def test_each_attempt_of_a_retried_request_is_counted_and_memory_is_bounded(autojump_clock: MockClock) -> None:
    it = Watched()
    it.fail(share=2, of=3)
    store = RetryingObjectStore(it.store, lambda: 0.5)
    for _ in range(10_000):
        await store.list_from("")
    assert it.counters.requests["list_from", "ok"] == 10_000
    assert it.counters.requests["list_from", "unavailable"] > 15_000
    assert len(it.health._slices) <= 13
    assert not it.health._in_flight


async def test_a_clock_that_is_off_is_detected() -> None:
    store = MemoryObjectStore()
    for skew, state in (
        (None, State.HEALTHY),
        (4.9, State.HEALTHY),
        (-5.1, State.UNAVAILABLE),
        (60.0, State.UNAVAILABLE),
    ):
        store.clock_skew_seconds = skew
        assert clock_finding(store).state is state
