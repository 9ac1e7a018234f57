"""Knowledge of idempotent producers whose batches are deleted by retention or DeleteRecords, or that expire."""

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.objects.memory import Call, Fault
from kafscale.records.record import Record, build_batch
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from tests.support.storage.harness import NAMESPACE, World, batch, state_key
from tests.support.storage.sequences import flushed, numbered, send


@pytest.mark.parametrize("segments", [3, 16, 20])
async def test_producers_are_known_after_their_records_are_deleted(segments: int, autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(segments))
        with trio.fail_after(10):
            assert (await caller.delete_records(ref, -1)).log_start == segments
        state = await _state(world, ref)
        assert (state.log_start, state.producers_from) == (segments, segments)
    await trio.sleep(60)
    async with world.service() as (caller, _):
        for sequence in range(segments - 3, segments):
            assert (await send(caller, ref, sequence)).base_offset == sequence
        following = await send(caller, ref, segments)
        assert (following.status, following.base_offset) == (Status.OK, segments)


async def test_producers_are_known_after_retention(autojump_clock: MockClock) -> None:
    world = World()
    world.objects.clock_skew_seconds = 0.0
    async with world.service(graceful=False, retention_check_ms=10_000) as (caller, catalog):
        ref = await world.topic(catalog, configs={"retention.ms": "60000"})
        for sequence in range(24):
            assert (await caller.append(ref, _dated(world, sequence))).status == Status.OK
            await trio.sleep(20)
            world.now_ms += 300_000
            await trio.sleep(20)
        state = await _state(world, ref)
        assert state.log_start == state.high_watermark == 24
    await trio.sleep(60)
    async with world.service() as (caller, _):
        assert (await caller.append(ref, _dated(world, 24))).status == Status.OK


async def test_the_log_start_waits_for_the_producer_snapshot(autojump_clock: MockClock) -> None:
    world, hold = World(), trio.Event()

    def plan(call: Call) -> Fault | None:
        snapshot = call.kind == "put_if_absent" and call.key.startswith(_snapshots(ref))
        return Fault(hold=hold) if snapshot else None

    async with world.service(graceful=False) as (caller, catalog), trio.open_nursery() as nursery:
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(3))
        world.objects.plan = plan
        nursery.start_soon(caller.delete_records, ref, 3)
        await trio.sleep(1)
        # Commits continue meanwhile, and move neither.
        await flushed(caller, ref, range(3, 6))
        state = await _state(world, ref)
        assert (state.log_start, state.producers_from, state.high_watermark) == (0, 0, 6)
        hold.set()
        await trio.sleep(1)
        state = await _state(world, ref)
        assert (state.log_start, state.producers_from, state.high_watermark) == (3, 3, 6)
        assert state.producer_snapshot.startswith(_snapshots(ref))
    await trio.sleep(60)
    async with world.service() as (caller, _):
        assert (await send(caller, ref, 2)).base_offset == 2
        assert (await send(caller, ref, 6)).base_offset == 6


async def test_the_log_start_does_not_move_if_the_snapshot_cannot_be_stored(autojump_clock: MockClock) -> None:
    world = World()

    def plan(call: Call) -> Fault | None:
        snapshot = call.kind == "put_if_absent" and call.key.startswith(_snapshots(ref))
        return Fault(error=Unavailable("down")) if snapshot else None

    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(3))
        world.objects.plan = plan
        with trio.move_on_after(30) as waiting:
            await caller.delete_records(ref, 2)
        assert waiting.cancelled_caught
        assert (await _state(world, ref)).log_start == 0
        assert await caller.read_all(ref) == [b"0", b"1", b"2"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller.delete_records, ref, 2)
            await trio.sleep(30)
            world.objects.plan = None
        assert (await _state(world, ref)).log_start == 2
        assert await caller.read_all(ref, 2) == [b"2"]


async def test_the_log_start_moves_without_a_new_snapshot_if_the_last_one_suffices(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(18))
        assert (await _state(world, ref)).producers_from == 16
        await trio.sleep(1)
        world.objects.calls.clear()
        assert (await caller.delete_records(ref, 16)).log_start == 16
        assert not [call for call in world.objects.calls if call.kind == "put_if_absent"]


async def test_a_state_does_not_refer_to_a_snapshot_of_expired_producers(autojump_clock: MockClock) -> None:
    world = World()
    world.objects.clock_skew_seconds = 0.0
    async with world.service(max_producers_per_partition=1) as (caller, catalog):
        ref = await world.topic(catalog)
        # The 16th commit makes a snapshot. At the next one its only producer has been evicted.
        await flushed(caller, ref, range(16))
        await trio.sleep(1)
        world.now_ms += 3_600_000
        await trio.sleep(3_600)
        assert await caller.durable(await caller.append(ref, numbered(0, producer_id=8)))
        state = await _state(world, ref)
        assert (state.producer_snapshot, state.producers_from) == ("", 16)
    async with world.service() as (caller, _):
        assert (await send(caller, ref, 16)).status == Status.UNKNOWN_PRODUCER
        assert (await caller.append(ref, numbered(1, producer_id=8))).status == Status.OK


async def test_no_snapshot_is_stored_without_idempotent_producers(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        for number in range(3):
            assert await caller.durable(await caller.append(ref, batch(b"%d" % number)))
        assert (await caller.delete_records(ref, -1)).log_start == 3
    assert await world.objects.list_from(_snapshots(ref)) == []


def _snapshots(ref: PartitionRef) -> str:
    return paths.producers_prefix(NAMESPACE, ref.topic, ref.partition)


def _dated(world: World, sequence: int) -> bytes:
    record = Record(0, world.now_ms, None, b"%d" % sequence)
    return build_batch([record], base_offset=0, producer_id=7, producer_epoch=0, base_sequence=sequence)


async def _state(world: World, ref: PartitionRef) -> PartitionState:
    item = await world.metadata.get(state_key(ref))
    assert item is not None
    return PartitionState.FromString(item.value)
