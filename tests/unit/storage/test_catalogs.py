"""Catalog pages: written as the log grows, read instead of segments, and ignored if they do not match the log."""

from collections.abc import Sequence
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.catalog.page import SEGMENTS_PER_PAGE, build_page, parse_page
from kafscale.errors import Unavailable
from kafscale.metadata.memory import no_answer
from kafscale.objects.memory import Call, Fault
from kafscale.v1.catalog_pb2 import CatalogContent, CatalogSegment
from kafscale.v1.common_pb2 import PartitionRef
from services.storage.log.pages import MAX_WAITING, UnfinishedPage
from services.storage.log.segments import SegmentMap
from services.storage.owning import owned
from services.storage.reading.offsets import MAX_TIMESTAMP
from tests.support.storage.harness import NAMESPACE, Caller, World, batch, state_key
from tests.unit.storage.test_retention import CHECK, HOUR, truncate

START = 1_000_000
PREFIX = paths.catalog_prefix(NAMESPACE, "orders", 0)


async def produce(caller: Caller, ref: PartitionRef, times: Sequence[int]) -> None:
    """Write one segment with one record for each timestamp."""
    for time in times:
        appended = await caller.append(ref, batch(b"x", timestamp=time))
        await caller.flush(ref)
        assert await caller.durable(appended)


async def pages(world: World) -> dict[str, CatalogContent]:
    keys = [info.key for info in await world.objects.list_from(PREFIX)]
    return {key.removeprefix(PREFIX): parse_page((await world.objects.get(key)).body) for key in keys}


async def bases(world: World) -> list[tuple[int, int, int]]:
    """Return the base offset, the end and the number of segments of each page, in the order of keys."""
    return [
        (found.segments[0].base_offset, found.segments[-1].next_offset, len(found.segments))
        for _, found in sorted((await pages(world)).items())
    ]


def read_segments(world: World) -> list[Call]:
    """Return the requests that read segments."""
    return [call for call in world.objects.calls if call.kind in ("get", "get_range") and call.key.endswith(".kfs")]


def read_pages(world: World) -> list[Call]:
    return [call for call in world.objects.calls if call.kind == "get" and call.key.startswith(PREFIX)]


@pytest.mark.parametrize("indexing", [True, False])
async def test_a_page_is_stored_for_every_64_segments_with_or_without_an_indexer(
    autojump_clock: MockClock, indexing: bool
) -> None:
    world = World(indexing=indexing)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await produce(caller, ref, range(START, START + 130))
        await trio.sleep(1)
        assert await bases(world) == [(0, 64, 64), (64, 128, 64)]
    (first, second) = sorted((await pages(world)).items())
    assert (first[0], second[0]) == ("00000000000000000000-1", "00000000000000000064-1")
    content = first[1]
    assert (content.topic, content.topic_id, content.partition, content.epoch) == ("orders", ref.topic_id, 0, 1)
    stored = await world.objects.head(paths.segment_key(NAMESPACE, "orders", 0, 5))
    assert content.segments[5] == CatalogSegment(
        base_offset=5,
        next_offset=6,
        size=stored.size,
        records=1,
        min_timestamp=START + 5,
        max_timestamp=START + 5,
        created_ms=world.now_ms,
        epoch=1,
    )


