"""Restores from the bucket alone of clusters whose last acknowledged records are only in intakes."""

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Put
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.memory import Call, Fault
from kafscale.v1.common_pb2 import Status
from kafscale_tools.recovery.restore import Undecided
from services.storage.settings import StorageSettings
from tests.support.storage.harness import NAMESPACE, World, batch, siblings
from tests.support.storage.sequences import numbers, send
from tests.unit.recovery.restoring import acked, backed_up, prepared, restored, state_of, topic_with_record

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
        ref = await topic_with_record(world, caller, catalog)
        # Stored as a segment, but neither in the intake nor committed.
        world.objects.plan = lambda call: Fault(hold=trio.Event()) if "~intake" in call.key else None
        await caller.append(ref, batch(b"never acknowledged"))
        run = caller.service.current
        assert run is not None
        partition = run.owned.get((ref.topic_id, ref.partition))
        assert partition is not None
        partition.state_revision += 1000
        run.buffers.seal(partition, "request")
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
        ref = await topic_with_record(world, caller, catalog)
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
        ref = await topic_with_record(world, caller, catalog)
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


def _no_segments(call: Call) -> Fault | None:
    return Fault(hold=trio.Event()) if "/segment-" in call.key and call.kind == "put_if_absent" else None


async def _older(world: World) -> MemoryMetadataStore:
    """Return a copy of the metadata without the keys of live processes, as in a snapshot of etcd."""
    copy = MemoryMetadataStore()
    for item in (await world.metadata.read_prefix("")).items:
        if not item.lease:
            await copy.txn((), [Put(item.key, item.value)])
    return copy


async def test_a_snapshot_that_is_older_than_the_intakes_loses_no_record(autojump_clock: MockClock) -> None:
    world = _world()
    async with world.service(graceful=False) as (caller, catalog):
        first, second, _ = siblings(await world.topic(catalog), 3)
        await acked(caller, first, b"0")
        await caller.flush(first)
        await acked(caller, second, b"0")
        await trio.sleep(10)
        await backed_up(world)
        await acked(caller, first, b"1")
    async with world.service(graceful=False) as (caller, _):
        await trio.sleep(30)
        await acked(caller, first, b"2")
        await acked(caller, second, b"1")
        await caller.flush(first)
        await acked(caller, first, b"3")
        third = caller.run_id
    rebuilt = await restored(world)
    assert not rebuilt.damaged
    assert third in rebuilt.runs
    async with world.service() as (caller, _):
        assert await caller.read_all(first) == [b"0", b"1", b"2", b"3"]
        assert await caller.read_all(second) == [b"0", b"1"]


async def test_an_older_etcd_snapshot_serves_nothing_until_it_is_replaced(autojump_clock: MockClock) -> None:
    world = _world()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        await trio.sleep(10)
        older = await _older(world)
    async with world.service(graceful=False) as (caller, _):
        await trio.sleep(30)
        await acked(caller, ref, b"1")
        newer = caller.run_id
    world.metadata = older
    async with world.service(graceful=False) as (caller, _):
        await trio.sleep(30)
        refused = await caller.append(ref, batch(b"never acknowledged"))
        assert refused.status == Status.DAMAGED
        assert newer in refused.detail
        await trio.sleep(1)
    # The processes that are stopped now have a lease until it expires.
    world.metadata = await _older(world)
    restore, rebuilt = await prepared(world, newest=False, overwrite=True)
    await restore.write(rebuilt)
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"0", b"1"]
        await acked(caller, ref, b"2")


async def test_a_state_that_names_a_removed_intake_is_of_rolled_back_metadata(autojump_clock: MockClock) -> None:
    world = _world()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        await trio.sleep(10)
        older, ended = await _older(world), caller.run_id
        await acked(caller, ref, b"1")
    async with world.service(retention_check_ms=10_000) as (caller, _):
        await trio.sleep(60)
        assert await caller.read_all(ref) == [b"0", b"1"]
        assert await world.metadata.get(paths.intake_register_key(NAMESPACE, ended)) is None
        own = caller.run_id
    # The segment with the run's records is above the end in the older metadata. Only the mark shows the rollback.
    await world.objects.put_if_absent(str(paths.IntakeKey(NAMESPACE, own, None)), b"0")
    world.metadata = older
    async with world.service() as (caller, _):
        await trio.sleep(30)
        refused = await caller.append(ref, batch(b"never acknowledged"))
        assert (refused.status, "rolled back" in refused.detail) == (Status.DAMAGED, True)


