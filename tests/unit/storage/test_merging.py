"""Merging: many small segments become one object, and all records stay."""

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.catalog.page import SEGMENTS_PER_PAGE
from kafscale.errors import Unavailable
from kafscale.objects.memory import Call, Fault
from kafscale.rewritten.keys import RewrittenKey, RootKey
from kafscale.v1.common_pb2 import PartitionRef, Status
from services.storage.reading import finder
from tests.support.storage.harness import NAMESPACE, World
from tests.unit.storage.test_compaction import (
    CHECK,
    COMPACTED,
    GRACE,
    HOUR_MS,
    SETTINGS,
    read,
    records_of,
    rewritten,
    segments,
    write,
)


async def _written(world: World, segments: int) -> PartitionRef:
    """Write small segments to a new topic, an hour before they are read by a new owner."""
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        for number in range(segments):
            await write(caller, ref, ("k", str(number)), timestamp=world.now_ms)
        world.now_ms += HOUR_MS + 1
        return ref


async def test_old_segments_are_merged_slowly_and_new_ones_as_they_arrive(autojump_clock: MockClock) -> None:
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    ref = await _written(world, 18)
    size = sum([(await world.objects.head(key)).size for key in await segments(world)])
    async with world.service(merge="on", merge_io_bytes_per_second=size // 1000):
        await trio.sleep(1500)
        assert not (await world.state(ref)).HasField("root")
        # They are read, and the result is stored and read back.
        await trio.sleep(1500)
        assert (await world.state(ref)).HasField("root")
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    async with world.service(merge="on", merge_io_bytes_per_second=1) as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        for number in range(18):
            await write(caller, ref, ("k", str(number)), timestamp=world.now_ms)
        world.now_ms += HOUR_MS + 1
        await trio.sleep(20 * CHECK)
        assert (await world.state(ref)).HasField("root")


async def test_compaction_does_not_wait_for_all_slow_merges(autojump_clock: MockClock) -> None:
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    async with world.service(rewrites_in_flight=1, merge_io_bytes_per_second=4) as (caller, catalog):
        merges = {"kafscale.merge.enable": "true"}
        slow = [await world.topic(catalog, name, partitions=1, configs=merges) for name in ("first", "second")]
        for number in range(18):
            for each in slow:
                await write(caller, each, ("k", str(number)), timestamp=world.now_ms)
        # Producers are quiet for long.
        await trio.sleep(3000)
        world.now_ms += HOUR_MS + 1
        await trio.sleep(2 * CHECK)
        ref = await world.topic(catalog, partitions=1, configs=COMPACTED)
        for number in range(4):
            await write(caller, ref, ("k", str(number)))
        for _ in range(1000):
            await trio.sleep(CHECK)
            if (await world.state(ref)).HasField("root"):
                break
        assert sum([(await world.state(each)).HasField("root") for each in (*slow, ref)]) == 2


async def test_replaced_objects_are_deleted_although_another_log_is_merged_slowly(autojump_clock: MockClock) -> None:
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    long_grace_ms = 4_000_000
    async with world.service(merge="on", merge_io_bytes_per_second=1, rewrite_grace_ms=long_grace_ms) as (
        caller,
        catalog,
    ):

        async def write_segments(to: PartitionRef) -> None:
            for number in range(18):
                await write(caller, to, ("k", str(number)), timestamp=world.now_ms)

        ref = await world.topic(catalog, partitions=1)
        slow = await world.topic(catalog, "slow", partitions=1)
        await write_segments(ref)
        world.now_ms += HOUR_MS + 1
        await trio.sleep(20 * CHECK)
        assert (await world.state(ref)).HasField("root")
        await write_segments(slow)
        # Producers are quiet for long.
        await trio.sleep(3000)
        world.now_ms += HOUR_MS + 1
        await trio.sleep(2 * CHECK)
        # More of the first log is to be merged while the other one is.
        await write_segments(ref)
        world.now_ms += HOUR_MS + 1
        await trio.sleep(2 * CHECK)
        assert len(await segments(world)) == 36
        await trio.sleep(1000)
        assert not (await world.state(slow)).HasField("root")
        assert len(await segments(world)) == 19


async def test_a_call_merges_what_its_pace_allows_in_minutes(autojump_clock: MockClock) -> None:
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    ref = await _written(world, 200)
    size = sum([(await world.objects.head(key)).size for key in await segments(world)])
    # Ten merges, of which each takes a minute.
    async with world.service(merge="on", merge_bytes=size // 10, merge_io_bytes_per_second=size // 200):
        await trio.sleep(400)
        merged = await rewritten(world, RewrittenKey)
        first = min(key.attempt for key in merged)
        assert max(key.next_offset for key in merged if key.attempt == first) == 100
        assert max(key.next_offset for key in merged) > 100
        assert (await world.state(ref)).HasField("root")


async def test_small_segments_become_one_object(autojump_clock: MockClock) -> None:
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    async with world.service(merge="on") as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        other = await world.topic(catalog, "other", partitions=1, configs={"kafscale.merge.enable": "false"})
        for number in range(17):
            await write(caller, ref, ("k", f"{number}.0"), ("k", f"{number}.1"), timestamp=world.now_ms)
            await write(caller, other, ("k", f"{number}"), timestamp=world.now_ms)
        written = await read(caller, ref)
        assert len(written) == 34
        await trio.sleep(2 * CHECK)
        assert await rewritten(world, RewrittenKey) == []
        world.now_ms += HOUR_MS + 1
        await trio.sleep(2 * CHECK)
        [merged] = await rewritten(world, RewrittenKey)
        assert (merged.base_offset, merged.next_offset) == (0, 32)
        assert not (await world.state(other)).HasField("root")
        assert await read(caller, ref) == written
        assert await read(caller, ref, 8) == {offset: one for offset, one in written.items() if offset >= 8}
        pieces = await caller.scan(ref, 3, 33)
        assert all(piece.status == Status.OK for piece in pieces)
        found = {offset: one for piece in pieces for offset, one in records_of(piece.records).items()}
        assert {offset: one for offset, one in found.items() if 3 <= offset < 33} == {
            offset: one for offset, one in written.items() if 3 <= offset < 33
        }
        assert (await caller.offset_at(ref, 10 * HOUR_MS)).offset == 0
        await trio.sleep(GRACE + 3 * CHECK)
        assert len(await segments(world)) == 1
        # It is not merged again.
        numbers = [key.number for key in await rewritten(world, RootKey)]
        await write(caller, ref, ("k", "last"), timestamp=world.now_ms)
        world.now_ms += HOUR_MS + 1
        await trio.sleep(2 * GRACE)
        assert [key.number for key in await rewritten(world, RootKey)] == numbers
        for _ in range(16):
            await write(caller, ref, ("k", "more"), timestamp=world.now_ms)
        world.now_ms += HOUR_MS + 1
        await trio.sleep(2 * CHECK)
        assert [key.base_offset for key in await rewritten(world, RewrittenKey)] == [0, 32]
    # Without the setting, what was merged stays.
    async with world.service() as (caller, _):
        assert len(await read(caller, ref)) == 51


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [
        (4, [(0, 16), (16, 32)]),
        # Objects of four segments would save hardly any request.
        (15, []),
    ],
)
async def test_a_merged_object_spans_only_a_part_of_what_retention_keeps(
    minutes: int, expected: list[tuple[int, int]], autojump_clock: MockClock
) -> None:
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    async with world.service() as (caller, catalog):
        configs = {"kafscale.merge.enable": "true", "retention.ms": str(8 * HOUR_MS)}
        ref = await world.topic(catalog, partitions=1, configs=configs)
        for number in range(40):
            await write(caller, ref, ("k", str(number)), timestamp=world.now_ms)
            world.now_ms += minutes * 60_000
        await trio.sleep(2 * CHECK)
        assert [(key.base_offset, key.next_offset) for key in await rewritten(world, RewrittenKey)] == expected
        assert len(await read(caller, ref)) == 40


async def test_checks_of_what_is_not_merged_yet_read_nothing(autojump_clock: MockClock) -> None:
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    async with world.service(merge="on", cache_size=0, index_cache_size=0) as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        for number in range(20):
            await write(caller, ref, ("k", str(number)), timestamp=world.now_ms)
        await trio.sleep(2 * CHECK)
        before = len(world.objects.calls)
        await trio.sleep(20 * CHECK)
        assert [call.kind for call in world.objects.calls[before:] if "/orders/" in call.key] == []


async def test_a_new_owner_reads_the_headers_of_many_segments_concurrently(autojump_clock: MockClock) -> None:
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    ref = await _written(world, 48)
    world.objects.plan = lambda call: Fault(delay=1) if call.kind == "get_range" and "/orders/" in call.key else None
    async with world.service(merge="on") as (caller, _):
        await caller.fetch(ref, 47)
        await trio.sleep(40)
        assert [key.base_offset for key in await rewritten(world, RewrittenKey)] == [0]


@pytest.mark.parametrize("after", range(8, 14))
async def test_failed_listings_of_a_new_owner_end_nothing(
    after: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finder, "_PAGE", 5)
    world, failed = World(SETTINGS, indexing=True, rewrites=True), 0
    world.now_ms = 10 * HOUR_MS
    ref = await _written(world, 40)

    def plan(call: Call) -> Fault | None:
        nonlocal failed
        # The first listings are those of the checks before. The next ones are for the headers.
        listed = world.objects.count("list_from")
        if call.kind != "list_from" or "/orders/" not in call.key or failed == 1 or listed < after:
            return None
        failed += 1
        return Fault(error=Unavailable("down"))

    async with world.service(merge="on") as (caller, _):
        await caller.fetch(ref, 39)
        world.objects.calls.clear()
        world.objects.plan = plan
        await trio.sleep(1000)
        assert failed == 1
        assert [key.base_offset for key in await rewritten(world, RewrittenKey)] == [0]


async def test_a_topic_that_is_not_merged_any_more_keeps_its_other_segments(autojump_clock: MockClock) -> None:
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    async with world.service() as (caller, catalog):
        configs = {"kafscale.merge.enable": "false", "retention.ms": str(8 * HOUR_MS)}
        ref = await world.topic(catalog, partitions=1, configs=configs)
        for number in range(40):
            await write(caller, ref, ("k", str(number)), timestamp=world.now_ms)
            world.now_ms += 4 * 60_000
        slow = Fault(delay=5 * CHECK)
        world.objects.plan = lambda call: (
            slow if call.kind == "put_if_absent" and call.key.endswith(".kfs") and "/~rewritten/" in call.key else None
        )
        await catalog.configure(ref.topic_id, lambda _: {**configs, "kafscale.merge.enable": "true"})
        await trio.sleep(8 * CHECK)
        assert [key.base_offset for key in await rewritten(world, RewrittenKey)] == [0]
        await catalog.configure(ref.topic_id, lambda _: configs)
        await trio.sleep(20 * CHECK)
        assert (await world.state(ref)).root.through == 16
        assert len(await read(caller, ref)) == 40


@pytest.mark.parametrize(("limit", "together", "apart"), [(0, 100, 0.2), (1, 100, 0.2), (1 << 20, 8, 1.0)])
async def test_replaced_objects_are_deleted_some_at_a_time(
    autojump_clock: MockClock, limit: int, together: int, apart: float
) -> None:
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    deletes: list[tuple[float, int]] = []

    def plan(call: Call) -> Fault | None:
        if call.kind != "delete_many" or "/orders/" not in call.key:
            return None
        deletes.append((trio.current_time(), len(call.keys)))
        return Fault(delay=0.2)

    async with world.service(merge="on", merge_io_bytes_per_second=limit) as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        for number in range(161):
            await write(caller, ref, ("k", str(number)), timestamp=world.now_ms)
        # Producers are quiet for long.
        await trio.sleep(3000 if together == 8 else 0)
        world.objects.plan = plan
        world.now_ms += HOUR_MS + 1
        await trio.sleep(GRACE + 6 * CHECK + 200)
        assert len(await segments(world)) == 1
        assert sum(count for _, count in deletes) >= 2 * 160
        # Each one is sent within the validity of its signature.
        assert max(count for _, count in deletes) == together
        assert min(later - earlier for (earlier, _), (later, _) in pairwise(deletes)) == pytest.approx(apart)


async def test_slow_deletes_do_not_delay_compactions(autojump_clock: MockClock) -> None:
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    async with world.service(rewrites_in_flight=1, merge_io_bytes_per_second=1 << 20) as (caller, catalog):
        merged = await world.topic(catalog, "merged", partitions=1, configs={"kafscale.merge.enable": "true"})
        for number in range(161):
            await write(caller, merged, ("k", str(number)), timestamp=world.now_ms)
        # Producers are quiet for long.
        await trio.sleep(3000)
        world.objects.plan = lambda call: (
            Fault(delay=100) if call.kind == "delete_many" and "/merged/" in call.key else None
        )
        world.now_ms += HOUR_MS + 1
        await trio.sleep(GRACE + 6 * CHECK)
        assert [call.kind for call in world.objects.calls].count("delete_many") > 0
        ref = await world.topic(catalog, partitions=1, configs=COMPACTED)
        for number in range(4):
            await write(caller, ref, ("k", str(number)))
        await trio.sleep(6 * CHECK)
        assert (await world.state(ref)).HasField("root")
        left = await world.objects.list_from(paths.partition_prefix(NAMESPACE, "merged", 0))
        assert len(left) > 100


@pytest.mark.parametrize("looked_up", [False, True])
async def test_a_new_owner_reads_pages_instead_of_each_segment(autojump_clock: MockClock, *, looked_up: bool) -> None:
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        for number in range(2 * SEGMENTS_PER_PAGE + 6):
            await write(caller, ref, ("k", str(number)), timestamp=world.now_ms)
    async with world.service(merge="on", cache_size=0, index_cache_size=0) as (caller, _):
        await caller.flush(ref)
        if looked_up:
            # It reads the first page alone.
            await caller.offset_at(ref, 1)
        before = len(world.objects.calls)
        await trio.sleep(3 * CHECK)
        read_keys = [call.key for call in world.objects.calls[before:] if call.kind in ("get", "get_range")]
        assert sum("/orders/" in key and key.endswith(".kfs") for key in read_keys) < 10
        world.now_ms += HOUR_MS + 1
        await trio.sleep(2 * CHECK)
        assert [key.base_offset for key in await rewritten(world, RewrittenKey)] == [0]
