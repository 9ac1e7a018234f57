"""Records become durable in the intake of a run, and are recovered from it by the next owner."""

import gc
from contextlib import AsyncExitStack
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.intake.format import Kind, parse
from kafscale.intake.listing import WINDOW
from kafscale.metadata.interface import Put
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.memory import Call, Fault
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import IntakeRegister, IntakeTail
from kafscale.v1.storage_pb2 import PartitionAppend
from services.storage.intake.chain import Chain
from tests.support.storage.harness import NAMESPACE, Caller, World, batch, siblings, state_key
from tests.unit.storage.acknowledging import LEASE, SLOW_SEGMENTS, acked, intake_puts, state_of, topic_with_record


async def test_an_acknowledgement_needs_one_put_and_no_write_of_metadata(autojump_clock: MockClock) -> None:
    async with (world := World(SLOW_SEGMENTS, intake=True)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await acked(caller, ref, b"a")
        before, puts = await state_of(world, ref), len(intake_puts(world))
        began = trio.current_time()
        await acked(caller, ref, b"b")
        assert trio.current_time() - began < 0.05
        assert len(intake_puts(world)) == puts + 1
        assert await state_of(world, ref) == before
        assert await caller.read_all(ref) == [b"a", b"b"]


async def test_partitions_share_an_object(autojump_clock: MockClock) -> None:
    async with (world := World(SLOW_SEGMENTS, intake=True)).service() as (caller, catalog):
        refs = siblings(await world.topic(catalog, partitions=20), 20)
        for ref in refs:
            await caller.append(ref, batch(b"first"))
        puts = len(intake_puts(world))
        async with trio.open_nursery() as nursery:
            for ref in refs:
                nursery.start_soon(acked, caller, ref, b"a", b"b")
        assert len(intake_puts(world)) <= puts + 2


async def test_a_reply_that_waits_reports_all_its_commits_in_place_of_the_stream(autojump_clock: MockClock) -> None:
    async with (world := World(SLOW_SEGMENTS, intake=True)).service() as (caller, catalog):
        refs = siblings(await world.topic(catalog, partitions=3), 3)
        for ref in refs:
            await acked(caller, ref, b"first")
        reply = await caller.send(
            *(PartitionAppend(partition=ref, records=batch(b"second")) for ref in refs), wait_ms=60_000
        )
        assert sorted((one.partition.partition, one.high_watermark) for one in reply.committed) == [
            (0, 2),
            (1, 2),
            (2, 2),
        ]
        await trio.sleep(1)
        assert [one for one in caller.news if one.high_watermark == 2] == []


async def test_a_reply_with_a_refusal_does_not_wait(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        other = PartitionRef(topic=ref.topic, topic_id=bytes(16), partition=0)
        world.objects.plan = lambda call: Fault(hold=trio.Event()) if call.kind == "put_if_absent" else None
        began = trio.current_time()
        reply = await caller.send(
            *(PartitionAppend(partition=each, records=batch(b"a")) for each in (ref, other)), wait_ms=60_000
        )
        assert [result.status for result in reply.results] == [Status.OK, Status.TOPIC_ID_MISMATCH]
        assert trio.current_time() - began < 0.1


async def test_a_reply_waits_for_durable_records_no_longer_than_asked_or_until_the_run_ends(
    autojump_clock: MockClock,
) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if call.kind == "put_if_absent" else None
        record = PartitionAppend(partition=ref, records=batch(b"a"))
        began = trio.current_time()
        reply = await caller.send(record, wait_ms=500)
        assert trio.current_time() - began == pytest.approx(0.5, abs=0.1)
        assert [result.status for result in reply.results] == [Status.OK]
        assert list(reply.committed) == []
        held.set()
        assert await caller.durable(reply.results[0])

        world.objects.plan = lambda call: Fault(hold=trio.Event()) if call.kind == "put_if_absent" else None
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(caller.send, record, wait_ms=60_000))
            await trio.sleep(1)
            run = caller.service.current
            assert run is not None
            run.end()
        assert trio.current_time() - began < 2


async def test_a_new_owner_recovers_what_a_dead_one_acknowledged(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        for value in (b"a", b"b", b"c"):
            await acked(caller, ref, value)
        assert (await state_of(world, ref)).high_watermark == 1
        first = caller.run_id
    async with world.service() as (caller, _):
        await trio.sleep(LEASE)
        assert await caller.read_all(ref) == [b"0", b"a", b"b", b"c"]
        assert (await acked(caller, ref, b"d")).base_offset == 4
        assert await caller.read_all(ref) == [b"0", b"a", b"b", b"c", b"d"]
        state = await state_of(world, ref)
        assert (state.high_watermark, state.HasField("tail")) == (4, False)
        assert (await caller.epoch_end(ref, 1)).end_offset == 4, "a client with the old epoch keeps its position"
        span = await Chain(world.objects, NAMESPACE, first, now_ms=lambda: 0).span()
        end = parse((await world.objects.get(paths.intake_key(NAMESPACE, first, span.end))).body)
        assert end.header.kind is Kind.SEAL
        register = await world.metadata.get(paths.intake_register_key(NAMESPACE, first))
        assert register is not None
        assert IntakeRegister.FromString(register.value).sealed


async def test_nothing_is_appended_before_the_recovered_records_are_in_segments(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        await acked(caller, ref, b"a")
    held = trio.Event()
    world.objects.plan = lambda call: Fault(hold=held) if call.key.endswith(".kfs") and "put" in call.kind else None
    async with world.service() as (caller, _):
        await trio.sleep(LEASE)
        assert await caller.read_all(ref, 1) == [b"a"]
        refused = await caller.append(ref, batch(b"b"))
        assert refused.status == Status.UNAVAILABLE
        held.set()
        await trio.sleep(1)
        appended = await caller.append(ref, batch(b"b"))
        assert (appended.status, appended.base_offset) == (Status.OK, 2)


async def test_a_run_that_meets_a_seal_ends(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await acked(caller, ref, b"a")
        number = 1 + sum(paths.parse_intake_key(key) is not None for key in set(intake_puts(world)))
        await world.objects.put_if_absent(paths.intake_key(NAMESPACE, caller.run_id, number), b"a seal")
        appended = await caller.append(ref, batch(b"b"))
        assert appended.status == Status.OK
        with trio.move_on_after(60):
            await caller.ended.wait()
        assert caller.ended.is_set()
        assert not any(news.high_watermark >= appended.end_offset for news in caller.news), "b is not acknowledged"


async def test_records_become_segments_and_the_intake_is_deleted_below_its_checkpoint(
    autojump_clock: MockClock,
) -> None:
    async with (world := World(intake=True)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        for number in range(300):
            await acked(caller, ref, b"%d" % number)
            await trio.sleep(0.1)
        await trio.sleep(30)
        await acked(caller, ref, b"last")
        await trio.sleep(30)
        prefix = paths.intake_prefix(NAMESPACE, caller.run_id)
        left = await world.objects.list_from(prefix)
        assert len(left) <= WINDOW
        newest = parse((await world.objects.get(left[-1].key)).body)
        assert newest.header.number - newest.header.checkpoint <= WINDOW
        assert len(await caller.read_all(ref)) == 301


async def test_a_partition_released_in_a_hurry_leaves_its_tail(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service() as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        await acked(caller, ref, b"a")
        # No segment can be stored, so the drain ends without.
        world.objects.plan = lambda call: Fault(hold=trio.Event()) if call.key.endswith(".kfs") else None
    state = await state_of(world, ref)
    assert (state.owner, state.high_watermark, state.tail.end) == ("", 1, 2)
    world.objects.plan = None
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"0", b"a"]
        assert (await acked(caller, ref, b"b")).base_offset == 2


@pytest.mark.parametrize("dies", [True, False], ids=["and died", "and takes it over once more"])
async def test_the_tail_of_a_run_that_took_the_partition_over_again_is_recovered(
    autojump_clock: MockClock, *, dies: bool
) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with AsyncExitStack() as stack:
        caller, catalog = await stack.enter_async_context(world.service(graceful=False))
        ref = await topic_with_record(world, caller, catalog)
        await acked(caller, ref, b"a")
        # As if it had released the partition in a hurry and got it back, and the tail is not in segments yet.
        state = await state_of(world, ref)
        state.tail.CopyFrom(IntakeTail(run_id=state.owner, epoch=state.epoch, end=2))
        state.epoch += 1
        await world.metadata.txn([], [Put(state_key(ref), state.SerializeToString())])
        if dies:
            await stack.aclose()
            caller, _ = await stack.enter_async_context(world.service())
            await trio.sleep(LEASE)
        else:
            # The run notices that the state has changed.
            await caller.flush(ref)
        assert await caller.read_all(ref) == [b"0", b"a"]
        assert (await acked(caller, ref, b"b")).base_offset == 2


async def test_an_unanswered_put_is_repeated(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    lost: list[Call] = []

    def plan(call: Call) -> Fault | None:
        if call.kind == "put_if_absent" and "~intake" in call.key and not lost:
            lost.append(call)
            return Fault(hold=trio.Event())
        return None

    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        world.objects.plan = plan
        began = trio.current_time()
        await acked(caller, ref, b"a")
        assert lost
        assert trio.current_time() - began < 2


@pytest.mark.parametrize("puts_per_second", [1, 10])
async def test_the_pace_limits_puts_after_a_burst(puts_per_second: int, autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(intake_puts_per_second=puts_per_second, intake_put_burst=5) as (caller, catalog):
        ref = await world.topic(catalog, configs={"flush.ms": "10000"})
        began = trio.current_time()
        for number in range(25):
            await acked(caller, ref, b"%d" % number)
        assert trio.current_time() - began == pytest.approx(20 / puts_per_second, abs=1.5 / puts_per_second)


async def test_the_pace_does_not_limit_large_objects(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(intake_puts_per_second=1, intake_put_burst=1) as (caller, catalog):
        ref = await world.topic(catalog, configs={"flush.ms": "10000"})
        await acked(caller, ref, b"takes the only token")
        began = trio.current_time()
        for _ in range(20):
            appended = [await caller.append(ref, batch(b"x" * 16_000)) for _ in range(5)]
            assert await caller.durable(appended[-1])
        assert trio.current_time() - began < 1


async def test_a_partition_is_not_released_while_an_object_with_its_records_is_on_its_way(
    autojump_clock: MockClock,
) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(graceful=False) as (caller, catalog), trio.open_nursery() as nursery:
        ref = await topic_with_record(world, caller, catalog)
        former = caller.run_id
        world.objects.plan = lambda call: Fault(hold=trio.Event()) if call.kind == "put_if_absent" else None
        await caller.append(ref, batch(b"on its way"))
        await trio.sleep(0.1)
        run = caller.service.current
        assert run is not None
        nursery.start_soon(run.drain)
        await trio.sleep(100)
        assert world.counters.hand_overs == 0, "nobody knows whether the record is in the log"
        register = await world.metadata.get(paths.intake_register_key(NAMESPACE, former))
        assert register is not None
        assert IntakeRegister.FromString(register.value).sealed, "the next owner ends the intake first"


async def test_an_object_counts_only_when_all_before_it_are_stored(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service() as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        held = trio.Event()
        first: list[Call] = []

        def plan(call: Call) -> Fault | None:
            if call.kind == "put_if_absent" and "~intake" in call.key and (not first or call.key == first[0].key):
                first.append(call)
                return Fault(hold=held)
            return None

        world.objects.plan = plan
        for value in (b"a", b"b"):
            await caller.append(ref, batch(value))
            await trio.sleep(0.1)
        await trio.sleep(5)
        assert max(news.high_watermark for news in caller.news) == 1
        held.set()
        await trio.sleep(1)
        assert await caller.read_all(ref, 1) == [b"a", b"b"]


async def test_the_time_of_each_stage_is_counted(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    counters = world.counters
    stages = (counters.intake_wait_seconds, counters.intake_put_seconds, counters.intake_count_seconds)
    async with world.service(intake_puts_per_second=2, intake_put_burst=1) as (caller, catalog):
        ref = await world.topic(catalog, configs={"flush.ms": "10000"})
        await acked(caller, ref, b"0")
        await trio.sleep(10)
        before = [stage.total for stage in stages]
        first: list[str] = []

        def plan(call: Call) -> Fault | None:
            if call.kind != "put_if_absent" or "~intake" not in call.key:
                return None
            first.append(call.key)
            return Fault(delay=0.9 if call.key == first[0] else 0.1)

        world.objects.plan = plan
        await caller.append(ref, batch(b"a"))
        await trio.sleep(0.3)
        # The next token is there 0.5 s after the first put began, and that put is stored after 0.9 s.
        await acked(caller, ref, b"b")
        spent = [stage.total - was for stage, was in zip(stages, before, strict=True)]
        assert spent == pytest.approx([0.2, 0.9 + 0.1, 0.3])
        assert [sum(stage.counts) for stage in stages] == [3, 3, 3]


async def test_the_age_of_records_in_the_intake_includes_the_time_before_they_were_put_again(
    autojump_clock: MockClock,
) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service() as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        puts = len(intake_puts(world))
        await acked(caller, ref, b"a")
        await acked(caller, ref, b"b")
        await trio.sleep(200)
        assert len(intake_puts(world)) > puts + 2, "it was put again"
        run = caller.service.current
        assert run is not None
        assert run.intake.writer.oldest_seconds == pytest.approx(200, abs=1)
        await caller.flush(ref)
        await trio.sleep(15)
        assert run.intake.writer.oldest_seconds == 0


async def test_old_records_are_not_put_again_if_nothing_could_be_deleted(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service() as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        await acked(caller, ref, b"a")
        puts = len(intake_puts(world))
        await trio.sleep(600)
        assert len(intake_puts(world)) == puts


def _views(size: int) -> int:
    """Return the number of views of batches of at least this size in memory."""
    gc.collect()
    return sum(type(one) is memoryview and one.nbytes >= size for one in gc.get_objects())


async def _beside_a_late_one(world: World, caller: Caller, catalog: TopicCatalog) -> PartitionRef:
    """Create a partition whose records stay in the intake, and return another one. Both have a record in a segment."""
    late = await topic_with_record(world, caller, catalog)
    other = await world.topic(catalog, name="other")
    await acked(caller, other, b"0")
    await acked(caller, late, b"a")
    return other


async def test_batches_in_segments_are_not_kept_in_memory_until_those_of_other_partitions_are(
    autojump_clock: MockClock,
) -> None:
    world, before = World(SLOW_SEGMENTS, intake=True), _views(100_000)
    async with world.service() as (caller, catalog):
        other = await _beside_a_late_one(world, caller, catalog)
        for _ in range(5):
            await acked(caller, other, bytes(100_000))
        assert _views(100_000) > before
        await caller.flush(other)
        run = caller.service.current
        assert run is not None
        assert run.intake.writer.objects >= 5
        assert _views(100_000) == before


async def test_batches_that_were_in_a_segment_before_their_object_was_stored_are_not_kept_in_memory(
    autojump_clock: MockClock,
) -> None:
    world, before = World(SLOW_SEGMENTS, intake=True), _views(100_000)
    async with world.service() as (caller, catalog):
        other = await _beside_a_late_one(world, caller, catalog)
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if "~intake" in call.key and "put" in call.kind else None
        await caller.append(other, batch(bytes(100_000)))
        await trio.sleep(0.1)
        await caller.flush(other)
        held.set()
        await trio.sleep(0.5)
        run = caller.service.current
        assert run is not None
        assert run.intake.writer.objects >= 2
        assert _views(100_000) == before


async def test_a_chain_that_is_too_long_does_not_wait_for_a_deleted_topic(autojump_clock: MockClock) -> None:
    world, before = World(SLOW_SEGMENTS, intake=True), _views(100_000)
    async with world.service(intake_chain_bytes=300_000) as (caller, catalog):
        late = await topic_with_record(world, caller, catalog)
        deleted = await world.topic(catalog, name="deleted")
        await acked(caller, deleted, b"0")
        await acked(caller, deleted, b"a")
        for _ in range(5):
            await acked(caller, deleted, bytes(100_000))
        await acked(caller, late, b"a")
        await catalog.mark_deleting(deleted.topic_id)
        await trio.sleep(3)
        run = caller.service.current
        assert run is not None
        assert run.intake.writer.objects == 1
        assert _views(100_000) == before