async def test_a_new_owner_continues_the_pages_of_the_former_one(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await produce(caller, ref, range(START, START + 100))
    async with world.service() as (caller, _):
        await produce(caller, ref, range(START + 100, START + 150))
        assert await bases(world) == [(0, 64, 64)]
    async with world.service() as (caller, _):
        world.objects.calls.clear()
        await produce(caller, ref, range(START + 150, START + 200))
        assert not read_pages(world)
        await produce(caller, ref, range(START + 200, START + 214))
        await trio.sleep(1)
        # The next page needed 86 segments that former owners had committed. Each was read once.
        assert len({call.key for call in read_segments(world)}) == 86
        assert await bases(world) == [(0, 64, 64), (64, 128, 64), (128, 192, 64)]
    written = await pages(world)
    assert list(written) == ["00000000000000000000-1", "00000000000000000064-3", "00000000000000000128-3"]
    assert [segment.epoch for segment in written["00000000000000000064-3"].segments] == [1] * 36 + [2] * 28


async def test_producers_do_not_wait_for_pages_and_a_failed_page_is_stored_later(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if call.key.startswith(PREFIX) else None
        await produce(caller, ref, range(START, START + 70))
        held.set()
        await trio.sleep(1)
        assert await bases(world) == [(0, 64, 64)]
        world.objects.plan = lambda call: (
            Fault(error=Unavailable("down")) if call.kind == "put_if_absent" and call.key.startswith(PREFIX) else None
        )
        world.objects.calls.clear()
        await produce(caller, ref, range(START + 70, START + 140))
        tries = [call for call in world.objects.calls if call.key.startswith(PREFIX)]
        # Not retried with every commit.
        assert 1 <= len(tries) <= 4
        world.objects.plan = None
        await trio.sleep(10)
        await produce(caller, ref, [START + 140])
        await trio.sleep(1)
        assert await bases(world) == [(0, 64, 64), (64, 128, 64)]


async def test_a_page_whose_put_was_not_answered_is_not_replaced(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        world.objects.plan = lambda call: (
            Fault(error=Unavailable("lost"), applied="before")
            if call.kind == "put_if_absent" and call.key.startswith(PREFIX)
            else None
        )
        await produce(caller, ref, range(START, START + 64))
        await trio.sleep(10)
        await produce(caller, ref, [START + 64])
        await trio.sleep(1)
        world.objects.plan = None
        assert await bases(world) == [(0, 64, 64)]
        assert world.objects.count("replace_if_match") == 0


async def test_segments_that_wait_for_a_page_are_bounded(autojump_clock: MockClock) -> None:
    page = UnfinishedPage()
    for base in range(3 * MAX_WAITING):
        page.add(CatalogSegment(base_offset=base))
        assert len(page.segments) <= MAX_WAITING
    assert page.segments[-1].base_offset == 3 * MAX_WAITING - 1
    assert page.segments[0].base_offset % SEGMENTS_PER_PAGE == 0


async def _log_of_200(world: World, times: Sequence[int] | None = None) -> PartitionRef:
    """Write 200 segments with two owners and three pages. By default timestamps rise by one second."""
    times = times or range(START, START + 200_000, 1000)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await produce(caller, ref, times[:90])
    async with world.service() as (caller, _):
        await produce(caller, ref, times[90:])
        await trio.sleep(1)
    assert await bases(world) == [(0, 64, 64), (64, 128, 64), (128, 192, 64)]
    return ref


async def test_timestamps_are_looked_up_in_pages_after_a_restart(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    ref = await _log_of_200(world)
    async with world.service() as (caller, _):
        await caller.fetch(ref, 200)
        world.objects.calls.clear()
        assert (await caller.offset_at(ref, START + 150_000)).offset == 150
        assert len(read_pages(world)) == 3
        assert len(read_segments(world)) == 1
        assert len(world.objects.calls) <= 8
        # Pages are read once. Segments whose records are all older cause no request.
        world.objects.calls.clear()
        assert (await caller.offset_at(ref, START + 70_500)).offset == 71
        assert [call.key for call in world.objects.calls] == [paths.segment_key(NAMESPACE, "orders", 0, 71)]
        # Segments after the last page are read once, and their timestamps are remembered.
        assert (await caller.offset_at(ref, START + 300_000)).offset == -1
        world.objects.calls.clear()
        assert (await caller.offset_at(ref, START + 300_000)).offset == -1
        assert not world.objects.calls


async def test_the_largest_timestamp_is_looked_up_in_pages(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    times = list(range(START, START + 200_000, 1000))
    times[17] = times[130] = START + 900_000
    ref = await _log_of_200(world, times)
    async with world.service() as (caller, _):
        world.objects.calls.clear()
        found = await caller.offset_at(ref, MAX_TIMESTAMP)
        assert (found.offset, found.timestamp) == (17, START + 900_000)
        # The segments after the last page, and the two that hold the timestamp.
        assert len({call.key for call in read_segments(world)}) == 8 + 2


async def test_retention_by_time_reads_pages_after_a_restart(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    world.now_ms = START + 1000 * HOUR
    ref = await _log_of_200(world, [START + i * HOUR for i in range(200)])
    world.now_ms = START + 150 * HOUR
    async with world.service(retention_ms=10 * HOUR) as (caller, _):
        world.objects.calls.clear()
        await trio.sleep(CHECK + 10)
        assert (await caller.fetch(ref, 0)).log_start == 140
        # The header of the first segment, to check that it exists, and the segment with the new log start.
        assert len(read_segments(world)) <= 2
        assert len(read_pages(world)) == 3
        assert len([call for call in world.objects.calls if call.kind == "list_from"]) <= 8
        # Pages wholly below the log start are deleted with their segments.
        assert await bases(world) == [(128, 192, 64)]
        await truncate(caller, ref, 200)
        await trio.sleep(1)
        assert await bases(world) == []


async def test_pages_are_deleted_after_the_log_start_moved_and_only_with_a_proven_lease(
    autojump_clock: MockClock,
) -> None:
    world = World(intake=False)
    ref = await _log_of_200(world)
    async with world.service(retention_check_ms=1_000) as (caller, _):
        world.objects.plan = lambda call: Fault(error=Unavailable("down")) if call.kind == "delete_many" else None
        await truncate(caller, ref, 130)
        await trio.sleep(1)
        assert (await caller.fetch(ref, 130)).log_start == 130
        assert len(await bases(world)) == 3
        world.metadata.faults.append(no_answer("keep_alive", times=1_000))
        await trio.sleep(9)
        world.objects.plan = None
        await trio.sleep(5)
        assert len(await bases(world)) == 3
        world.metadata.faults.clear()
        await trio.sleep(60)
        assert await bases(world) == [(128, 192, 64)]


async def _replace(world: World, base: int, content: CatalogContent, *, epoch: int) -> None:
    """Replace the page at ``base`` by one with this content and epoch."""
    keys = [info.key for info in await world.objects.list_from(f"{PREFIX}{base:020d}-")]
    await world.objects.delete_many(keys)
    ref = PartitionRef(topic=content.topic, topic_id=content.topic_id, partition=content.partition)
    key = paths.catalog_page_key(NAMESPACE, "orders", 0, base, epoch)
    await world.objects.put_if_absent(key, build_page(ref, epoch, content.segments))


async def _page_at(world: World, base: int) -> CatalogContent:
    return next(page for page in (await pages(world)).values() if page.segments[0].base_offset == base)


async def test_a_page_of_a_stale_owner_with_uncommitted_segments_is_ignored(autojump_clock: MockClock) -> None:
    """The page claims that its segments are old. Retention must not delete them, and lookups must not skip them."""
    world = World(indexing=True)
    world.now_ms = START + 1000 * HOUR
    ref = await _log_of_200(world, [START + 900 * HOUR + i for i in range(200)])
    stale = await _page_at(world, 0)
    for segment in stale.segments:
        segment.max_timestamp, segment.epoch = START, 7
    await _replace(world, 0, stale, epoch=7)
    async with world.service(retention_ms=500 * HOUR) as (caller, _):
        assert (await caller.offset_at(ref, START + 900 * HOUR + 5)).offset == 5
        await trio.sleep(CHECK + 10)
        assert (await caller.fetch(ref, 0)).log_start == 0


async def test_a_page_of_another_topic_with_the_same_name_is_ignored(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    world.now_ms = START + 1000 * HOUR
    ref = await _log_of_200(world, [START + 900 * HOUR + i for i in range(200)])
    foreign = await _page_at(world, 0)
    foreign.topic_id = bytes(16)
    for segment in foreign.segments:
        segment.max_timestamp = START
    await _replace(world, 0, foreign, epoch=1)
    async with world.service(retention_ms=500 * HOUR) as (caller, _):
        assert (await caller.offset_at(ref, START + 900 * HOUR + 5)).offset == 5
        await trio.sleep(CHECK + 10)
        assert (await caller.fetch(ref, 0)).log_start == 0


async def test_a_page_beyond_the_high_watermark_is_ignored(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await produce(caller, ref, [START, START + 1, START + 2])
    size = (await world.objects.head(paths.segment_key(NAMESPACE, "orders", 0, 0))).size
    segments = [
        CatalogSegment(base_offset=i, next_offset=i + 1, size=size, records=1, max_timestamp=5, epoch=epoch)
        for i, epoch in enumerate((1, 1, 1, 2))
    ]
    beyond = CatalogContent(topic="orders", topic_id=ref.topic_id, partition=0, segments=segments)
    await _replace(world, 0, beyond, epoch=1)
    async with world.service() as (caller, _):
        assert (await caller.offset_at(ref, START + 2)).offset == 2
        assert await caller.read_all(ref) == [b"x"] * 3


async def test_a_page_lists_only_committed_segments(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        await produce(caller, ref, range(START, START + 60))
        world.metadata.faults.append(no_answer("txn", key=state_key(ref), times=1_000))
        for _ in range(8):
            await caller.append(ref, batch(b"lost"))
            await trio.sleep(1)
        assert await bases(world) == []
    world.metadata.faults.clear()
    await trio.sleep(60)
    async with world.service() as (caller, _):
        await produce(caller, ref, range(START, START + 70))
        await trio.sleep(1)
    assert {segment.epoch for page in (await pages(world)).values() for segment in page.segments} == {1, 2}
    assert (await _page_at(world, 0)).segments[60].epoch == 2


async def test_damaged_and_missing_pages_are_skipped(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    ref = await _log_of_200(world)
    first, _, third = [info.key for info in await world.objects.list_from(PREFIX)]
    await world.objects.replace_if_match(first, b"damaged", (await world.objects.head(first)).etag)
    async with world.service() as (caller, _):
        assert (await caller.offset_at(ref, START + 64_000)).offset == 64
        await world.objects.delete_many([third])
        assert (await caller.offset_at(ref, START + 140_000)).offset == 140
        assert (await caller.offset_at(ref, START + 199_000)).offset == 199


async def test_pages_are_not_read_at_startup_or_by_fetches(autojump_clock: MockClock) -> None:
    world = World()
    ref = await _log_of_200(world)
    async with world.service() as (caller, _):
        world.objects.calls.clear()
        await caller.read_all(ref, 100)
        await produce(caller, ref, [START])
        assert not [call for call in world.objects.calls if call.key.startswith(PREFIX)]


async def test_pages_are_deleted_with_their_topic(autojump_clock: MockClock) -> None:
    world = World()
    await _log_of_200(world)
    async with world.service() as (_, catalog):
        await catalog.mark_deleting("orders")
        with trio.fail_after(60):
            await catalog.wait_free("orders")
        assert await bases(world) == []


async def test_a_deletion_waits_for_a_page_that_is_being_stored(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=15)
    held = trio.Event()
    world.objects.plan = lambda call: Fault(hold=held) if "~catalog/" in call.key and call.kind[:3] == "put" else None
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.fill(ref, SEGMENTS_PER_PAGE, batches=1)
        await catalog.mark_deleting("orders")
        await trio.sleep(60)
        assert "orders" in catalog.view.by_name
        held.set()
        await catalog.wait_free("orders")
        assert await world.objects.list_from(paths.catalog_prefix(NAMESPACE, "orders", 0)) == []


async def test_lookups_in_a_log_larger_than_the_segment_map_read_few_pages(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned, "SegmentMap", partial(SegmentMap, limit=20))
    world = World(indexing=True)
    ref = await _log_of_200(world)
    async with world.service() as (caller, _):
        assert (await caller.offset_at(ref, START + 150_000)).offset == 150
        world.objects.calls.clear()
        assert (await caller.offset_at(ref, START + 150_000)).offset == 150
        # The first lookup showed which pages have no records that recent.
        assert len(read_pages(world)) == 1
        assert len(read_segments(world)) == 1
        assert await caller.read_all(ref, 180) == [b"x"] * 20
