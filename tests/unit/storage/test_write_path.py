"""From append to commit: acked records are stored once and in order."""

from collections import deque

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.memory import lost_answer, no_answer
from kafscale.objects.memory import Call, Fault
from kafscale.segment.format import SegmentHeader
from kafscale.segment.index import build_index, parse_index
from kafscale.segment.reader import parse_segment
from kafscale.segment.verify import verify_index
from kafscale.v1.common_pb2 import Status
from kafscale.v1.metadata_pb2 import PartitionState
from kafscale.v1.storage_pb2 import AppendRequest, CommitsEvent, CommitsRequest, PartitionAppend, PartitionAppended
from tests.support.storage.harness import NAMESPACE, World, batch, siblings, state_key, values


def _segments(world: World) -> int:
    return sum(call.kind == "put_if_absent" and call.key.endswith(".kfs") for call in world.objects.calls)


async def test_every_batch_of_an_append_is_readable_after_the_commit(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        appended = await caller.append(ref, batch(b"a", b"b") + batch(b"c"))
        assert (appended.status, appended.base_offset, appended.end_offset) == (Status.OK, 0, 3)
        assert await caller.durable(appended)
        assert values((await caller.fetch(ref, 0)).records) == [b"a", b"b", b"c"]


async def test_a_commit_stream_without_news_has_heartbeats(autojump_clock: MockClock) -> None:
    async with (
        World().service() as (caller, _),
        caller.storage.commits(CommitsRequest(stream_id="another")) as stream,
    ):
        assert (await stream.receive()).ready
        with trio.fail_after(7):
            for _ in range(3):
                assert await stream.receive() == CommitsEvent()


async def test_a_failed_flush_acks_no_append(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"zero")))
        refused = {"n": 0}

        def plan(call: Call) -> Fault | None:
            if call.kind != "put_if_absent" or not call.key.endswith(".kfs") or refused["n"] >= 3:
                return None
            refused["n"] += 1
            return Fault(error=Unavailable("503"))

        world.objects.plan = plan
        first = await caller.append(ref, batch(b"one"))
        second = await caller.append(ref, batch(b"two"))
        flushed: list[int] = []

        async def flush() -> None:
            await caller.flush(ref)
            flushed.append((await caller.fetch(ref, 0)).high_watermark)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flush)
            nursery.start_soon(flush)
            await trio.sleep(0.05)
            assert refused["n"] == 1
            assert flushed == []
            assert not any(news.high_watermark > 1 for news in caller.news)
        assert flushed == [3, 3]
        assert await caller.durable(first)
        assert await caller.durable(second)
        assert await caller.read_all(ref) == [b"zero", b"one", b"two"]
        assert refused["n"] == 3


async def test_a_buffer_is_flushed_after_the_interval_and_at_shutdown(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service(flush_interval_ms=60_000) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"at once")))
        later = await caller.append(ref, batch(b"by time"))
        began = trio.current_time()
        assert await caller.durable(later)
        assert trio.current_time() - began > 50
        await caller.append(ref, batch(b"by shutdown"))
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"at once", b"by time", b"by shutdown"]


