"""Counters of a storage instance: data in and out, and flushes by trigger."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kafscale.v1.common_pb2 import Status
from tests.support.storage.harness import World, batch

_FULL = 10_000


@pytest.mark.parametrize(
    ("trigger", "sizes"),
    [("size", [_FULL]), ("interval", [100]), ("quiet", [3_000]), ("request", [100]), ("hand_over", [100])],
)
async def test_flushes_are_counted_by_trigger(trigger: str, sizes: list[int], autojump_clock: MockClock) -> None:
    world = World(intake=False)
    settings: dict[str, Any] = {"segment_bytes": _FULL, "early_flush_bytes": 2_000, "flush_interval_ms": 60_000}
    async with world.service(**settings) as (caller, catalog):
        ref = await world.topic(catalog)
        # The first append is stored at once because the interval counts from the last flush.
        assert await caller.durable(await caller.append(ref, batch(b"first")))
        assert world.counters.flushes == {"interval": 1}
        for size in sizes:
            appended = await caller.append(ref, batch(b"x" * size))
        if trigger == "request":
            await caller.flush(ref)
        elif trigger != "hand_over":
            assert await caller.durable(appended)
    world.counters.flushes["interval"] -= 1
    assert +world.counters.flushes == {trigger: 1}


async def test_appended_and_fetched_data_is_counted_once(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        records = batch(b"a", b"b") + batch(b"c")
        assert await caller.durable(await caller.append(ref, records))
        assert (world.counters.appended_bytes, world.counters.appended_records) == (len(records), 3)
        assert (await caller.append(ref, b"no batch")).detail
        assert world.counters.appended_records == 3
        for _ in range(2):
            assert len((await caller.fetch(ref, 0)).records) == len(records)
        assert world.counters.fetched_bytes == 2 * len(records)
        assert not (await caller.fetch(ref, 3)).records
        assert world.counters.fetched_bytes == 2 * len(records)


async def test_the_time_of_a_take_over_includes_failed_attempts(autojump_clock: MockClock) -> None:
    world = World()
    seconds = world.counters.take_over_seconds
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"x")))
    assert (sum(seconds.counts), seconds.total) == (1, 0)
    async with world.service(graceful=False) as (caller, _):
        began = trio.current_time()
        # The dead owner's lease must expire first.
        while (await caller.fetch(ref, 0)).status != Status.OK:  # retried as by a gateway
            await trio.sleep(0.1)
            # Also between two attempts.
            assert caller.service.current is not None
            assert caller.service.current.owned.loading == 1
        assert caller.service.current is not None
        assert caller.service.current.owned.loading == 0
        assert sum(seconds.counts) == 2
        assert 1 < seconds.total <= trio.current_time() - began
