"""Exactly-once sinks: staged records are in the log once, and only after their commit."""

from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.metadata.interface import Put
from kafscale.metadata.memory import Fault as MetadataFault
from kafscale.metadata.memory import lost_answer
from kafscale.objects.memory import Fault
from kafscale.records.batch import with_log_append_time
from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState, SinkProgress
from services.storage.settings import StorageSettings
from tests.support.storage.cluster import cluster, until
from tests.support.storage.harness import NAMESPACE, Caller, World, batch, siblings, state_key
from tests.support.storage.sinking import commit, discard, no_segments, sink_record, stage, stage_keys, staged

SINK_KEY = paths.sink_key(NAMESPACE, "s")
DAY_MS = 86_400_000


async def test_a_stage_is_in_the_log_once_and_only_after_its_commit(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service() as (caller, catalog):
        first, second, _ = siblings(await world.topic(catalog), 3)
        stages = [
            await staged(caller, first, batch(b"0"), batch(b"1", b"2")),
            await staged(caller, first, batch(b"3")),
            await staged(caller, second, batch(b"x")),
        ]
        await staged(caller, second, batch(b"never"))
        await trio.sleep(5)
        assert [await caller.read_all(ref) for ref in (first, second)] == [[], []]
        reply = await commit(caller, *stages)
        assert (reply.status, reply.already, reply.applied) == (Status.OK, False, True)
        assert [await caller.read_all(ref) for ref in (first, second)] == [[b"0", b"1", b"2", b"3"], [b"x"]]
        reply = await commit(caller, *stages)
        assert (reply.status, reply.already, reply.applied) == (Status.OK, True, True)
        await trio.sleep(5)
        assert [await caller.read_all(ref) for ref in (first, second)] == [[b"0", b"1", b"2", b"3"], [b"x"]]
        assert len(await stage_keys(world)) == 1


async def test_records_without_a_key_are_not_staged_for_a_compacted_topic(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, configs={"cleanup.policy": "compact"})
        for codec in Codec:
            records = [Record(0, 1_000, b"", b"0"), Record(1, 1_000, b"k", b"1")]
            keyed = build_batch(records, base_offset=0, codec=codec)
            assert (await stage(caller, ref, keyed)).status == Status.OK
            keyless = build_batch([*records, Record(2, 1_000, None, b"2")], base_offset=0, codec=codec)
            refused = await stage(caller, ref, keyed + keyless)
            assert refused.status == Status.INVALID
            assert refused.detail == "a compacted topic requires keys: 1 records of a batch have none"


async def test_invalid_stages_are_refused(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(stage_bytes=100_000) as (caller, catalog):
        ref = await world.topic(catalog, configs={"max.message.bytes": "1000"})
        whole = batch(b"0")
        idempotent = build_batch(
            [Record(0, 1_000, None, b"0", ())], base_offset=0, producer_id=7, producer_epoch=0, base_sequence=0
        )
        for records, status in (
            (b"", Status.INVALID),
            (whole[:-1], Status.INVALID),
            (whole[:-1] + b"\x7f", Status.INVALID),
            (idempotent, Status.INVALID),
            (with_log_append_time(whole, 1), Status.INVALID),
            (whole + batch(bytes(1_000)), Status.TOO_LARGE),
            (whole * 2_000, Status.TOO_LARGE),
        ):
            assert (await stage(caller, ref, records)).status == status
        for other, status in (
            (PartitionRef(topic="orders", topic_id=ref.topic_id, partition=3), Status.UNKNOWN_TOPIC),
            (PartitionRef(topic="orders", topic_id=bytes(16), partition=0), Status.TOPIC_ID_MISMATCH),
            (PartitionRef(topic="others", topic_id=ref.topic_id, partition=0), Status.UNKNOWN_TOPIC),
        ):
            assert (await stage(caller, other, whole)).status == status
        for sink, epoch in (("", 0), ("x" * 201, 0), ("/" * 100, 0), ("s", -1)):
            assert (await stage(caller, ref, whole, sink=sink, epoch=epoch)).status == Status.INVALID
        assert await stage_keys(world) == []
        for sink in ("..", "a/b é", "~", "x" * 200):
            made = await staged(caller, ref, whole, sink=sink)
            assert (await commit(caller, made, sink=sink)).applied


async def test_commits_with_stages_of_another_epoch_or_sink_are_refused(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(max_stages_per_commit=2, max_sinks=1) as (caller, catalog):
        ref = await world.topic(catalog)
        made = await staged(caller, ref, batch(b"0"))
        other = await staged(caller, ref, batch(b"1"), sink="t")
        late = await staged(caller, ref, batch(b"2"), epoch=1)
        for stages in ([other], [late], [made, made], [made, other, late]):
            assert (await commit(caller, *stages)).status == Status.INVALID
        too_many = (await commit(caller, made, other, late)).detail
        assert too_many == "3 stages exceed the limit of 2: repartition, or raise KAFSCALE_MAX_STAGES_PER_COMMIT"
        assert (await sink_record(world)).epoch == -1
        assert (await commit(caller, made)).applied
        # The limit is one sink.
        assert (await commit(caller, other, sink="t")).status == Status.INVALID
        assert await caller.read_all(ref) == [b"0"]


async def test_epochs_increase_and_may_have_gaps_and_no_records(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        for epoch in (0, 3, 9):
            assert (
                await commit(caller, await staged(caller, ref, batch(b"%d" % epoch), epoch=epoch), epoch=epoch)
            ).applied
            reply = await commit(caller, epoch=epoch + 1)
            assert (reply.already, reply.applied) == (False, True)
        reply = await commit(caller, await staged(caller, ref, batch(b"late"), epoch=5), epoch=5)
        assert (reply.status, reply.already, reply.applied) == (Status.OK, True, True)
        assert await caller.read_all(ref) == [b"0", b"3", b"9"]
        assert await stage_keys(world) == []


async def test_an_epoch_waits_until_the_previous_one_is_applied(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service(flush_interval_ms=4_000) as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.append(ref, batch(b"before"))
        for epoch in range(3):
            made = await staged(caller, ref, batch(b"%d" % epoch), epoch=epoch)
            reply = await commit(caller, made, epoch=epoch, wait_ms=0)
            assert (reply.status, reply.applied) == (Status.OK, False)
            assert list((await sink_record(world)).remaining) == [ref]
        # A commit that would have to wait for long is refused.
        world.objects.plan = no_segments
        made = await staged(caller, ref, batch(b"3"), epoch=3)
        reply = await commit(caller, made, epoch=3)
        assert reply.status == Status.UNAVAILABLE
        assert (await sink_record(world)).epoch == 2
        world.objects.plan = None
        await trio.sleep(10)
        assert (await commit(caller, made, epoch=3)).applied
        assert await caller.read_all(ref) == [b"before", b"0", b"1", b"2", b"3"]


async def test_only_one_of_two_drivers_commits_an_epoch(autojump_clock: MockClock) -> None:
    world = World()
    async with cluster(world, "a:1", "b:1") as two:
        ref = await world.topic(two.instances[0].catalog)
        await trio.sleep(1)
        stages = [await staged(one.caller, ref, batch(one.address.encode())) for one in two.instances]
        world.metadata.faults = [MetadataFault(method="txn", key=SINK_KEY, delay=1)]
        replies = {}

        async def write(number: int) -> None:
            replies[number] = await commit(two.instances[number].caller, stages[number])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, 0)
            nursery.start_soon(write, 1)
        assert sorted(reply.already for reply in replies.values()) == [False, True]
        assert all(reply.status == Status.OK and reply.applied for reply in replies.values())
        (winner,) = [number for number, reply in replies.items() if not reply.already]
        assert await two.read_all(ref) == [two.instances[winner].address.encode()]


async def test_repeating_a_commit_that_is_being_applied_does_not_change_it(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(flush_interval_ms=4_000) as (caller, catalog):
        ref = await world.topic(catalog)
        held = trio.Event()
        made = await staged(caller, ref, batch(b"0"))
        unused = await staged(caller, ref, batch(b"unused"))
        world.objects.plan = lambda call: Fault(hold=held) if call.kind == "get" and call.key == made.key else None
        assert not (await commit(caller, made, wait_ms=0)).applied
        reply = await commit(caller, made, unused, wait_ms=0)
        assert (reply.already, reply.applied) == (True, False)
        await discard(caller, made, unused)
        assert unused.key not in await stage_keys(world)
        held.set()
        assert (await commit(caller, made)).applied
        assert await caller.read_all(ref) == [b"0"]


async def test_a_commit_whose_answer_is_lost_is_recognized(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        made = await staged(caller, ref, batch(b"0"))
        world.metadata.faults = [lost_answer(key=SINK_KEY), lost_answer(key=SINK_KEY)]
        reply = await commit(caller, made)
        assert (reply.status, reply.already, reply.applied) == (Status.OK, False, True)
        assert await caller.read_all(ref) == [b"0"]


async def test_a_commit_in_flight_fails_if_its_stages_are_discarded(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        made = await staged(caller, ref, batch(b"0"))
        world.metadata.faults = [MetadataFault(method="txn", key=SINK_KEY, delay=5)]
        replies = []

        async def write() -> None:
            replies.append(await commit(caller, made))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.sleep(1)
            await discard(caller, made)
        assert [reply.status for reply in replies] == [Status.UNAVAILABLE]
        assert made.key not in await stage_keys(world)
        record = await sink_record(world)
        assert (record.epoch, record.committed_ms) == (-1, world.now_ms)
        made = await staged(caller, ref, batch(b"1"))
        assert (await commit(caller, made)).applied
        assert await caller.read_all(ref) == [b"1"]


async def test_expired_stages_are_not_committed_and_are_deleted(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service(stage_check_ms=5_000) as (caller, catalog):
        ref = await world.topic(catalog)
        old = await staged(caller, ref, batch(b"old"))
        world.now_ms += DAY_MS // 2 + 1
        young = await staged(caller, ref, batch(b"young"))
        assert (await commit(caller, old)).status == Status.INVALID
        await trio.sleep(11)
        assert old.key in await stage_keys(world)
        # Committed stages stay, however long it takes to append them.
        world.objects.plan = no_segments
        assert not (await commit(caller, young, wait_ms=0)).applied
        world.now_ms += 2 * DAY_MS
        await trio.sleep(11)
        manifest = (await sink_record(world)).manifest
        assert set(await stage_keys(world)) == {young.key, manifest}
        world.objects.plan = None
        await trio.sleep(11)
        assert await caller.read_all(ref) == [b"young"]
        assert await stage_keys(world) == []


async def test_an_expired_sink_may_start_again(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with cluster(world, "a:1", stage_check_ms=5_000) as one:
        (a,) = one.instances
        ref = await world.topic(a.catalog)
        assert (await commit(a.caller, await staged(a.caller, ref, batch(b"0"), batch(b"1")))).applied
        # The state still contains the sink's progress because nothing was written since.
        assert [progress.batches for progress in (await one.state(ref)).sinks] == [2]
        world.now_ms += StorageSettings().sink_expiry_ms + 1
        await trio.sleep(11)
        assert await world.metadata.get(SINK_KEY) is None
        await a.kill()
        b = await one.start("b:1")
        await trio.sleep(20)
        assert (await commit(b.caller, await staged(b.caller, ref, batch(b"2"), batch(b"3"), batch(b"4")))).applied
        assert await one.read_all(ref) == [b"0", b"1", b"2", b"3", b"4"]


async def test_an_epoch_does_not_wait_for_a_deleted_topic(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        gone, kept = await world.topic(catalog, "gone"), await world.topic(catalog, "kept")
        stages = [await staged(caller, ref, batch(b"0")) for ref in (gone, kept)]
        world.objects.plan = no_segments
        assert not (await commit(caller, *stages, wait_ms=0)).applied
        await catalog.mark_deleting("gone")
        world.objects.plan = None
        reply = await commit(caller, *stages)
        assert (reply.status, reply.applied) == (Status.OK, True)
        assert await caller.read_all(kept) == [b"0"]


async def test_a_commit_to_a_deleted_topic_is_refused(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        gone, kept = await world.topic(catalog, "gone"), await world.topic(catalog, "kept")
        stages = [await staged(caller, ref, batch(b"0")) for ref in (gone, kept)]
        await catalog.mark_deleting("gone")
        reply = await commit(caller, *stages)
        assert (reply.status, reply.detail) == (Status.INVALID, "no partition gone-0")
        assert (await sink_record(world)).epoch == -1
        assert (await commit(caller, stages[1])).applied
        assert await caller.read_all(kept) == [b"0"]


async def test_an_epoch_waits_for_a_damaged_stage_and_never_skips_it(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        first, second = siblings(await world.topic(catalog), 2)
        stages = [await staged(caller, ref, batch(b"0"), batch(b"1")) for ref in (first, second)]
        original = await world.objects.get(stages[0].key)
        await world.objects.replace_if_match(stages[0].key, original.body[:-1] + b"x", original.etag)
        assert not (await commit(caller, *stages)).applied
        assert [await caller.read_all(ref) for ref in (first, second)] == [[], [b"0", b"1"]]
        assert list((await sink_record(world)).remaining) == [first]
        damaged = await world.objects.get(stages[0].key)
        await world.objects.replace_if_match(stages[0].key, original.body, damaged.etag)
        assert (await commit(caller, *stages)).applied
        assert await caller.read_all(first) == [b"0", b"1"]


async def test_large_epochs_leave_buffer_space_for_producers(autojump_clock: MockClock) -> None:
    world, random = World(), Random(1)

    async def keep_producing(caller: Caller, ref: PartitionRef) -> None:
        while True:
            appended = await caller.append(ref, batch(random.randbytes(8_000)))
            assert appended.status == Status.OK, appended.detail
            assert await caller.durable(appended)

    sizes: dict[str, Any] = {"partition_buffer_bytes": 200_000, "buffer_bytes": 200_000, "segment_bytes": 1 << 30}
    async with world.service(**sizes, flush_interval_ms=10) as (caller, catalog):
        ref = await world.topic(catalog)
        values = [random.randbytes(9_000) for _ in range(100)]
        stages = [
            await staged(caller, ref, *(batch(value) for value in values[start : start + 25]))
            for start in range(0, 100, 25)
        ]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_producing, caller, ref)
            assert (await commit(caller, *stages)).applied
            nursery.cancel_scope.cancel()
        ours = [value for value in await caller.read_all(ref) if value in values]
        assert ours == values
    puts = [call.size for call in world.objects.calls if call.kind == "put_if_absent" and call.key.endswith(".kfs")]
    assert max(puts) < 200_000 // 4 + 20_000


async def test_log_append_time_is_the_time_of_the_append(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, configs={"message.timestamp.type": "LogAppendTime"})
        made = await staged(caller, ref, batch(b"0"))
        world.now_ms += 5_000
        assert (await commit(caller, made)).applied
        assert (await caller.offset_at(ref, world.now_ms)).offset == 0
        assert (await caller.offset_at(ref, world.now_ms + 1)).offset == -1


async def test_a_new_owner_removes_the_finished_epochs_of_the_former_one(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with cluster(world, "a:1") as one:
        (a,) = one.instances
        ref = await world.topic(a.catalog)
        await one.append_durably(ref, batch(b"0"))
        assert (await commit(a.caller, await staged(a.caller, ref, batch(b"1")))).applied
        await a.kill()
        assert len((await one.state(ref)).sinks) == 1
        b = await one.start("b:1")

        async def taken() -> bool:
            return await one.owner(ref) == b.caller.run_id

        await until(taken)
        await trio.sleep(1)
        await one.append_durably(ref, batch(b"2"))
        assert not (await one.state(ref)).sinks
        assert await one.read_all(ref) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("progress", [1, 2, 3])
async def test_a_new_owner_continues_an_epoch_where_the_state_says(autojump_clock: MockClock, progress: int) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        stages = [await staged(caller, ref, batch(b"0"), batch(b"1")), await staged(caller, ref, batch(b"2"))]
        world.objects.plan = no_segments
        assert not (await commit(caller, *stages, wait_ms=0)).applied
        item = await world.metadata.get(state_key(ref))
        state = PartitionState.FromString(item.value) if item else PartitionState(format=1, topic_id=ref.topic_id)
    world.objects.plan = None
    record = await sink_record(world)
    state.sinks.append(SinkProgress(sink="s", epoch=0, batches=progress, committed_ms=record.committed_ms))
    await world.metadata.txn([], [Put(state_key(ref), state.SerializeToString())])
    async with world.service() as (caller, _):
        assert (await commit(caller, *stages)).applied
        assert await caller.read_all(ref) == [b"0", b"1", b"2"][progress:]


async def test_an_epoch_is_applied_when_its_records_are_durable_and_the_next_owner_knows_it(
    autojump_clock: MockClock,
) -> None:
    world = World(StorageSettings(compression_codec="producer", retention_ms=-1, segment_interval_ms=3_600_000))
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"0")))
        await caller.flush(ref)
        for epoch in (0, 1):
            made = await staged(caller, ref, batch(b"a"), batch(b"b"), epoch=epoch)
            assert (await commit(caller, made, epoch=epoch)).applied
        assert (await world.state(ref)).high_watermark == 1
    await trio.sleep(60)
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"0", b"a", b"b", b"a", b"b"]
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if call.key.endswith(".kfs") else None
        assert await caller.durable(await caller.append(ref, batch(b"x")))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller.flush, ref)
            await trio.sleep(0.1)
            made = await staged(caller, ref, batch(b"c"), epoch=2)
            assert (await commit(caller, made, epoch=2)).applied
            held.set()
        assert not (await world.state(ref)).sinks, "the record does not wait for the partition any more"
        await caller.flush(ref)
        assert not (await world.state(ref)).sinks
        assert await caller.read_all(ref) == [b"0", b"a", b"b", b"a", b"b", b"x", b"c"]
