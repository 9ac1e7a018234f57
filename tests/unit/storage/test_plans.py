"""PlanScan: bounds become offsets, and splits are even in bytes."""

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.catalog.page import SEGMENTS_PER_PAGE, build_page
from kafscale.metadata.interface import Put
from kafscale.v1.catalog_pb2 import CatalogSegment
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import EpochHistory, PartitionState
from kafscale.v1.storage_pb2 import Bound, TopicsRequest
from tests.support.storage.cluster import cluster
from tests.support.storage.harness import NAMESPACE, World, batch, siblings, state_key
from tests.unit.storage.test_scan_streams import scanned, two_instances


async def test_splits_are_even_in_bytes_and_cover_every_offset_once(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1") as two:
        ref, owner, other = await two_instances(two)
        await owner.fill(ref, 12)
        for caller in (owner, other):
            (whole,) = await caller.plan(ref)
            assert [(split.start, split.end) for split in whole.splits] == [(0, 2400)]
            total = whole.splits[0].bytes
            (plan,) = await caller.plan(ref, split_bytes=total // 4)
            assert [(split.start, split.end) for split in plan.splits] == [(i * 600, i * 600 + 600) for i in range(4)]
            assert max(split.bytes for split in plan.splits) < total // 4 * 1.1
            (plan,) = await caller.plan(ref, split_bytes=total // 100)
            assert len(plan.splits) > 90
            (plan,) = await caller.plan(ref, split_records=500, start=Bound(offset=100), end=Bound(offset=1_700))
            assert [split.start for split in plan.splits] == [100, 500, 900, 1300]
            assert plan.splits[-1].end == 1700


async def test_latest_is_the_current_high_watermark(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1") as two:
        ref, owner, other = await two_instances(two)
        for number in range(20):
            await two.append_durably(ref, batch(b"%d" % number))
            for caller in (owner, other):
                (plan,) = await caller.plan(ref)
                assert (plan.status, plan.start, plan.end) == (Status.OK, 0, number + 1)
                assert (plan.log_start, plan.high_watermark) == (0, number + 1)


async def test_splits_without_records_in_the_time_range_are_omitted(autojump_clock: MockClock) -> None:
    async with cluster(World(intake=False, indexing=True), "a:1", "b:1") as two:
        ref, owner, other = await two_instances(two)
        # Two pages, the second with records inside the range, and segments without a page.
        for number in range(150):
            await two.append_durably(ref, batch(b"%d" % number, timestamp=1_000 + number))
        await trio.sleep(10)
        (plan,) = await owner.plan(ref, split_bytes=1_000, since_ms=1_100)
        assert plan.splits[0].start == 100
        (plan,) = await other.plan(ref, split_bytes=1_000, since_ms=1_100)
        assert 64 <= plan.splits[0].start <= 100
        assert plan.splits[-1].end == 150
        for caller in (owner, other):
            (plan,) = await caller.plan(ref, split_bytes=1_000, until_ms=1_100)
            assert plan.splits[0].start == 0
            (plan,) = await caller.plan(ref, since_ms=9_999_999)
            assert plan.splits == [] or plan.splits[0].start >= 128


async def test_bounds_by_time_become_offsets(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1") as two:
        ref, owner, other = await two_instances(two)
        for number in range(10):
            await two.append_durably(ref, batch(b"%d" % number, timestamp=1_000 * number))
        for caller in (owner, other):
            (plan,) = await caller.plan(ref, start=Bound(timestamp=2_500), end=Bound(timestamp=7_000))
            assert (plan.start, plan.end, [(s.start, s.end) for s in plan.splits]) == (3, 7, [(3, 7)])
            (plan,) = await caller.plan(ref, start=Bound(timestamp=9_001))
            assert (plan.start, plan.end, list(plan.splits)) == (10, 10, [])
            (plan,) = await caller.plan(ref, start=Bound(offset=50), end=Bound(offset=70))
            assert (plan.status, plan.start, plan.end, list(plan.splits)) == (Status.OK, 50, 70, [])
            (plan,) = await caller.plan(ref, start=Bound())
            assert plan.status == Status.INVALID


async def test_a_partition_that_was_never_owned_has_an_empty_plan(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1") as two:
        ref, owner, other = await two_instances(two)
        for caller in (owner, other):
            (plan,) = await caller.plan(ref, start=Bound(timestamp=0), end=Bound(timestamp=5_000))
            assert (plan.status, plan.start, plan.end, list(plan.splits)) == (Status.OK, 0, 0, [])
        assert await two.owner(ref) == ""
        await two.append_durably(ref, batch(b"x", timestamp=4_000))
        await owner.delete_records(ref, 1)
        for caller in (owner, other):
            (plan,) = await caller.plan(ref, start=Bound(timestamp=0), end=Bound(timestamp=5_000))
            assert (plan.status, plan.start, plan.end, list(plan.splits)) == (Status.OK, 1, 1, [])


async def test_hundreds_of_partitions_are_planned_in_one_call(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1", scanned_partitions=10) as two:
        ref, *_ = await two_instances(two, partitions=300)
        refs = siblings(ref, 300)
        for one in refs[::7]:
            await two.append_durably(one, batch(b"x"))
        calls = two.world.objects.count("list_from", "get", "get_range")
        for instance in two.instances:
            plans = await instance.caller.plan(*refs)
            assert two.world.objects.count("list_from", "get", "get_range") == calls
            assert [plan.end for plan in plans] == [1 if index % 7 == 0 else 0 for index in range(300)]


async def test_a_few_new_segments_are_planned_without_a_listing(autojump_clock: MockClock) -> None:
    world = World(intake=False, indexing=True)
    async with cluster(world, "a:1", "b:1") as two:
        ref, *_ = await two_instances(two, partitions=20)
        refs, (first, _) = siblings(ref, 20), two.instances
        assert len({two.assigned(one).address for one in refs}) == 2
        for trigger in range(4):
            for one in refs:
                for _ in range(3):
                    await two.append_durably(one, batch(b"x" * 100))
            calls = world.objects.count("list_from", "get", "get_range")
            plans = await first.caller.plan(*refs, start=Bound(offset=3 * trigger))
            assert [(plan.start, plan.end) for plan in plans] == [(3 * trigger, 3 * trigger + 3)] * 20
            assert {len(plan.splits) for plan in plans} == {1}
            if trigger:
                assert world.objects.count("list_from", "get", "get_range") == calls
                # Unknown sizes in partitions of others are estimated from known ones.
                assert len({split.bytes for plan in plans for split in plan.splits}) == 1


async def test_many_new_segments_are_planned_with_one_listing(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    async with cluster(world, "a:1", "b:1", cache_size=0) as two:
        ref, owner, other = await two_instances(two)
        await two.append_durably(ref, batch(b"x"))
        await other.plan(ref)
        for _ in range(10):
            await two.append_durably(ref, batch(bytes(3 << 20)))
        lists, reads = world.objects.count("list_from"), world.objects.count("get", "get_range")
        (plan,) = await other.plan(ref, start=Bound(offset=1), split_bytes=6 << 20)
        assert (world.objects.count("list_from"), world.objects.count("get", "get_range")) == (lists + 1, reads)
        assert [(split.start, split.end) for split in plan.splits] == [(i, i + 2) for i in range(1, 11, 2)]
        assert list(plan.splits) == list((await owner.plan(ref, start=Bound(offset=1), split_bytes=6 << 20))[0].splits)


async def test_a_scan_of_new_segments_lists_once(autojump_clock: MockClock) -> None:
    world = World(intake=False, indexing=True)
    async with cluster(world, "a:1", "b:1", cache_size=0) as two:
        ref, _, other = await two_instances(two)
        # More offsets than the first backward step of a search without any knowledge.
        await two.append_durably(ref, batch(*[b"0"] * 10_000))
        await other.plan(ref)
        for number in range(9):
            await two.append_durably(ref, batch(b"%d" % number))
        lists = world.objects.count("list_from")
        assert len(scanned(await other.scan(ref, 10_000, 10_009), 10_000, 10_009)) == 9
        assert world.objects.count("list_from") == lists + 1


async def test_a_hundred_thousand_segments_are_planned_from_pages(autojump_clock: MockClock) -> None:
    world = World(intake=False, indexing=True)
    async with cluster(world, "a:1", "b:1") as two:
        ref, owner, other = await two_instances(two)
        segments, records = 100_000, 10
        await catalogued(world, ref, segments, records)
        for caller in (other, owner):
            await caller.plan(ref)
            calls = world.objects.count("list_from", "get", "get_range")
            (plan,) = await caller.plan(ref, split_bytes=32 << 20)
            assert world.objects.count("list_from", "get", "get_range") - calls <= 3
            assert (plan.start, plan.end) == (0, segments * records)
            assert [split.start for split in plan.splits[1:]] == [split.end for split in plan.splits[:-1]]
            sizes = [split.bytes for split in plan.splits]
            assert sum(sizes) == pytest.approx(segments * 4096, rel=0.01)
            assert max(sizes) < 1.3 * min(sizes)


async def catalogued(world: World, ref: PartitionRef, segments: int, records: int) -> None:
    """Create a log that consists of pages and a state only. All other objects are missing."""
    for first in range(0, segments, SEGMENTS_PER_PAGE):
        bases = range(first * records, min(first + SEGMENTS_PER_PAGE, segments) * records, records)
        entries = [
            CatalogSegment(
                base_offset=base,
                next_offset=base + records,
                size=4096,
                records=records,
                max_timestamp=base,
                created_ms=1,
                epoch=1,
            )
            for base in bases
        ]
        key = paths.catalog_page_key(NAMESPACE, ref.topic, ref.partition, bases[0], 1)
        await world.objects.put_if_absent(key, build_page(ref, 1, entries))
    end = segments * records
    state = PartitionState(format=1, topic_id=ref.topic_id, epoch=1, high_watermark=end, producers_from=end)
    history = EpochHistory(format=1, topic_id=ref.topic_id, entries=[EpochHistory.Entry(epoch=1, first_offset=0)])
    history_key = paths.epoch_history_key(NAMESPACE, ref.topic, ref.partition)
    puts = [Put(state_key(ref), state.SerializeToString()), Put(history_key, history.SerializeToString())]
    assert (await world.metadata.txn((), puts)).succeeded


async def test_topics_are_listed_with_the_addresses_of_storage(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1") as two:
        first = two.instances[0]
        await two.world.topic(first.catalog, "one", partitions=3, configs={"retention.ms": "7000"})
        await two.world.topic(first.catalog, "two", partitions=1)
        await two.world.topic(first.catalog, "gone", partitions=1)
        await first.catalog.mark_deleting("gone")
        await trio.sleep(1)
        for instance in two.instances:
            reply = await instance.caller.storage.topics(TopicsRequest(), timeout=60)
            assert [(topic.name, topic.partitions) for topic in reply.topics] == [("one", 3), ("two", 1)]
            assert reply.topics[0].configs["retention.ms"] == "7000"
            assert reply.topics[1].configs["cleanup.policy"] == "delete"
            assert list(reply.instances) == ["a:1", "b:1"]
            reply = await instance.caller.storage.topics(TopicsRequest(names=["two", "none", "gone"]), timeout=60)
            assert [topic.name for topic in reply.topics] == ["two"]


async def test_an_owner_without_a_lease_does_not_report_the_end_of_the_log(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1") as two:
        ref, owner, _ = await two_instances(two)
        await two.append_durably(ref, batch(b"0"))
        paused = two.assigned(ref)
        paused.pause()
        await trio.sleep(30)
        await two.append_durably(ref, batch(b"1"))
        with trio.move_on_after(10):
            (plan,) = await owner.plan(ref)
            assert (plan.status, plan.end) != (Status.OK, 1)
        paused.resume()
