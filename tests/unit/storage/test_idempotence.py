"""Idempotent producers across restarts, take-overs and failures, without reading the whole log."""

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Refused, Unavailable
from kafscale.metadata.memory import no_answer
from kafscale.objects.memory import Call, Fault
from kafscale.records.record import Record, build_batch
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from tests.support.storage.harness import NAMESPACE, World, batch, state_key
from tests.support.storage.sequences import flushed, numbered, numbers, send


async def test_an_idempotent_batch_must_be_alone_in_its_append(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        plain = build_batch([Record(0, 1000, None, b"plain")], base_offset=0)
        for records in (plain + numbered(0), numbered(0) + plain, numbered(0) + numbered(1)):
            assert (await caller.append(ref, records)).status == Status.INVALID
        assert await caller.durable(await caller.append(ref, plain + plain))
        assert await caller.read_all(ref) == [b"plain", b"plain"]


async def test_a_duplicate_is_acked_or_lost_with_its_original(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await send(caller, ref, 0))
        world.objects.plan = lambda call: Fault(error=Unavailable("down")) if call.kind == "put_if_absent" else None
        original, again = await send(caller, ref, 1), await send(caller, ref, 1)
        assert (again.base_offset, again.end_offset, again.epoch) == (1, 2, original.epoch)
        with trio.move_on_after(30) as waiting:
            await caller.durable(again)
        assert waiting.cancelled_caught
    world.objects.plan = None
    await trio.sleep(60)
    async with world.service() as (caller, _):
        later = await send(caller, ref, 1)
        assert (later.status, later.base_offset, later.epoch > original.epoch) == (Status.OK, 1, True)
        assert await caller.durable(later)
        assert await caller.read_all(ref) == numbers(2)


async def test_a_duplicate_of_a_committed_batch_gets_the_original_offset(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        for sequence in range(5):
            assert await caller.durable(await send(caller, ref, sequence * 2, 2))
        for sequence in range(5):
            again = await send(caller, ref, sequence * 2, 2)
            assert (again.base_offset, again.end_offset) == (sequence * 2, sequence * 2 + 2)
            assert await caller.durable(again)
        assert await caller.read_all(ref) == numbers(10)


async def test_sequences_survive_kills_and_stops(autojump_clock: MockClock) -> None:
    world, end = World(), 0
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
    for graceful in (False, True, True, False, False, True):
        async with world.service(graceful=graceful) as (caller, _):
            if end:
                again = await send(caller, ref, end - 1)
                assert again.base_offset == end - 1
                assert await caller.durable(again), "this owner has committed nothing yet"
                assert (await send(caller, ref, end + 1)).status == Status.OUT_OF_ORDER_SEQUENCE
            await flushed(caller, ref, range(end, end + 7))
            end += 7
        await trio.sleep(60)
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == numbers(end)


async def test_uncommitted_sequences_do_not_survive_a_kill(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(40))
        world.objects.plan = lambda call: (
            Fault(error=Unavailable("down")) if call.kind == "put_if_absent" and call.key.endswith(".kfs") else None
        )
        for sequence in range(40, 60):
            assert (await send(caller, ref, sequence)).status == Status.OK
    world.objects.plan = None
    await trio.sleep(60)
    async with world.service() as (caller, _):
        assert (await send(caller, ref, 41)).status == Status.OUT_OF_ORDER_SEQUENCE
        assert (await send(caller, ref, 40)).base_offset == 40


async def test_a_snapshot_holds_only_committed_sequences(autojump_clock: MockClock) -> None:
    world, blocked = World(intake=False), {"from": 15}

    def plan(call: Call) -> Fault | None:
        key = paths.parse_segment_key(call.key)
        wrong = call.kind == "put_if_absent" and key is not None and key.base_offset >= blocked["from"]
        return Fault(error=Unavailable("down")) if wrong else None

    async with world.service(graceful=False, segment_bytes=1) as (caller, catalog):
        ref = await world.topic(catalog)
        for sequence in range(15):
            assert await caller.durable(await send(caller, ref, sequence))
        world.objects.plan = plan
        # The 16th commit makes a snapshot. The 17th, of another producer, refers to it. Sequence 16 is not committed.
        appended = [await send(caller, ref, 15), await caller.append(ref, batch(b"of nobody"))]
        assert (await send(caller, ref, 16)).base_offset == 17
        for each in appended:
            blocked["from"] += 1
            assert await caller.durable(each)
            await trio.sleep(1)
        state = await world.metadata.get(state_key(ref))
        assert state is not None
        assert PartitionState.FromString(state.value).producers_from == 16
    world.objects.plan = None
    await trio.sleep(60)
    async with world.service() as (caller, _):
        assert await caller.durable(await send(caller, ref, 16))
        assert await caller.read_all(ref) == [*numbers(16), b"of nobody", b"16"]


async def test_an_idle_producer_survives_a_restart_without_reading_the_log(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, numbered(0, producer_id=99)))
        for i in range(200):
            await caller.append(ref, numbered(i, producer_id=7))
            await caller.flush(ref)
        await trio.sleep(10)
    await trio.sleep(60)
    world.objects.calls.clear()
    async with world.service() as (caller, _):
        again = await caller.append(ref, numbered(0, producer_id=99))
        assert (again.status, again.base_offset) == (Status.OK, 0)
        assert (await caller.append(ref, numbered(1, producer_id=99))).base_offset == 201
        assert world.objects.count("get") <= 1 + 24
        # One object for a log of any length, because unreferenced snapshots are deleted.
        assert len(await world.objects.list_from(paths.producers_prefix(NAMESPACE, ref.topic, 0))) == 1


async def test_a_restart_reads_no_segments_without_idempotent_producers(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        for _ in range(50):
            await caller.append(ref, batch(b"x"))
            await caller.flush(ref)
    await trio.sleep(60)
    world.objects.calls.clear()
    async with world.service() as (caller, _):
        assert (await caller.append(ref, batch(b"y"))).base_offset == 50
        assert not [call for call in world.objects.calls if call.kind.startswith("get") and "/orders/" in call.key]
    assert not any("~producers" in call.key for call in world.objects.calls)


async def test_a_lost_snapshot_is_rebuilt_from_the_log(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(40))
    snapshots = await world.objects.list_from(paths.producers_prefix(NAMESPACE, ref.topic, 0))
    await world.objects.delete_many([info.key for info in snapshots])
    async with world.service() as (caller, _):
        assert (await send(caller, ref, 39)).base_offset == 39
        assert (await send(caller, ref, 40)).base_offset == 40


async def test_expired_producers_leave_no_snapshot(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(producer_expiry_ms=600_000) as (caller, catalog):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(20))
        world.now_ms += 600_001
        await trio.sleep(601)
        for _ in range(40):
            await caller.append(ref, batch(b"x"))
            await caller.flush(ref)
        assert (await send(caller, ref, 20)).status == Status.UNKNOWN_PRODUCER
        state = await world.metadata.get(state_key(ref))
        assert state is not None
        assert PartitionState.FromString(state.value).producers_from == 60
        await trio.sleep(1)
        assert await world.objects.list_from(paths.producers_prefix(NAMESPACE, ref.topic, 0)) == []


async def test_an_unknown_producer_gets_the_log_start(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.append(ref, batch(b"x", b"y"))
        await caller.flush(ref)
        assert (await caller.delete_records(ref, 1)).status == Status.OK
        refused = await send(caller, ref, 20)
        assert (refused.status, refused.log_start) == (Status.UNKNOWN_PRODUCER, 1)


@pytest.mark.parametrize("skew", [-600.0, 0.0], ids=["answered since", "not answered since"])
async def test_a_clock_that_jumps_ahead_expires_no_producer(autojump_clock: MockClock, skew: float) -> None:
    async with (world := World()).service(producer_expiry_ms=600_000, max_producers_per_partition=2) as (
        caller,
        catalog,
    ):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(20))
        world.now_ms += 600_001
        world.objects.clock_skew_seconds = skew
        for _ in range(40):
            await caller.append(ref, batch(b"x"))
            await caller.flush(ref)
        assert (await send(caller, ref, 20)).status == Status.OK
        assert (await caller.append(ref, numbered(0, producer_id=1))).status == Status.OK
        assert (await caller.append(ref, numbered(0, producer_id=2))).status == Status.BUFFER_FULL


async def test_a_clock_that_was_behind_expires_no_producer(autojump_clock: MockClock) -> None:
    async with (world := World()).service(producer_expiry_ms=600_000) as (caller, catalog):
        ref = await world.topic(catalog)
        world.now_ms -= 700_000
        await flushed(caller, ref, range(20))
        world.now_ms += 700_000
        for _ in range(40):
            await caller.append(ref, batch(b"x"))
            await caller.flush(ref)
        assert (await send(caller, ref, 20)).status == Status.OK


async def test_batches_behind_a_refused_batch_are_refused(autojump_clock: MockClock) -> None:
    room = 4 * len(numbered(0, 4)) + len(numbered(0))
    async with (world := World()).service(partition_buffer_bytes=room) as (caller, catalog):
        ref = await world.topic(catalog)
        world.objects.plan = lambda call: Fault(error=Unavailable("down")) if call.kind == "put_if_absent" else None
        assert [(await send(caller, ref, sequence, 4)).status for sequence in (0, 4, 8, 12)] == [Status.OK] * 4
        assert (await send(caller, ref, 16, 4)).status == Status.BUFFER_FULL
        # It would fit, but overtake the refused batch.
        assert (await send(caller, ref, 20)).status == Status.OUT_OF_ORDER_SEQUENCE
        world.objects.plan = None
        await caller.flush(ref)
        assert await caller.durable(await send(caller, ref, 16, 4))
        assert await caller.durable(await send(caller, ref, 20))
        assert await caller.read_all(ref) == numbers(21)


async def test_producers_past_any_delivery_timeout_are_evicted_at_the_cap(autojump_clock: MockClock) -> None:
    async with (world := World()).service(max_producers_per_partition=2) as (caller, catalog):
        ref = await world.topic(catalog)
        for producer_id in (1, 2):
            assert (await caller.append(ref, numbered(0, producer_id=producer_id))).status == Status.OK
        assert (await caller.append(ref, numbered(0, producer_id=3))).status == Status.BUFFER_FULL
        world.now_ms += 600_001
        await trio.sleep(601)
        assert (await caller.append(ref, numbered(0, producer_id=3))).status == Status.OK


async def test_a_stop_leaves_one_snapshot_and_releases_the_partition(autojump_clock: MockClock) -> None:
    world, prefix = World(), paths.producers_prefix(NAMESPACE, "orders", 0)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
    for end in range(3):
        async with world.service() as (caller, _):
            await flushed(caller, ref, range(end, end + 1))
        assert len(await world.objects.list_from(prefix)) == 1
    async with world.service() as (caller, _):
        await flushed(caller, ref, range(3, 4))
        world.objects.plan = lambda call: Fault(delay=1000) if "~producers" in call.key else None
    world.objects.plan = None
    assert await owner(world, ref) == ""


async def test_a_dead_owners_snapshot_is_deleted_by_the_next_owner(autojump_clock: MockClock) -> None:
    world, prefix = World(), paths.producers_prefix(NAMESPACE, "orders", 0)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(3))
    await world.objects.put_if_absent(paths.producer_snapshot_key(NAMESPACE, "orders", 0, 2, 1), b"not referred to")
    async with world.service() as (caller, _):
        await flushed(caller, ref, range(3, 25))
        await trio.sleep(1)
        assert len(await world.objects.list_from(prefix)) == 1


async def test_a_take_over_needs_no_permission_to_delete(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(3))
    await world.objects.put_if_absent(paths.producer_snapshot_key(NAMESPACE, "orders", 0, 2, 1), b"not referred to")
    world.objects.plan = lambda call: Fault(error=Refused("no DELETE")) if call.kind == "delete_many" else None
    async with world.service() as (caller, _):
        assert (await send(caller, ref, 3)).status == Status.OK
        assert (await send(caller, ref, 2)).base_offset == 2


async def test_an_owner_without_a_proven_lease_deletes_no_snapshots_of_others(autojump_clock: MockClock) -> None:
    world, leftover = World(), paths.producer_snapshot_key(NAMESPACE, "orders", 0, 2, 1)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(3))
    await world.objects.put_if_absent(leftover, b"not referred to")
    prefix = paths.producers_prefix(NAMESPACE, "orders", 0)
    world.objects.plan = lambda call: Fault(delay=30) if (call.kind, call.key) == ("list_from", prefix) else None
    async with world.service() as (caller, _):
        await flushed(caller, ref, range(3, 25))
        world.metadata.faults.append(no_answer("keep_alive", times=1_000))
        await trio.sleep(60)
        assert not any(leftover in call.keys for call in world.objects.calls if call.kind == "delete_many")
        world.metadata.faults.clear()


