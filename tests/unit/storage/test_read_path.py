"""Reads of committed ranges from memory, from the cache, and by index and ranged GET. Damage is never skipped."""

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.metadata.memory import no_answer
from kafscale.objects.memory import Fault
from kafscale.records.batch import walk
from kafscale.segment.index import build_index, parse_index
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import FetchRequest, PartitionFetch
from services.storage.log.known_segment import UNKNOWN_TIME, KnownSegment
from services.storage.log.segments import SegmentMap
from tests.support.storage.harness import NAMESPACE, TIMEOUT, Caller, World, batch, siblings, state_key, values


async def test_every_offset_is_served_from_cold_segments_and_inside_batches(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.fill(ref, 5)
    async with world.service(cache_size=0) as (caller, _):
        for offset in (0, 1, 49, 50, 199, 200, 777, 999):
            first = next(walk((await caller.fetch(ref, offset, max_bytes=1)).records))[1]
            assert first.base_offset <= offset < first.next_offset
        assert len(await caller.read_all(ref)) == 1000


async def test_a_cold_fetch_is_one_ranged_read_and_its_index_is_read_once(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.fill(ref, 5)
    async with world.service(cache_size=0, readahead_segments=0) as (caller, _):
        # The segments are known from now on.
        await caller.fetch(ref, 0, max_bytes=1)
        segment = paths.segment_key(NAMESPACE, ref.topic, 0, 400)
        for reads in (
            [("get", segment.replace(".kfs", ".index")), ("get_range", segment)],
            [("get_range", segment)],
        ):
            world.objects.calls.clear()
            await caller.fetch(ref, 450, max_bytes=1)
            assert [(call.kind, call.key) for call in world.objects.calls] == reads


async def test_a_batch_above_the_limit_is_returned_whole(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.durable(await caller.append(ref, batch(b"x" * 300_000)))
        await caller.flush(ref)
        assert values((await caller.fetch(ref, 0, max_bytes=10)).records) == [b"x" * 300_000]
    async with world.service() as (caller, _):
        assert values((await caller.fetch(ref, 0, max_bytes=10)).records) == [b"x" * 300_000]


async def test_small_batches_beyond_one_index_interval_do_not_stall(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        for i in range(250):
            await caller.append(ref, batch(b"%d" % i + b"y" * 20_000))
        await caller.flush(ref)
    async with world.service(cache_size=0) as (caller, _):
        assert len(await caller.read_all(ref)) == 250
        for offset in (190, 90, 160, 60, 1):
            fetched = await caller.fetch(ref, offset)
            assert values(fetched.records)[:1] == [b"%d" % offset + b"y" * 20_000]


async def test_an_offset_inside_a_batch_gives_that_batch(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.durable(await caller.append(ref, batch(b"a", b"b", b"c") + batch(b"d", b"e")))
        await caller.flush(ref)
        for offset in (1, 2):
            assert values((await caller.fetch(ref, offset)).records) == [b"a", b"b", b"c", b"d", b"e"]
    async with world.service(cache_size=0) as (caller, _):
        for offset in (1, 2):
            assert values((await caller.fetch(ref, offset)).records) == [b"a", b"b", b"c", b"d", b"e"]


async def test_limits_apply_per_partition_and_in_total(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        refs = siblings(ref, 3)
        for one in refs:
            await caller.append(one, batch(b"x" * 4_000) + batch(b"y" * 4_000))
            await caller.flush(one)

        async def batches(*, each: int, over_all: int) -> list[int]:
            fetches = [PartitionFetch(partition=one, offset=0, max_bytes=each, leader_epoch=-1) for one in refs]
            reply = await caller.storage.fetch(FetchRequest(max_bytes=over_all, fetches=fetches), timeout=TIMEOUT)
            return [len(values(result.records)) for result in reply.results]

        assert await batches(each=1 << 20, over_all=1 << 20) == [2, 2, 2]
        assert await batches(each=5_000, over_all=1 << 20) == [1, 1, 1]
        assert await batches(each=1 << 20, over_all=9_000) == [2, 0, 0]
        assert await batches(each=5_000, over_all=9_000) == [1, 1, 0]


async def test_each_group_of_a_request_has_its_own_limit(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        refs = siblings(await world.topic(catalog), 2)
        for one in refs:
            await caller.append(one, batch(b"x" * 4_000) + batch(b"y" * 4_000))
            await caller.flush(one)
        fetches = [
            PartitionFetch(partition=one, offset=0, max_bytes=1 << 20, leader_epoch=-1, group=group)
            for group in range(4)
            for one in refs
        ]
        request = FetchRequest(max_bytes=9_000, more_max_bytes=[100, 13_000, 0], fetches=fetches)
        reply = await caller.storage.fetch(request, timeout=TIMEOUT)
        batches = [len(values(result.records)) for result in reply.results]
        assert batches == [2, 0, 1, 0, 2, 1, 0, 0]
        with pytest.raises(CorruptData, match="group"):
            await caller.storage.fetch(FetchRequest(max_bytes=1, fetches=fetches), timeout=TIMEOUT)


async def test_damaged_segments_are_reported_and_not_returned(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.fill(ref, 1)
        key = paths.segment_key(NAMESPACE, ref.topic, 0, 0)
        good = await world.objects.get(key)
        bad = bytearray(good.body)
        bad[200] ^= 1
        await world.objects.replace_if_match(key, bytes(bad), good.etag)
    async with world.service() as (caller, _):
        fetched = await caller.fetch(ref, 0)
        assert fetched.status in (Status.DAMAGED, Status.UNAVAILABLE)
        assert not fetched.records


async def test_a_missing_segment_is_reported_and_does_not_move_the_log_start(autojump_clock: MockClock) -> None:
    world = World()

    async def read_around_the_hole(caller: Caller) -> None:
        for _ in range(2):
            fetched = await caller.fetch(ref, 250)
            assert (fetched.status, fetched.log_start, fetched.records) == (Status.DAMAGED, 0, b"")
            for offset in (0, 450):
                fetched = await caller.fetch(ref, offset)
                assert (fetched.status, fetched.log_start) == (Status.OK, 0)

    async with world.service(cache_size=0) as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.fill(ref, 3)
        await world.objects.delete_many([paths.segment_key(NAMESPACE, ref.topic, 0, 200)])
        await read_around_the_hole(caller)
    async with world.service() as (caller, _):
        await read_around_the_hole(caller)


async def test_uncommitted_segments_do_not_enter_the_cache(autojump_clock: MockClock) -> None:
    async with (world := World()).service(cache_size=15_000) as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.durable(await caller.append(ref, batch(b"1" * 10_000)))
        world.metadata.faults.append(no_answer("txn", key=state_key(ref), times=1_000))
        second = await caller.append(ref, batch(b"2" * 10_000))
        await trio.sleep(5)
        assert (await world.objects.head(paths.segment_key(NAMESPACE, ref.topic, 0, 1))).size > 10_000
        world.objects.calls.clear()
        assert values((await caller.fetch(ref, 0)).records) == [b"1" * 10_000]
        assert world.objects.calls == [], "the cache has room for one segment: the committed one"
        world.metadata.faults.clear()
        assert await caller.durable(second)
        world.objects.calls.clear()
        assert values((await caller.fetch(ref, 1)).records) == [b"2" * 10_000]
        assert world.objects.calls == []


async def test_committed_segments_are_served_from_the_cache(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.fill(ref, 1)
        world.objects.calls.clear()
        assert len(await caller.read_all(ref)) == 200
        assert world.objects.calls == []


async def test_a_wrong_index_is_rebuilt(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.fill(ref, 1, batches=6)
        key = paths.index_key(NAMESPACE, ref.topic, 0, 50)
        right = await world.objects.get(key)
        wrong = build_index([50, 200], [32, parse_index(right.body).positions[1]], interval=1)
        await world.objects.replace_if_match(key, wrong, right.etag)
    async with world.service(cache_size=0) as (caller, _):
        for offset in (280, 160, 40):
            fetched = await caller.fetch(ref, offset, max_bytes=1)
            assert fetched.status == Status.OK, fetched.detail
            header = next(walk(fetched.records))[1]
            assert header.base_offset <= offset < header.next_offset
        assert (await world.objects.get(key)).body == right.body


async def test_without_an_indexer_segments_with_bad_indexes_are_read_whole(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.fill(ref, 2, batches=6)
        first, second = (paths.index_key(NAMESPACE, ref.topic, 0, base) for base in (50, 0))
        right = await world.objects.get(first)
        wrong = build_index([50, 200], [32, parse_index(right.body).positions[1]], interval=1)
        await world.objects.replace_if_match(first, wrong, right.etag)
        await world.objects.delete_many([second])
    async with world.service(cache_size=0) as (caller, _):
        for offset in (280, 160, 40, 0):
            fetched = await caller.fetch(ref, offset, max_bytes=1)
            assert fetched.status == Status.OK, fetched.detail
            header = next(walk(fetched.records))[1]
            assert header.base_offset <= offset < header.next_offset


async def test_offsets_outside_the_log_are_out_of_range(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.fill(ref, 1)
        assert (await caller.fetch(ref, 200)).status == Status.OK
        assert (await caller.fetch(ref, 201)).status == Status.OFFSET_OUT_OF_RANGE
        assert (await caller.fetch(ref, -1)).status == Status.OFFSET_OUT_OF_RANGE


async def test_startup_cost_does_not_grow_with_the_log(autojump_clock: MockClock) -> None:
    async def calls(segments: int) -> int:
        """Return the number of requests to the object store from the start to the first answer."""
        world = World()
        async with world.service(segment_bytes=1024) as (caller, catalog):
            ref = await world.topic(catalog)
            for i in range(segments):
                await caller.append(ref, batch(bytes(1100)))
                if i % 8 == 0:
                    await caller.flush(ref)
        world.objects.calls.clear()
        async with world.service() as (caller, _):
            assert (await caller.fetch(ref, segments)).status == Status.OK
            found = len(world.objects.calls)
            assert await world.objects.list_from(paths.segment_key(NAMESPACE, ref.topic, 0, segments - 1)) != []
        return found

    # With their indexes, 600 segments are more keys than one listing returns.
    assert await calls(600) == await calls(1)


def _known(base: int) -> KnownSegment:
    return KnownSegment(base, 10, UNKNOWN_TIME)


def test_a_segment_map_answers_only_for_ranges_it_knows() -> None:
    known = SegmentMap(100, _known(90))
    assert known.holding(95) == _known(90)
    assert known.holding(50) is None
    known.listed(40, [_known(45), _known(60)], 70)
    assert known.holding(44) is None
    assert known.holding(50) == _known(45)
    assert known.after(_known(45)) == _known(60)
    assert known.after(_known(60)) is None
    known.listed(70, [_known(80), _known(90)], 100)
    assert known.after(_known(60)) == _known(80)
    known.committed(_known(100), 110)
    assert [known.after(_known(base)) for base in (80, 90, 100)] == [_known(90), _known(100), None]
    known.forget(80)
    assert known.holding(85) == _known(60)


def test_a_segment_map_describes_gaps_by_their_surroundings() -> None:
    known = SegmentMap(100, _known(90))
    assert [known.gap(offset) for offset in (50, 90, 100)] == [None, None, None]
    assert known.before(90) == (None, 0)
    known.listed(120, [KnownSegment(120, 40, UNKNOWN_TIME)], 130)
    assert known.gap(99) is known.gap(120) is None
    assert known.gap(100) == known.gap(119) == (100, 120, 80)
    assert known.before(119) == known.before(100) == (_known(90), 100)
    known.listed(100, [_known(100), _known(110)], 120)
    assert known.gap(110) is None
    # A listing that ended with a segment, whose end is not known.
    known.listed(200, [_known(200)], 201)
    assert known.gap(150) == (130, 200, 700)


def test_a_segment_map_forgets_the_lowest_ranges_if_there_are_too_many() -> None:
    known = SegmentMap(10, _known(0))
    for end in range(30, 20_010, 20):
        known.listed(end - 10, [_known(end - 10)], end)
    assert len(known) < 500
    assert known.holding(0) is None
    assert known.holding(19_985) == _known(19_980)
    assert known.gap(19_975) == (19_970, 19_980, 10)


def test_a_full_segment_map_forgets_the_oldest_segments() -> None:
    known = SegmentMap(0, limit=10)
    for base in range(0, 200, 10):
        known.committed(_known(base), base + 10)
    assert len(known) <= 10
    assert known.holding(195) == _known(190)
    assert known.holding(5) is None


@pytest.mark.parametrize("base", [0, 1])
async def test_any_number_of_foreign_keys_is_skipped(autojump_clock: MockClock, base: int) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        for number in range(3):
            assert await caller.durable(await caller.append(ref, batch(b"%d" % number)))
    after = paths.segment_key(NAMESPACE, ref.topic, ref.partition, base)
    for number in range(2_100):
        await world.objects.put_if_absent(f"{after}.foreign-{number}", b"")
    # A listing without segments is not repeated forever.
    world.objects.plan = lambda call: Fault(delay=0.1) if call.kind == "list_from" else None
    async with world.service(cache_size=0) as (caller, _):
        with trio.fail_after(60):
            assert await caller.read_all(ref) == [b"0", b"1", b"2"]
