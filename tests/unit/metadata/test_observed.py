"""The health of a metadata store: answers, failures, and how long there were no answers."""

import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import Unavailable
from kafscale.metadata.interface import LeaseNotFound
from kafscale.metadata.memory import MemoryMetadataStore, lost_answer, no_answer
from kafscale.metadata.observed import MetadataHealth, ObservedMetadataStore
from kafscale.telemetry import State


async def test_the_state_follows_the_time_without_an_answer(autojump_clock: MockClock) -> None:
    bare, health = MemoryMetadataStore(), MetadataHealth()
    store = ObservedMetadataStore(bare, health)
    assert health.finding().state is State.HEALTHY
    bare.faults.append(no_answer(times=10))
    states = []
    for _ in range(10):
        with pytest.raises(Unavailable):
            await store.get("x")
        states.append(health.finding().state)
        await trio.sleep(1)
    assert states == [State.DEGRADED] * 5 + [State.UNAVAILABLE] * 5
    assert "no answer for 10 s" in health.finding().reason
    await store.get("x")
    assert health.finding().state is State.HEALTHY
    assert health.operations == {("get", "unavailable"): 10, ("get", "ok"): 1}


async def test_a_refusal_counts_as_an_answer_and_a_broken_watch_does_not(autojump_clock: MockClock) -> None:
    bare, health = MemoryMetadataStore(), MetadataHealth()
    store = ObservedMetadataStore(bare, health)
    with pytest.raises(LeaseNotFound):
        await store.keep_alive(4711)
    assert health.finding().state is State.HEALTHY
    assert health.operations["keep_alive", "refused"] == 1
    bare.faults.append(lost_answer("txn"))
    with pytest.raises(Unavailable):
        await store.txn((), ())
    assert health.finding().state is State.DEGRADED
    await store.grant_lease(10)
    bare.faults.append(no_answer("watch"))
    async with store.watch("x", 1) as watch:
        with pytest.raises(Unavailable):
            await watch.next()
    assert health.finding().state is State.DEGRADED
    assert health.operations["watch", "unavailable"] == 1
    assert "watch" not in health.seconds
