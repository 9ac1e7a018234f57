"""Records that are not put twice, buffers that become segments early, and scans of what is durable only."""

import pytest
import trio
from trio.testing import MockClock

from kafscale.objects.memory import Fault
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import PartitionAppend
from services.storage.settings import StorageSettings
from tests.support.storage.cluster import cluster
from tests.support.storage.harness import Caller, World, batch, siblings
from tests.support.storage.sinking import commit, staged

SLOW_SEGMENTS = StorageSettings(compression_codec="producer", retention_ms=-1, segment_interval_ms=3_600_000)
FULL = 100_000


def _sizes(world: World, kind: str) -> list[int]:
    return [call.size for call in world.objects.calls if call.kind == "put_if_absent" and kind in call.key]


def _owned_bytes(caller: Caller) -> int:
    run = caller.service.current
    assert run is not None
    return run.buffers.size


async def test_a_full_buffer_is_put_once_as_a_segment(autojump_clock: MockClock) -> None:
    async with (world := World(SLOW_SEGMENTS)).service(segment_bytes=FULL) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"first")))
        # They arrive in one message, so that no object can be put between two of them.
        parts = [PartitionAppend(partition=ref, records=batch(b"x" * (FULL // 4))) for _ in range(5)]
        appended = (await caller.send(*parts)).results
        assert await caller.durable(appended[-1], ref)
        assert sum(_sizes(world, "~intake")) < FULL // 2
        assert max(_sizes(world, ".kfs")) > FULL
        assert len(await caller.read_all(ref)) == 6


async def test_records_that_wait_too_long_for_their_segment_are_put_into_the_intake(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS)
    async with world.service(
        graceful=False, segment_bytes=FULL, intake_puts_per_second=1, intake_put_burst=1, intake_put_bytes=1 << 20
    ) as (
        caller,
        catalog,
    ):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"first")))
        world.objects.plan = lambda call: Fault(hold=trio.Event()) if call.key.endswith(".kfs") else None
        appended = [await caller.append(ref, batch(b"%d" % number * (FULL // 4))) for number in range(6)]
        began = trio.current_time()
        assert await caller.durable(appended[-1], ref)
        assert 1 < trio.current_time() - began < 5
    world.objects.plan = None
    async with world.service() as (caller, _):
        await trio.sleep(30)
        assert len(await caller.read_all(ref)) == 7


async def test_open_buffers_become_segments_before_they_fill_the_memory(autojump_clock: MockClock) -> None:
    async with (world := World(SLOW_SEGMENTS)).service(buffer_bytes=10 * FULL) as (caller, catalog):
        refs = siblings(await world.topic(catalog, partitions=20), 20)
        for _ in range(4):
            for ref in refs:
                appended = await caller.append(ref, batch(b"x" * (FULL // 4)))
                assert appended.status == Status.OK
                assert not appended.hold_until
                assert await caller.durable(appended, ref)
            await trio.sleep(0.1)
            assert _owned_bytes(caller) < 3 * FULL
        assert world.counters.flushes["memory"] > 0


async def test_a_plan_on_any_instance_has_all_durable_records(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS)
    async with cluster(world, "a:1", "b:1") as two:
        refs = siblings(await world.topic(two.instances[0].catalog, partitions=4), 4)
        for round_number in (1, 2):
            for ref in refs:
                await two.append_durably(ref, batch(b"x"))
            for instance in two.instances:
                began = trio.current_time()
                plans = await instance.caller.plan(*refs)
                assert [plan.high_watermark for plan in plans] == [round_number] * 4
                assert trio.current_time() - began < 2
    assert len([key for key in _sizes(world, ".kfs") if key]) == 8


async def test_a_plan_does_not_wait_for_an_owner_that_is_gone(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS)
    async with cluster(world, "a:1", "b:1") as two:
        a, b = two.instances
        refs = siblings(await world.topic(a.catalog, partitions=4), 4)
        for ref in refs:
            await two.append_durably(ref, batch(b"x"))
        await b.kill()
        began = trio.current_time()
        assert all(plan.status == Status.OK for plan in await a.caller.plan(*refs))
        assert trio.current_time() - began < 5


async def _producing(caller: Caller, ref: PartitionRef) -> None:
    while True:
        await caller.append(ref, batch(b"x"))
        await trio.sleep(0.02)


@pytest.mark.parametrize("intake", [True, False])
@pytest.mark.parametrize("plan", [True, False])
async def test_flushes_do_not_wait_for_records_that_arrive_later(
    autojump_clock: MockClock, *, intake: bool, plan: bool
) -> None:
    world = World(SLOW_SEGMENTS, intake=intake)
    async with (
        world.service(flush_interval_ms=10_000, segment_interval_ms=10_000) as (caller, catalog),
        trio.open_nursery() as nursery,
    ):
        refs = siblings(await world.topic(catalog), 3)
        for ref in refs:
            await caller.append(ref, batch(b"first"))
        await trio.sleep(11)
        world.objects.plan = lambda call: Fault(delay=0.2) if call.key.endswith(".kfs") else None
        for ref in refs:
            nursery.start_soon(_producing, caller, ref)
        await trio.sleep(1)
        began = trio.current_time()
        if plan:
            await caller.plan(*refs)
        else:
            await caller.flush(*refs)
        assert trio.current_time() - began < 2
        nursery.cancel_scope.cancel()


async def test_sinks_fill_a_quarter_of_the_buffers_although_their_epochs_are_applied(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS)
    async with world.service(graceful=False, buffer_bytes=1_000_000) as (caller, catalog):
        refs = siblings(await world.topic(catalog, partitions=6), 6)
        world.objects.plan = lambda call: Fault(hold=trio.Event()) if call.key.endswith(".kfs") else None
        for epoch, ref in enumerate(refs):
            made = await staged(caller, ref, batch(bytes(90_000)), epoch=epoch)
            await commit(caller, made, epoch=epoch, wait_ms=1_000)
            run = caller.service.current
            assert run is not None
            assert sum(partition.buffer.staged_bytes for partition in run.owned) <= 250_000