async def test_a_deletion_waits_for_a_snapshot_that_is_being_stored(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        world.objects.plan = lambda call: Fault(delay=50) if "~producers" in call.key else None
        await flushed(caller, ref, range(17))
        await catalog.mark_deleting("orders")
        await catalog.wait_free("orders")
        assert await world.objects.list_from(f"{NAMESPACE}/~producers/") == []
        await trio.sleep(100)
        assert await world.objects.list_from(f"{NAMESPACE}/~producers/") == []


async def test_a_dead_owners_object_inside_the_log_does_not_stop_the_next_owner(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(1))
    async with world.service(graceful=False, segment_bytes=1) as (caller, _):
        await caller.fetch(ref, 0)
        world.metadata.faults.append(no_answer("txn", key=state_key(ref), times=1_000))
        for _ in range(2):
            await caller.append(ref, batch(b"lost"))
        await trio.sleep(1)
    world.metadata.faults.clear()
    await trio.sleep(60)
    async with world.service(graceful=False) as (caller, _):
        # One segment that spans the offsets of both, so that the second one's object lies inside the log.
        await send(caller, ref, 1, 3)
        await caller.flush(ref)
    await trio.sleep(60)
    async with world.service() as (caller, _):
        again = await send(caller, ref, 1, 3)
        assert (again.status, again.base_offset) == (Status.OK, 1)
        assert (await send(caller, ref, 4)).status == Status.OK
        await caller.flush(ref)
        assert await caller.read_all(ref) == numbers(5)


async def owner(world: World, ref: PartitionRef) -> str:
    item = await world.metadata.get(state_key(ref))
    assert item is not None
    return PartitionState.FromString(item.value).owner


async def test_failing_every_second_put_causes_no_duplicates_or_gaps(autojump_clock: MockClock) -> None:
    world = World()
    puts = 0

    def plan(call: Call) -> Fault | None:
        nonlocal puts
        if call.kind not in ("put_if_absent", "replace_if_match"):
            return None
        puts += 1
        # Alternately a put that fails without effect, and a put whose answer is lost.
        return Fault(error=Unavailable("flaky"), applied="before" if puts % 4 else "never") if puts % 2 else None

    async with world.service() as (caller, catalog):
        world.objects.plan = plan
        ref = await world.topic(catalog)
        for sequence in range(0, 120, 3):
            sent = await send(caller, ref, sequence, 3)
            if sequence % 2:
                again = await send(caller, ref, sequence, 3)
                assert again.base_offset == sent.base_offset
            if sequence % 5 == 0:
                assert await caller.durable(sent)
        await caller.flush(ref)
        assert await caller.read_all(ref) == numbers(120)


async def test_several_batches_of_an_idempotent_producer_in_one_append_are_refused(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        assert (await caller.append(ref, numbered(0) + numbered(1))).status == Status.INVALID
        assert (await caller.append(ref, numbered(0))).base_offset == 0


async def test_successive_deaths_of_owners_do_not_increase_what_a_take_over_reads(autojump_clock: MockClock) -> None:
    world, sent = World(), 0
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
    for _ in range(5):
        world.objects.calls.clear()
        async with world.service(graceful=False) as (caller, _):
            for _ in range(15):
                await flushed(caller, ref, range(sent, sent + 1))
                sent += 1
            assert world.objects.count("get") <= 1 + 24
            await trio.sleep(1)
        await trio.sleep(60)
