"""Restores from the bucket alone of clusters whose last acknowledged records are only in intakes."""

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.memory import Fault
from services.storage.settings import StorageSettings
from tests.support.storage.harness import NAMESPACE, World, batch, siblings
from tests.support.storage.sequences import numbers, send
from tests.unit.recovery.restoring import acked, backed_up, prepared, restored, state_of

SLOW_SEGMENTS = StorageSettings(compression_codec="producer", retention_ms=-1, segment_interval_ms=3_600_000)


def _world() -> World:
    return World(SLOW_SEGMENTS, intake=True)


async def test_records_that_are_only_in_intakes_are_restored(autojump_clock: MockClock) -> None:
    world = _world()
    async with world.service(graceful=False) as (caller, catalog):
        first, second, _ = siblings(await world.topic(catalog), 3)
        for ref in (first, second):
            await acked(caller, ref, b"in a segment")
            await caller.flush(ref)
        await acked(caller, first, b"a", b"b")
        await acked(caller, second, b"x")
        await trio.sleep(10)
        lost = caller.run_id
    rebuilt = await restored(world)
    assert not rebuilt.damaged
    state = await state_of(world, first)
    assert (state.high_watermark, state.tail.run_id, state.tail.end) == (1, lost, 3)
    async with world.service(retention_check_ms=10_000) as (caller, _):
        assert await caller.read_all(first) == [b"in a segment", b"a", b"b"]
        assert await caller.read_all(second) == [b"in a segment", b"x"]
        await acked(caller, first, b"c")
        await acked(caller, second, b"y")
        assert await caller.read_all(first) == [b"in a segment", b"a", b"b", b"c"]
        await trio.sleep(60)
        assert await world.metadata.get(paths.intake_register_key(NAMESPACE, lost)) is None, "it is removed afterwards"


@pytest.mark.parametrize("intake", [False, True])
async def test_a_restore_keeps_the_state_format_of_the_snapshot(intake: bool, autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=intake)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await acked(caller, ref, b"in a segment")
        await caller.flush(ref)
        await backed_up(world)
    await world.objects.delete_many(
        [info.key for info in await world.objects.list_from(paths.intakes_prefix(NAMESPACE))]
    )
    before = 2 if intake else 1
    assert (await restored(world)).state_format == before
    assert (await TopicCatalog(world.metadata, NAMESPACE).cluster()).state_format == before


async def test_idempotent_producers_go_on_after_a_restore(autojump_clock: MockClock) -> None:
    world = _world()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.durable(await send(caller, ref, 0), ref)
        await caller.flush(ref)
        await caller.durable(await send(caller, ref, 1), ref)
        await trio.sleep(10)
    await restored(world)
    async with world.service() as (caller, _):
        repeated = await send(caller, ref, 1)
        assert (repeated.base_offset, await caller.durable(repeated, ref)) == (1, True)
        assert await caller.durable(await send(caller, ref, 2), ref)
        assert await caller.read_all(ref) == numbers(3)


async def test_a_segment_that_was_not_committed_does_not_replace_acknowledged_records(
    autojump_clock: MockClock,
) -> None:
    world = _world()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        await acked(caller, ref, b"0")
        await caller.flush(ref)
        # Stored as a segment, but neither in the intake nor committed.
        world.objects.plan = lambda call: Fault(hold=trio.Event()) if "~intake" in call.key else None
        await caller.append(ref, batch(b"never acknowledged"))
        run = caller.service.current
        assert run is not None
        partition = run.owned.get((ref.topic_id, ref.partition))
        assert partition is not None
        partition.state_revision += 1000
        run.seal(partition, "request")
        await trio.sleep(2)
    world.objects.plan = None
    async with world.service(graceful=False) as (caller, _):
        await trio.sleep(20)
        await acked(caller, ref, b"1", b"2")
        await trio.sleep(10)
    assert not (await restored(world)).damaged
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"0", b"1", b"2"]


async def test_a_restore_stops_processes_that_were_forgotten(autojump_clock: MockClock) -> None:
    world = _world()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await acked(caller, ref, b"0")
        await caller.flush(ref)
        await trio.sleep(10)
        world.metadata = MemoryMetadataStore()
        restore, rebuilt = await prepared(world, newest=False)
        await acked(caller, ref, b"1")
        with pytest.raises(Unavailable, match="stop all processes"):
            await restore.write(rebuilt)
        late = await caller.append(ref, batch(b"2"))
        await caller.ended.wait()
        assert not any(news.high_watermark >= late.end_offset for news in caller.news)
        restore, rebuilt = await prepared(world, newest=False)
        await restore.write(rebuilt)
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"0", b"1"]


async def test_a_missing_object_is_reported_and_what_is_before_it_is_restored(autojump_clock: MockClock) -> None:
    world = _world()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        await acked(caller, ref, b"0")
        await caller.flush(ref)
        for value in range(1, 8):
            await acked(caller, ref, b"%d" % value)
        await trio.sleep(10)
        lost = paths.intake_key(NAMESPACE, caller.run_id, 3)
    await world.objects.delete_many([lost])
    rebuilt = await restored(world)
    (fault,) = rebuilt.damaged
    assert "object 3 of the intake" in fault
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"0", b"1"]
