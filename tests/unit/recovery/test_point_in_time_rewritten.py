"""Copies of topics whose logs were rewritten."""

import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import CorruptData
from kafscale.metadata.interface import Put
from kafscale.objects.memory import Call, Fault
from kafscale.v1.common_pb2 import PartitionRef
from kafscale_tools.recovery.claim import CopiedLog
from tests.support.storage.harness import World, state_key
from tests.unit.recovery.copying import ALL, copied, copying, new_topic, stored, timed
from tests.unit.recovery.restoring import restored, state_of
from tests.unit.recovery.rewriting import delete_segments, rewrite, rewritten_keys

TIMES = [10, 20, 30, 40, 50, 60, 70, 80]


async def source(world: World) -> PartitionRef:
    """Return a partition with two records in each of eight segments, while no service runs."""
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, partitions=1, configs={"retention.ms": "-1"})
        await stored(caller, ref, *(timed(time, time + 5) for time in TIMES))
    return ref


async def copy_read(world: World, until_ms: int) -> tuple[CopiedLog, list[bytes | None]]:
    """Copy the topic. Return what was made, and what a service and, after a restore, another one read of it."""
    async with world.service() as (caller, catalog):
        (made,) = await copied(world, until_ms)
        (ref,) = await new_topic(catalog)
        read = await caller.read_all(ref, made.start)
        await stored(caller, ref, timed(1000))
        assert await caller.read_all(ref, made.start) == [*read, b"1000"]
        await trio.sleep(10)
    rebuilt = await restored(world)
    assert rebuilt.damaged == []
    async with world.service() as (caller, catalog):
        assert await caller.read_all(ref, made.start) == [*read, b"1000"]
    return made, read


async def test_a_rewritten_log_is_copied_with_what_it_lacks(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    ref = await source(world)
    await rewrite(world, ref, 0, 4, 8, 12, keep=lambda offset: offset in {0, 10})
    await delete_segments(world, ref, 12)
    made, read = await copy_read(world, ALL)
    assert (made.start, made.end, made.left_out, made.segments) == (0, 16, 0, 4)
    assert read == [b"10", b"15", b"60", b"65", b"70", b"75", b"80", b"85"]
    assert [(key.base_offset, key.next_offset) for key in await rewritten_keys(world, ref)] == [(0, 4), (8, 12)]


@pytest.mark.parametrize(("until_ms", "end"), [(15, 2), (30, 5), (35, 6), (59, 6), (60, 11), (69, 12), (70, 13)])
async def test_a_rewritten_log_is_cut_at_the_first_later_record(
    autojump_clock: MockClock, until_ms: int, end: int
) -> None:
    world = World(intake=False)
    ref = await source(world)
    await rewrite(world, ref, 0, 4, 8, 12, keep=lambda offset: offset not in {6, 8})
    await delete_segments(world, ref, 12)
    made, read = await copy_read(world, until_ms)
    assert made.end == end
    kept = [time for time in TIMES if time not in {40, 50}]
    assert read == [b"%d" % time for first in kept for time in (first, first + 5) if time <= until_ms]


async def test_a_copy_of_a_rewritten_log_begins_at_the_log_start(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    ref = await source(world)
    await rewrite(world, ref, 0, 8, 12)
    await delete_segments(world, ref, 12)
    state = await state_of(world, ref)
    state.log_start = 5
    await world.metadata.txn([], [Put(state_key(ref), state.SerializeToString())])
    made, read = await copy_read(world, ALL)
    assert (made.start, made.end) == (5, 16)
    # The batch with the log start is copied completely.
    assert read[:3] == [b"30", b"35", b"40"]


@pytest.mark.parametrize("replaced", [True, False])
async def test_a_copy_goes_on_while_the_source_is_rewritten(autojump_clock: MockClock, replaced: bool) -> None:
    """``replaced``: with objects that are still to be copied. Otherwise only with segments behind them."""
    world = World(intake=False)
    ref = await source(world)
    await rewrite(world, ref, 0, 4, 8)
    await delete_segments(world, ref, 8)
    copy = copying(world, ALL)
    logs = await copy.plan()
    old = await rewritten_keys(world, ref)

    async def rewritten_meanwhile() -> None:
        await rewrite(world, ref, 0, 6, 14, attempt=2)
        await world.objects.delete_many([str(key) for key in old] if replaced else [])
        await delete_segments(world, ref, 14)

    at_the_second, done = trio.Event(), trio.Event()

    def plan(call: Call) -> Fault | None:
        if call.key == str(old[1]) and call.kind == "get" and not done.is_set():
            at_the_second.set()
            return Fault(hold=done)
        return None

    world.objects.plan = plan
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def change() -> None:
            await at_the_second.wait()
            world.objects.plan = None
            await rewritten_meanwhile()
            done.set()

        (made,) = await copy.copy(logs, lambda _: None)
    assert (made.start, made.end) == (0, 16)
    async with world.service() as (caller, catalog):
        (into,) = await new_topic(catalog)
        assert await caller.read_all(into) == await caller.read_all(ref)


async def test_a_missing_object_of_a_rewritten_log_fails_the_copy(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    ref = await source(world)
    await rewrite(world, ref, 0, 4, 8)
    await world.objects.delete_many([str(key) for key in (await rewritten_keys(world, ref))[1:]])
    with pytest.raises(CorruptData, match="orders-0: the object with offset 4 is missing"):
        await copied(world, ALL)