@pytest.mark.parametrize("known", ["snapshot", "metadata"])
async def test_a_forgotten_process_that_has_put_nothing_is_stopped(autojump_clock: MockClock, known: str) -> None:
    world = _world()
    async with world.service() as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        await trio.sleep(10)
    async with world.service() as (caller, catalog):
        assert await caller.read_all(ref) == [b"0"]
        await backed_up(world)
        assert not await world.objects.list_from(paths.intake_prefix(NAMESPACE, caller.run_id))
        world.metadata = MemoryMetadataStore() if known == "snapshot" else await _older(world)
        restore, rebuilt = await prepared(world, newest=known == "snapshot", overwrite=known == "metadata")
        await restore.write(rebuilt)
        # Its metadata store in this test is still the old one, in which it could commit a segment.
        world.objects.plan = _no_segments
        late = await caller.append(ref, batch(b"1"))
        with trio.fail_after(60):
            await caller.ended.wait()
        assert not any(news.high_watermark >= late.end_offset for news in caller.news)
    world.objects.plan = None
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"0"]
        await acked(caller, ref, b"2")


async def test_a_topic_that_is_only_in_an_intake_is_not_forgotten(autojump_clock: MockClock) -> None:
    world = _world()
    async with world.service(graceful=False) as (caller, catalog):
        await acked(caller, await world.topic(catalog), b"0")
        await trio.sleep(10)
        world.objects.plan = _no_segments
        young = await world.topic(catalog, "young", partitions=2)
        await acked(caller, siblings(young, 2)[1], b"a", b"b")
        await acked(caller, await world.topic(catalog, "other", partitions=1), b"x")
    world.objects.plan = None
    await world.objects.delete_many(paths.topic_object_key(NAMESPACE, name) for name in ("young", "other"))
    world.metadata = MemoryMetadataStore()
    for adopt, ignore, named in (((), (), "other, young"), (("young",), (), "other")):
        with pytest.raises(Undecided, match=f"no topic objects of {named}:"):
            await prepared(world, adopt, ignore)
    restore, rebuilt = await prepared(world, ["young"], ["other"])
    assert not rebuilt.damaged
    await restore.write(rebuilt)
    async with world.service() as (caller, catalog):
        found = catalog.view.live("young")
        assert found is not None
        assert (found.id, found.partitions) == (young.topic_id, 2)
        assert await caller.read_all(siblings(young, 2)[1]) == [b"a", b"b"]
        assert catalog.view.live("other") is None


async def test_a_topic_that_was_created_again_is_not_taken_for_the_earlier_one(autojump_clock: MockClock) -> None:
    world = _world()
    async with world.service(graceful=False) as (caller, catalog):
        await acked(caller, await world.topic(catalog, partitions=1), b"earlier")
        await trio.sleep(10)
        await backed_up(world)
        old = (await world.objects.get(paths.topic_object_key(NAMESPACE, "orders"))).body
        await catalog.mark_deleting("orders")
        await catalog.wait_free("orders")
        again = await world.topic(catalog, partitions=1)
        await acked(caller, again, b"later")
    # The deletion of the earlier object and the later one are lost.
    await world.objects.delete_many([paths.topic_object_key(NAMESPACE, "orders")])
    await world.objects.put_if_absent(paths.topic_object_key(NAMESPACE, "orders"), old)
    world.metadata = MemoryMetadataStore()
    with pytest.raises(Undecided, match="orders"):
        await prepared(world)
    restore, rebuilt = await prepared(world, ["orders"])
    await restore.write(rebuilt)
    async with world.service() as (caller, catalog):
        assert await caller.read_all(again) == [b"later"]


async def test_partitions_that_were_added_just_before_the_loss_are_restored(autojump_clock: MockClock) -> None:
    world = _world()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        await acked(caller, ref, b"0")
        await trio.sleep(10)
        key = paths.topic_object_key(NAMESPACE, ref.topic)
        old = (await world.objects.get(key)).body
        world.objects.plan = _no_segments
        await catalog.grow(ref.topic_id, 3)
        await acked(caller, siblings(ref, 2)[1], b"1")
    world.objects.plan = None
    await world.objects.delete_many([key])
    await world.objects.put_if_absent(key, old)
    await restored(world)
    async with world.service() as (caller, _):
        assert [await caller.read_all(each) for each in siblings(ref, 2)] == [[b"0"], [b"1"]]


async def test_a_cluster_goes_on_with_intakes_when_all_earlier_ones_are_removed(autojump_clock: MockClock) -> None:
    world = _world()
    async with world.service() as (caller, catalog):
        await acked(caller, await world.topic(catalog), b"0")
        await trio.sleep(10)
        run_id = caller.run_id
    await world.objects.put_if_absent(str(paths.IntakeKey(NAMESPACE, run_id, None)), b"0")
    rebuilt = await restored(world, newest=False)
    assert (rebuilt.runs, rebuilt.state_format) == ([], 2)
