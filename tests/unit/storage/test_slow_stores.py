"""Slow or cold partitions do not delay appends to other partitions, or fetches of their records."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import Refused
from kafscale.metadata.memory import no_answer
from kafscale.objects.memory import Fault
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import FetchRequest, PartitionAppend, PartitionFetch, PartitionFetched
from tests.support.storage.harness import Caller, World, batch, siblings, state_key, values
from tests.unit.storage.test_failing_stores import UnhealthyWorld, slow_down


async def test_a_slow_take_over_delays_appends_to_other_partitions_only_once(autojump_clock: MockClock) -> None:
    world = UnhealthyWorld()
    world.wrap()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        here, slow = siblings(ref, 2)
        # A slow take-over within the wait causes no refusal.
        world.bare.plan = lambda call: Fault(delay=0.3)
        assert (await caller.append(here, batch(b"first"))).status == Status.OK
        world.bare.plan = slow_down
        began, longest = trio.current_time(), []
        while trio.current_time() < began + 60:
            sent = trio.current_time()
            refused, taken = (
                await caller.send(
                    PartitionAppend(partition=slow, records=batch(b"refused")),
                    PartitionAppend(partition=here, records=batch(b"taken")),
                )
            ).results
            assert (refused.status, taken.status) == (Status.UNAVAILABLE, Status.OK)
            longest.append(trio.current_time() - sent)
            await trio.sleep(0.1)
        assert longest[0] == pytest.approx(0.5)
        assert max(longest[1:]) == pytest.approx(0)
        # The take-over continues in the background, without another append.
        world.bare.plan = None
        await trio.sleep(30)
        before = trio.current_time()
        assert (await caller.append(slow, batch(b"kept"))).status == Status.OK
        assert trio.current_time() == before


async def test_appends_wait_for_a_take_over_if_the_last_failure_was_long_ago(autojump_clock: MockClock) -> None:
    world = UnhealthyWorld()
    world.wrap()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await trio.sleep(1)
        world.metadata.faults.append(no_answer(key=state_key(ref)))
        assert (await caller.append(ref, batch(b"refused"))).status == Status.UNAVAILABLE
        await trio.sleep(60)
        world.bare.plan = lambda call: Fault(delay=0.3)
        assert (await caller.append(ref, batch(b"taken"))).status == Status.OK


async def _write_topic(world: World, partitions: int) -> list[PartitionRef]:
    """Write two segments to each partition of a new topic, with an instance that stops afterwards."""
    async with world.service() as (caller, catalog):
        refs = siblings(await world.topic(catalog, partitions=partitions), partitions)
        for ref in refs:
            await caller.fill(ref, 2)
    return refs


async def _fetch(caller: Caller, refs: list[PartitionRef], offset: int = 0) -> Sequence[PartitionFetched]:
    """Fetch all partitions with one request, within a gateway's timeout. ``offset`` is for the last partition."""
    fetches = [PartitionFetch(partition=ref, max_bytes=1 << 16, leader_epoch=-1) for ref in refs]
    fetches[-1].offset = offset
    request = FetchRequest(stream_id=caller.stream_id, max_bytes=1 << 20, fetches=fetches)
    with trio.fail_after(30):
        return (await caller.storage.fetch(request, timeout=30)).results


async def test_cached_records_are_returned_next_to_an_unreadable_partition(autojump_clock: MockClock) -> None:
    world = UnhealthyWorld()
    refs = await _write_topic(world, 3)
    world.wrap()
    async with world.service() as (caller, _):
        for ref in refs:
            assert (await caller.offset_at(ref, -1)).offset == 400
        assert await caller.durable(await caller.append(refs[-1], batch(b"cached")), refs[-1])
        world.bare.plan = slow_down
        for _ in range(5):
            began = trio.current_time()
            *cold, cached = await _fetch(caller, refs, 400)
            assert [found.status for found in cold] == [Status.UNAVAILABLE] * 2
            assert (cached.status, values(cached.records)) == (Status.OK, [b"cached"])
            assert trio.current_time() - began == pytest.approx(1.5)


async def test_cold_partitions_are_read_concurrently_and_beyond_the_timeout(autojump_clock: MockClock) -> None:
    refs = await _write_topic(world := World(), 4)
    async with world.service(fetch_read_timeout_ms=1_500) as (caller, _):
        for ref in refs:
            assert (await caller.offset_at(ref, -1)).offset == 400
        world.objects.plan = lambda call: Fault(delay=1)
        began = trio.current_time()
        for _ in range(20):
            if all(found.status == Status.OK for found in await _fetch(caller, refs)):
                break
            await trio.sleep(0.1)
        # Each partition takes several sequential requests, which are not repeated.
        assert 3 <= trio.current_time() - began <= 6
        assert world.objects.count("get_range") < 4 * 5


async def test_fetches_that_wait_for_the_store_are_bounded(autojump_clock: MockClock) -> None:
    (ref,) = await _write_topic(world := World(), 1)
    async with world.service(reads_in_flight=1, fetch_read_timeout_ms=100) as (caller, _):
        assert (await caller.offset_at(ref, -1)).offset == 400
        world.objects.plan = lambda call: Fault(delay=100)
        details = [(await caller.fetch(ref, offset)).detail for offset in range(40)]
        assert len(set(details[:32])) == len(set(details[32:])) == 1
        assert "too many" in details[32]
        world.objects.plan = None
        await trio.sleep(1_000)
        assert (await caller.fetch(ref, 0)).status == Status.OK


async def test_cached_records_are_returned_next_to_a_partition_that_the_store_refuses(
    autojump_clock: MockClock,
) -> None:
    world = World()
    refs = await _write_topic(world, 2)
    async with world.service() as (caller, _):
        for ref in refs:
            assert (await caller.offset_at(ref, -1)).offset == 400
        assert await caller.durable(await caller.append(refs[-1], batch(b"cached")), refs[-1])
        world.objects.plan = lambda call: Fault(error=Refused("403")) if call.kind.startswith("get") else None
        cold, cached = await _fetch(caller, refs, 400)
        assert cold.status == Status.UNAVAILABLE
        assert (cached.status, values(cached.records)) == (Status.OK, [b"cached"])
        assert (await caller.offset_at(refs[0], 1)).status == Status.UNAVAILABLE
