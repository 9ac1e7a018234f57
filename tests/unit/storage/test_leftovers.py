"""Leftover objects: segments without a commit, indexes without a segment, and objects that are not deleted yet."""

import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.metadata.memory import no_answer
from kafscale.objects.memory import Call, Fault
from kafscale.records.record import Record, build_batch
from kafscale.segment.writer import PREFIX_SIZE, build_segment
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import SegmentsRequest
from tests.support.storage.harness import NAMESPACE, World, batch, state_key, values


async def test_a_dead_owner_leaves_no_more_segments_than_its_successor_accepts(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"first")))
    assert await _die_with_uncommitted(world, ref, 40, records=1) == 8
    async with world.service() as (caller, _):
        assert (await caller.append(ref, batch(b"next"))).base_offset == 1


async def test_leftovers_of_two_dead_owners_are_not_mistaken_for_lost_metadata(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"first")))
    # The second owner's eight segments (1 to 8) end where the first one's third begins: a chain of 14 objects.
    await _die_with_uncommitted(world, ref, 8, records=4)
    await _die_with_uncommitted(world, ref, 8, records=1)
    async with world.service() as (caller, _):
        assert (await caller.append(ref, batch(b"next"))).base_offset == 1
        await caller.flush(ref)
        assert await caller.read_all(ref) == [b"first", b"next"]


async def test_a_dead_owners_object_inside_the_log_is_skipped(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"first")))
    assert await _die_with_uncommitted(world, ref, 4, records=2) == 4
    async with world.service() as (caller, _):
        # Segments at 1 and 4. The dead owner's objects stay at 3, 5 and 7.
        for i in range(4):
            await caller.append(ref, batch(*(b"%d" % (1 + 3 * i + j) for j in range(3))))
        await caller.flush(ref)
    for offset in range(1, 13):
        async with world.service() as (caller, _):
            fetched = await caller.fetch(ref, offset, max_bytes=1)
            assert (fetched.status, fetched.detail) == (Status.OK, "")
            assert b"%d" % offset in values(fetched.records)
        async with world.service() as (caller, _):
            listed = await caller.storage.segments(SegmentsRequest(partition=ref, start=offset, limit=1), timeout=60)
            assert [segment.base_offset for segment in listed.segments] == [1 if offset < 4 else 4]


async def test_indexes_without_a_segment_do_not_hide_later_segments(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(segment_bytes=1024) as (caller, catalog):
        ref = await world.topic(catalog)
        for i in range(600):
            await caller.append(ref, batch(b"%d" % i, bytes(1100)))
            if i % 10 == 0:
                await caller.flush(ref)
    for orphan in (1, 3, 5, 501):
        await world.objects.put_if_absent(paths.index_key(NAMESPACE, ref.topic, 0, orphan), b"alone")
    for offset in (0, 2, 500, 998, 1000, 1198):
        async with world.service() as (caller, _):
            assert (await caller.read_all(ref, offset))[0] == b"%d" % (offset // 2)


async def test_segments_of_an_earlier_topic_are_recognized_by_their_header(autojump_clock: MockClock) -> None:
    """For any number of segments, including those that KafScale 1 stored under the name."""
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"first")))
        await catalog.mark_deleting(ref.topic)
        await catalog.wait_free(ref.topic)
        cluster = await catalog.cluster()
        for base in range(40):
            epoch = cluster.epoch_floor if base % 20 < 10 else 0
            old = build_batch([Record(base, 1, None, b"left", ())], base_offset=base, leader_epoch=epoch)
            segment = build_segment([(old[:PREFIX_SIZE], old[PREFIX_SIZE:])], epoch=epoch, created_ms=1)
            await world.objects.put_if_absent(paths.segment_key(NAMESPACE, ref.topic, 0, base), segment.data)
        ref = await world.topic(catalog)
        world.objects.calls.clear()
        assert await caller.durable(await caller.append(ref, batch(b"another")))
        assert world.objects.count("get_range") == 40
        assert await caller.read_all(ref) == [b"another"]


async def test_offsets_near_a_dead_owners_object_are_readable(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"first")))
    async with world.service(graceful=False, segment_bytes=1) as (caller, _):
        await caller.fetch(ref, 0)
        world.metadata.faults.append(no_answer("txn", key=state_key(ref), times=1_000))
        for records in (1999, 1):
            await caller.append(ref, batch(*[b"lost"] * records))
        await trio.sleep(1)
    world.metadata.faults.clear()
    await trio.sleep(60)
    async with world.service(graceful=False) as (caller, _):
        for records in (8000, 1):
            # The last segment is known from the state. The one before it must be found.
            await caller.append(ref, batch(*[b"kept"] * records))
            await caller.flush(ref)
    await trio.sleep(60)
    for offset in (1, 1999, 2000, 2001, 5000, 8000):
        async with world.service(fetch_read_timeout_ms=60_000) as (caller, _):
            world.objects.plan = lambda call: Fault(delay=1)
            with trio.fail_after(60):
                fetched = await caller.fetch(ref, offset)
            world.objects.plan = None
            assert (fetched.status, set(values(fetched.records))) == (Status.OK, {b"kept"})


async def test_segments_that_a_log_start_passes_during_a_deletion_are_deleted_next(autojump_clock: MockClock) -> None:
    world, hold = World(), trio.Event()
    held: list[Call] = []

    def plan(call: Call) -> Fault | None:
        """Hold the first lookup of the segment that contains the log start."""
        if held or call.kind not in ("get_range", "list_from") or "~" in call.key:
            return None
        held.append(call)
        return Fault(hold=hold)

    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.fill(ref, 6)
    async with world.service() as (caller, _):
        await caller.fill(ref, 1)
        world.objects.plan = plan
        assert (await caller.delete_records(ref, 450)).status == Status.OK
        await trio.sleep(1)
        assert held
        assert (await caller.delete_records(ref, 1150)).status == Status.OK
        hold.set()
        await trio.sleep(1)
        remaining = [
            paths.parse_segment_key(info.key) for info in await world.objects.list_from(f"{NAMESPACE}/orders/")
        ]
        assert min(key.base_offset for key in remaining if key) == 1000


async def _die_with_uncommitted(world: World, ref: PartitionRef, segments: int, *, records: int) -> int:
    """Store up to ``segments`` segments without a commit, and die. Return how many were stored."""
    async with world.service(graceful=False, segment_bytes=1024, flush_interval_ms=60_000) as (caller, _):
        assert (await caller.fetch(ref, 0)).high_watermark == 1
        world.objects.calls.clear()
        world.metadata.faults.append(no_answer("txn", key=state_key(ref), times=1_000))
        for _ in range(segments):
            await caller.append(ref, batch(*(bytes(1100) for _ in range(records))))
        await trio.sleep(1)
        stored = sum(call.kind == "put_if_absent" and call.key.endswith(".kfs") for call in world.objects.calls)
    world.metadata.faults.clear()
    await trio.sleep(60)
    return stored
