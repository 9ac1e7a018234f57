"""Restores from the bucket alone of logs that were rewritten: nothing of them is lost, and nothing comes back."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.objects.memory import Call, Fault
from kafscale.rewritten.keys import RewrittenKey, RootKey
from kafscale.rewritten.root import Entry, Root, build_root, parse_root, stored_crc
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import EpochHistory
from kafscale_tools.recovery.chain import Found
from kafscale_tools.recovery.rebuild import LogFound, Rebuilt
from kafscale_tools.recovery.rewritten import RewrittenObjects, RootFound, StoredObject
from tests.support.samples.segments import small_segment
from tests.support.storage.harness import NAMESPACE, World, batch, siblings
from tests.support.storage.sequences import flushed, numbers, send
from tests.support.storage.sinking import commit, sink_record, staged
from tests.unit.recovery.restoring import acked, backed_up, restored, state_of
from tests.unit.recovery.rewriting import delete_segments, rewrite, rewritten_keys


async def log_of(world: World, segments: int = 20) -> PartitionRef:
    """Return a partition with a record in each segment, the later half of a second owner, while no service runs."""
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, configs={"retention.ms": "-1"})
        await flushed(caller, ref, range(segments // 2))
        await trio.sleep(10)
    async with world.service() as (caller, _):
        await flushed(caller, ref, range(segments // 2, segments))
    return ref


def only(rebuilt: Rebuilt) -> LogFound:
    return rebuilt.topics[0].logs[0]


def adopted(rebuilt: Rebuilt) -> RootKey | None:
    """Return the root to which the restored state refers."""
    part = only(rebuilt).rewritten
    return part.key if part is not None else None


async def corrupt(world: World, key: str) -> None:
    there = await world.objects.get(key)
    await world.objects.replace_if_match(key, b"?" + there.body[1:-1] + b"?", there.etag)


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_rewritten_log_is_restored_completely(autojump_clock: MockClock, snapshot: bool) -> None:
    world = World()
    ref = await log_of(world)
    root = await rewrite(world, ref, 0, 7, 15)
    await delete_segments(world, ref, 15)
    before = await state_of(world, ref)
    if snapshot:
        await backed_up(world)
    rebuilt = await restored(world)
    assert not rebuilt.damaged
    after = await state_of(world, ref)
    assert (after.format, after.root) == (3, before.root)
    assert (after.log_start, after.high_watermark, after.last_segment) == (0, 20, before.last_segment)
    assert after.producers_from >= 15
    assert rebuilt.state_format == 3
    assert only(rebuilt).chain.history() == [(1, 0), (2, 10)]
    assert adopted(rebuilt) == root
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == numbers(20)
        assert (await send(caller, ref, 19)).base_offset == 19, "it is recognized as a duplicate"
        await acked(caller, ref, b"later")
        assert await caller.read_all(ref) == [*numbers(20), b"later"]


async def test_offsets_without_records_are_no_holes(autojump_clock: MockClock) -> None:
    world = World()
    ref = await log_of(world)
    await rewrite(world, ref, 0, 5, 10, 15, keep=lambda offset: offset in {1, 14}, first_dirty=15)
    await delete_segments(world, ref, 15)
    rebuilt = await restored(world)
    assert not rebuilt.damaged
    chain = only(rebuilt).chain
    assert (chain.start, chain.end, chain.holes) == (0, 20, ())
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"1", b"14", *numbers(20)[15:]]


async def test_the_newest_root_wins_and_half_deleted_ones_do_not_count(autojump_clock: MockClock) -> None:
    world = World()
    ref = await log_of(world)
    await rewrite(world, ref, 0, 5, 10)
    second = await rewrite(world, ref, 0, 15, attempt=2)
    await delete_segments(world, ref, 15)
    (half, *_) = await rewritten_keys(world, ref)
    assert half.next_offset == 5
    await world.objects.delete_many([str(half)])
    assert adopted(await restored(world)) == second
    # The objects of the newest root are lost, and what it replaced is still there.
    world = World()
    ref = await log_of(world)
    first = await rewrite(world, ref, 0, 5, 10)
    await rewrite(world, ref, 0, 5, 10, 15, attempt=2)
    await delete_segments(world, ref, 10)
    await world.objects.delete_many([str(key) for key in await rewritten_keys(world, ref) if key.attempt == 2][1:])
    rebuilt = await restored(world)
    assert not rebuilt.damaged
    assert adopted(rebuilt) == first
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == numbers(20)


@pytest.mark.parametrize("damaged", [0, 1])
async def test_damaged_roots_are_reported_unless_they_were_replaced(autojump_clock: MockClock, damaged: int) -> None:
    world = World()
    ref = await log_of(world)
    roots = [await rewrite(world, ref, 0, 10), await rewrite(world, ref, 0, 10, 15, attempt=2)]
    await delete_segments(world, ref, 10)
    await corrupt(world, str(roots[damaged]))
    rebuilt = await restored(world)
    assert adopted(rebuilt) == roots[1 - damaged]
    assert [fault.startswith(f"object {roots[1]}: ") for fault in rebuilt.damaged] == [True] * damaged
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == numbers(20)


async def test_an_owner_accepts_a_log_whose_newer_roots_were_passed_over(autojump_clock: MockClock) -> None:
    """Two numbers above that of the state would look like old metadata."""
    world = World()
    ref = await log_of(world)
    await rewrite(world, ref, 0, 5, 10)
    for attempt in (2, 3):
        newer = await rewrite(world, ref, 0, 5, 10, 15, attempt=attempt)
    gone = [key for key in await rewritten_keys(world, ref) if key.attempt > 1 and key.base_offset > 0]
    await world.objects.delete_many(map(str, gone))
    rebuilt = await restored(world)
    assert not rebuilt.damaged
    state = await state_of(world, ref)
    assert (state.root.number, state.root.epoch, state.root.through) == (newer.number + 1, rebuilt.epoch, 10)
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == numbers(20)
    assert (await restored(world)).roots == {}, "the root that was stored is used again"


async def test_a_root_that_was_not_committed_does_no_harm(autojump_clock: MockClock) -> None:
    world = World()
    ref = await log_of(world)
    await rewrite(world, ref, 0, 5, 10)
    await rewrite(world, ref, 0, 15, attempt=2, commit=False)
    await delete_segments(world, ref, 10)
    await restored(world)
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == numbers(20)
    # The next owner deletes what a dead one left. The last root may remain longer than its objects.
    world = World()
    ref = await log_of(world)
    await rewrite(world, ref, 0, 5, 10)
    await rewrite(world, ref, 0, 5, 15, attempt=2, commit=False)
    await delete_segments(world, ref, 10)
    await world.objects.delete_many([str(key) for key in await rewritten_keys(world, ref) if key.attempt == 2][:1])
    rebuilt = await restored(world)
    assert (only(rebuilt).chain.start, rebuilt.damaged) == (0, [])
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == numbers(20)


async def test_roots_of_an_earlier_topic_do_not_count(autojump_clock: MockClock) -> None:
    world = World()
    ref = await log_of(world)
    root = Root(b"another topic id", 5, [Entry(0, 90, None)], [EpochHistory.Entry(epoch=1, first_offset=0)])
    key = RootKey(NAMESPACE, ref.topic, 0, 1, (await state_of(world, ref)).epoch, 7)
    await world.objects.put_if_absent(str(key), build_root(replace(root, number=1)))
    rebuilt = await restored(world)
    assert (only(rebuilt).chain.end, only(rebuilt).rewritten) == (20, None)
    found = RewrittenObjects(
        {RewrittenKey(NAMESPACE, ref.topic, 0, 0, 90, epoch, 1): StoredObject(1, 2, 3) for epoch in (7, 8)},
        roots=[RootFound(replace(key, epoch=epoch), 0, replace(root, topic_id=ref.topic_id)) for epoch in (7, 8)],
        damaged={replace(key, epoch=7, number=9): "damaged"},
    ).of_topic(ref.topic_id, 7)
    assert [each.key.epoch for each in found.roots] == [8]
    assert ([each.epoch for each in found.objects], found.highest_number) == ([8], 1)


async def test_retention_is_not_undone_by_older_roots(autojump_clock: MockClock) -> None:
    world = World()
    ref = await log_of(world)
    await rewrite(world, ref, 0, 5, 10)
    # Its owner knew that the log starts at 5.
    await rewrite(world, ref, 5, 10, 15, attempt=2)
    await delete_segments(world, ref, 10)
    rebuilt = await restored(world)
    assert (only(rebuilt).chain.start, rebuilt.damaged) == (5, [])
    # Retention has deleted the first object of the newest root.
    await world.objects.delete_many([str(key) for key in await rewritten_keys(world, ref) if key.base_offset < 10])
    rebuilt = await restored(world)
    assert (only(rebuilt).chain.start, rebuilt.damaged) == (10, [])


async def test_missing_objects_are_holes(autojump_clock: MockClock) -> None:
    world = World()
    ref = await log_of(world)
    await rewrite(world, ref, 0, 5, 10, 15)
    await delete_segments(world, ref, 15)
    await world.objects.delete_many([str(key) for key in await rewritten_keys(world, ref) if key.base_offset == 5])
    await world.objects.delete_many([paths.segment_key(NAMESPACE, ref.topic, 0, 15)])
    rebuilt = await restored(world)
    assert rebuilt.damaged == [f"orders-0: objects of offsets {at} are missing" for at in ("5 to 9", "15 to 15")]
    async with world.service() as (caller, _):
        assert (await caller.fetch(ref, 5)).status == Status.DAMAGED
        assert await caller.read_all(ref, 16) == numbers(20)[16:]


async def test_objects_whose_names_tile_the_log_are_enough(autojump_clock: MockClock) -> None:
    world = World()
    ref = await log_of(world)
    lost = [await rewrite(world, ref, 0, 5, 10, 12), await rewrite(world, ref, 0, 12, 15, attempt=2)]
    await delete_segments(world, ref, 15)
    for each in lost:
        await corrupt(world, str(each))
    rebuilt = await restored(world)
    assert [fault.split(":")[0] for fault in rebuilt.damaged] == [f"object {each}" for each in lost]
    state = await state_of(world, ref)
    ((key, data),) = rebuilt.roots.items()
    assert (await world.objects.get(key)).body == data
    assert (state.root.number, state.root.crc, state.root.through) == (3, stored_crc(data), 15)
    root = parse_root(data)
    assert [(one.start, one.end, one.found is None) for one in root.entries] == [(0, 12, False), (12, 15, False)]
    assert [(one.epoch, one.first_offset) for one in root.epochs] == [(1, 0), (2, 10)]
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == numbers(20)


async def test_leftover_objects_replace_no_segments(autojump_clock: MockClock) -> None:
    """They are those of a dead owner that stored no root."""
    world = World()
    ref = await log_of(world)
    root = await rewrite(world, ref, 3, 9, commit=False)
    await world.objects.delete_many([str(root)])
    rebuilt = await restored(world)
    assert (only(rebuilt).chain.start, only(rebuilt).rewritten, rebuilt.damaged) == (0, None, [])
    assert rebuilt.state_format == 3, "an instance has written states of this format"


async def test_segments_of_lower_epochs_do_not_follow_a_root(autojump_clock: MockClock) -> None:
    """A dead owner left one, and the root has batches of its successor."""
    world = World(intake=False)
    ref = await log_of(world)
    await rewrite(world, ref, 0, 20)
    await delete_segments(world, ref, 20)
    stray = small_segment(base_offset=20, epoch=1).data
    await world.objects.put_if_absent(paths.segment_key(NAMESPACE, ref.topic, 0, 20), stray)
    rebuilt = await restored(world)
    assert (only(rebuilt).chain.end, only(rebuilt).chain.segments) == (20, ())
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == numbers(20)
        await acked(caller, ref, b"next")
        assert await caller.read_all(ref) == [*numbers(20), b"next"]


async def test_segments_below_a_root_do_not_matter(autojump_clock: MockClock) -> None:
    world = World()
    ref = await log_of(world)
    await rewrite(world, ref, 0, 15, keep=lambda offset: offset == 14, first_dirty=15)
    await world.objects.delete_many([paths.segment_key(NAMESPACE, ref.topic, 0, 3)])
    await corrupt(world, paths.segment_key(NAMESPACE, ref.topic, 0, 4))
    rebuilt = await restored(world)
    assert (rebuilt.damaged, only(rebuilt).chain.segments[0].base) == ([], 15)
    part = only(rebuilt).rewritten
    assert part is not None
    await world.objects.delete_many([paths.segment_key(NAMESPACE, ref.topic, 0, 15)])
    assert (await restored(world)).damaged == ["orders-0: objects of offsets 15 to 15 are missing"]
    assert part.following([Found(base, base + 1, 2, 1, 1, 0) for base in (14, 15)])[0].base == 15


async def test_a_topic_without_an_object_gets_the_id_in_its_root(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    ref = await log_of(world)
    await rewrite(world, ref, 0, 15)
    await delete_segments(world, ref, 15)
    await world.objects.delete_many([paths.topic_object_key(NAMESPACE, ref.topic)])
    rebuilt = await restored(world, newest=False, adopt=["orders"])
    assert rebuilt.topics[0].info.id == ref.topic_id
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == numbers(20)


@pytest.mark.parametrize("compacted", [False, True])
async def test_no_epoch_of_a_sink_is_repeated_into_a_rewritten_log(autojump_clock: MockClock, compacted: bool) -> None:
    world = World(intake=False)
    async with world.service(graceful=False) as (caller, catalog):
        first, second, _ = siblings(await world.topic(catalog), 3)
        await acked(caller, first, b"0")
        await backed_up(world)
        stages = [
            await staged(caller, first, batch(b"a"), batch(b"b")),
            await staged(caller, second, batch(b"c")),
        ]

        def one_log(call: Call) -> Fault | None:
            return Fault(error=Unavailable("no")) if "/orders/1/" in call.key and call.kind != "list_from" else None

        world.objects.plan = one_log
        assert not (await commit(caller, *stages, wait_ms=5_000)).applied
        await acked(caller, first, b"later")
    world.objects.plan = None
    if compacted:
        await rewrite(world, first, 0, 3, keep=lambda offset: offset == 0, first_dirty=3)
    else:
        await rewrite(world, first, 0, 3)
    await delete_segments(world, first, 3)
    rebuilt = await restored(world)
    assert [ref.partition for ref in (await sink_record(world)).remaining] == [1]
    assert ["may lack the epoch's records" in fault for fault in rebuilt.damaged] == [True] * compacted