async def test_appends_within_one_interval_share_a_segment(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.durable(await caller.append(ref, batch(b"first")))
        before = _segments(world)
        for i in range(1000):
            last = await caller.append(ref, batch(b"%d" % i))
        assert await caller.durable(last)
        assert _segments(world) == before + 1


async def test_partitions_of_one_request_are_flushed_together(autojump_clock: MockClock) -> None:
    async with (world := World()).service(flush_interval_ms=60_000) as (caller, catalog):
        ref = await world.topic(catalog)
        refs = siblings(ref, 3)
        world.objects.plan = lambda call: Fault(delay=10) if call.kind == "put_if_absent" else None
        # The first records are stored at once, the second ones by the flush.
        for _ in range(2):
            began = trio.current_time()
            reply = await caller.send(*(PartitionAppend(partition=one, records=batch(b"x")) for one in refs))
            assert [result.status for result in reply.results] == [Status.OK] * 3
            await caller.flush(*refs)
            assert trio.current_time() - began < 20


async def test_the_high_watermark_moves_only_after_object_and_metadata_are_stored(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if call.key.endswith(".kfs") else None
        appended = await caller.append(ref, batch(b"x"))
        await trio.sleep(5)
        assert (await caller.fetch(ref, 0)).high_watermark == 0
        held.set()
        assert await caller.durable(appended)
        state = await world.metadata.get(state_key(ref))
        assert state is not None
        assert PartitionState.FromString(state.value).high_watermark == 1


async def test_the_high_watermark_does_not_move_before_the_commit_is_answered(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.durable(await caller.append(ref, batch(b"first")))
        world.metadata.faults.append(no_answer("txn", key=state_key(ref), times=1_000))
        appended = await caller.append(ref, batch(b"x"))
        await trio.sleep(5)
        assert _segments(world) == 2
        assert not any(news.high_watermark > 1 for news in caller.news)
        assert (await caller.fetch(ref, 0)).high_watermark == 1
        world.metadata.faults.clear()
        assert await caller.durable(appended)


async def test_offsets_are_not_assigned_twice_after_a_failed_upload(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        failing = {"on": True}
        world.objects.plan = lambda call: (
            Fault(error=Unavailable("slow down"))
            if failing["on"] and call.kind == "put_if_absent" and call.key.endswith(".kfs")
            else None
        )
        offsets = [(await caller.append(ref, batch(b"%d" % i))).base_offset for i in range(3)]
        await trio.sleep(3)
        offsets.append((await caller.append(ref, batch(b"3"))).base_offset)
        failing["on"] = False
        await caller.flush(ref)
        assert offsets == [0, 1, 2, 3]
        assert await caller.read_all(ref) == [b"0", b"1", b"2", b"3"]


async def test_an_idle_partition_causes_no_requests(autojump_clock: MockClock) -> None:
    # The instance's regular search for old stages must not run.
    async with (world := World()).service(stage_check_ms=86_400_000) as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.durable(await caller.append(ref, batch(b"x")))
        await trio.sleep(600)
        before = len(world.objects.calls)
        await trio.sleep(3600)
        assert world.objects.calls[before:] == []


async def test_an_own_put_with_a_lost_answer_is_not_mistaken_for_fencing(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        lost = {"n": 0}

        def plan(call: Call) -> Fault | None:
            if call.kind == "put_if_absent" and call.key.endswith(".kfs") and not lost["n"]:
                lost["n"] = 1
                return Fault(error=Unavailable("reset"), applied="before")
            return None

        world.objects.plan = plan
        appended = await caller.append(ref, batch(b"x"))
        assert await caller.durable(appended)
        assert lost["n"] == 1
        assert (await caller.fetch(ref, 0)).epoch == appended.epoch


async def test_a_commit_of_unknown_outcome_is_repeated_unchanged(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.durable(await caller.append(ref, batch(b"first")))
        world.metadata.faults.append(lost_answer(key=state_key(ref)))
        appended = await caller.append(ref, batch(b"x"))
        after = await caller.append(ref, batch(b"y"))
        assert await caller.durable(appended)
        assert await caller.durable(after)
        assert appended.epoch == after.epoch
        assert await caller.read_all(ref) == [b"first", b"x", b"y"]


async def test_a_dead_owners_segment_with_the_same_key_is_replaced(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.durable(await caller.append(ref, batch(b"old")))
        first = paths.segment_key(NAMESPACE, ref.topic, 0, 0)
        data = bytearray((await world.objects.get(first)).body)
        stray = paths.segment_key(NAMESPACE, ref.topic, 0, 1)
        await world.objects.put_if_absent(stray, bytes(data))
    async with world.service() as (caller, _):
        appended = await caller.append(ref, batch(b"new"))
        assert await caller.durable(appended)
        assert SegmentHeader.parse((await world.objects.get(stray)).body).epoch == appended.epoch
        assert await caller.read_all(ref) == [b"old", b"new"]


async def test_requests_that_arrive_out_of_order_are_applied_in_order(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        replies: dict[int, PartitionAppended] = {}

        async def send(sequence: int) -> None:
            append = PartitionAppend(partition=ref, records=batch(b"%d" % sequence))
            request = AppendRequest(stream_id=caller.stream_id, sequence=sequence, seen=0, appends=[append])
            replies[sequence] = (await caller.storage.append(request, timeout=60)).results[0]

        async with trio.open_nursery() as nursery:
            for sequence in (4, 2, 3):
                nursery.start_soon(send, sequence)
                await wait_all_tasks_blocked()
            assert replies == {}
            nursery.start_soon(send, 1)
        assert [replies[sequence].base_offset for sequence in (1, 2, 3, 4)] == [0, 1, 2, 3]
        await caller.flush(ref)
        assert await caller.read_all(ref) == [b"1", b"2", b"3", b"4"]


async def test_a_dead_owners_index_with_the_same_key_is_replaced(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        key = paths.index_key(NAMESPACE, ref.topic, 0, 0)
        await world.objects.put_if_absent(key, build_index([0, 200], [32, 500]))
        await caller.append(ref, batch(b"ours") + batch(b"too"))
        await caller.flush(ref)
        await trio.sleep(1)
        segment = (await world.objects.get(paths.segment_key(NAMESPACE, ref.topic, 0, 0))).body
        assert verify_index(parse_index((await world.objects.get(key)).body), parse_segment(segment)) == []


async def test_a_full_buffer_refuses_the_append_and_those_behind_it(autojump_clock: MockClock) -> None:
    async with (world := World()).service(partition_buffer_bytes=65536) as (caller, catalog):
        ref = await world.topic(catalog)
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if call.kind == "put_if_absent" else None
        big = batch(b"x" * 40_000)
        assert (await caller.append(ref, big)).status == Status.OK
        seen = caller.sequence
        assert (await caller.append(ref, big)).status == Status.BUFFER_FULL
        small = PartitionAppend(partition=ref, records=batch(b"behind"))
        assert (await caller.send(small, seen=seen)).results[0].status == Status.REFUSED_BEHIND
        assert (await caller.append(ref, batch(b"after"))).status == Status.OK
        held.set()
        await caller.flush(ref)
        assert (await caller.read_all(ref))[1:] == [b"after"]


async def test_all_partitions_share_a_total_limit(autojump_clock: MockClock) -> None:
    async with (world := World()).service(buffer_bytes=65536) as (caller, catalog):
        first, second, _ = siblings(await world.topic(catalog), 3)
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if call.kind == "put_if_absent" else None
        big = batch(b"x" * 40_000)
        assert (await caller.append(first, big)).status == Status.OK
        assert (await caller.append(second, big)).status == Status.BUFFER_FULL
        assert (await caller.append(second, batch(b"small"))).status == Status.OK
        held.set()
        await caller.flush(first, second)
        assert (await caller.append(second, big)).status == Status.OK


async def test_a_lost_partition_frees_its_buffer_space(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service(buffer_bytes=65536) as (caller, catalog):
        first, second, _ = siblings(await world.topic(catalog), 3)
        await caller.append(first, batch(b"x"))
        await caller.flush(first)
        await world.seize(first)
        big = batch(b"x" * 40_000)
        assert not await caller.durable(await caller.append(first, big))
        assert (await caller.append(second, big)).status == Status.OK


async def test_congestion_holds_back_unacknowledged_producers(autojump_clock: MockClock) -> None:
    async with (world := World()).service(partition_buffer_bytes=65536) as (caller, catalog):
        ref = await world.topic(catalog)
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if call.kind == "put_if_absent" else None
        assert (await caller.append(ref, batch(b"x"))).hold_until == 0
        appended = await caller.append(ref, batch(b"x" * 40_000), unacknowledged=True)
        assert appended.hold_until == 2
        held.set()
        await caller.flush(ref)


async def test_a_producer_with_many_requests_in_flight_is_slowed_down_and_not_refused(
    autojump_clock: MockClock,
) -> None:
    async with (world := World(intake=False)).service(
        partition_buffer_bytes=65536, segment_bytes=4096, flushes_in_flight=1
    ) as (
        caller,
        catalog,
    ):
        ref = await world.topic(catalog)
        world.objects.plan = lambda call: Fault(delay=1) if call.kind == "put_if_absent" else None
        in_flight: deque[PartitionAppended] = deque()
        for _ in range(200):
            appended = await caller.append(ref, batch(b"x" * 1_000), unacknowledged=True)
            assert appended.status == Status.OK
            in_flight.append(appended)
            # A third of the buffer. Appends that are not held are answered at once.
            while len(in_flight) >= 20 or (in_flight and not in_flight[0].hold_until):
                oldest = in_flight.popleft()
                if oldest.hold_until:
                    oldest.end_offset = oldest.hold_until
                    assert await caller.durable(oldest)
        await caller.flush(ref)


async def test_segments_are_sealed_by_size_and_compressed_by_the_topics_codec(autojump_clock: MockClock) -> None:
    async with (world := World()).service(segment_bytes=10_000) as (caller, catalog):
        ref = await world.topic(catalog, configs={"compression.type": "zstd"})
        for _ in range(10):
            await caller.append(ref, batch(b"a" * 3_000))
        await caller.flush(ref)
        body = (await world.objects.get(paths.segment_key(NAMESPACE, ref.topic, 0, 0))).body
        parsed = parse_segment(body, check_batches=True)
        assert parsed.header.flags & 7 == 4
        assert len(body) < 3_000
        assert await caller.read_all(ref) == [b"a" * 3_000] * 10
        await caller.append(ref, batch(b"nothing to gain"))
        await caller.flush(ref)
        body = (await world.objects.get(paths.segment_key(NAMESPACE, ref.topic, 0, 10))).body
        assert SegmentHeader.parse(body).flags & 7 == 0


async def test_an_index_built_by_storage_has_the_configured_interval(autojump_clock: MockClock) -> None:
    async with (world := World()).service(index_interval=7) as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.append(ref, b"".join(batch(b"x") for _ in range(30)))
        await caller.flush(ref)
        await trio.sleep(1)
        index = parse_index((await world.objects.get(paths.index_key(NAMESPACE, ref.topic, 0, 0))).body)
        assert (index.interval, list(index.offsets)) == (7, [0, 7, 14, 21, 28])


async def test_a_timer_that_is_set_later_and_due_earlier_fires_first(autojump_clock: MockClock) -> None:
    async with (world := World()).service(flush_interval_ms=10_000) as (caller, catalog):
        ref = await world.topic(catalog)
        early, late = siblings(ref, 2)
        await caller.append(early, batch(b"at once"))
        await trio.sleep(9)
        await caller.append(late, batch(b"at once"))
        await caller.append(late, batch(b"due after 19 s"))
        began = trio.current_time()
        assert await caller.durable(await caller.append(early, batch(b"due after 10 s")), early)
        assert trio.current_time() - began < 2


async def test_a_segment_larger_than_the_buffer_does_not_stop_a_producer(autojump_clock: MockClock) -> None:
    async with (world := World()).service(
        segment_bytes=1 << 20, partition_buffer_bytes=40_000, flush_interval_ms=600_000
    ) as (caller, catalog):
        ref = await world.topic(catalog)
        for _ in range(40):
            assert (await caller.append(ref, batch(bytes(9_000)))).status == Status.OK
            await trio.sleep(1)


async def test_a_buffer_whose_producers_wait_is_flushed_early(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service(early_flush_bytes=5_000, early_flush_quiet_ms=5) as (
        caller,
        catalog,
    ):
        ref = await world.topic(catalog)
        await caller.durable(await caller.append(ref, batch(b"at once")))
        began = trio.current_time()
        for _ in range(20):
            # Five at a time, like an idempotent producer's.
            last = [await caller.append(ref, batch(bytes(1_000))) for _ in range(5)][-1]
            assert await caller.durable(last)
        assert trio.current_time() - began == pytest.approx(20 * 0.005)
        assert _segments(world) == 21


async def test_a_buffer_that_keeps_filling_or_is_small_is_not_flushed_early(autojump_clock: MockClock) -> None:
    async with (world := World()).service(early_flush_bytes=5_000, early_flush_quiet_ms=5) as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.durable(await caller.append(ref, batch(b"at once")))
        for _ in range(100):
            await caller.append(ref, batch(bytes(1_000)))
            await trio.sleep(0.004)
        assert _segments(world) == 1
        await trio.sleep(1)
        assert _segments(world) == 2
        for _ in range(40):
            await caller.append(ref, batch(bytes(10)))
            await trio.sleep(0.05)
        assert _segments(world) <= 2 + 5
