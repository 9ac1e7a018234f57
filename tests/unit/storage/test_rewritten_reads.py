"""Reads that go on while the log is rewritten, and until after the objects that they began with are deleted."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.objects.memory import Call, Fault
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import ScanRequest
from services.storage.methods.known_counts import counted_segments
from services.storage.reading.finder import Damaged
from tests.support.storage.harness import NAMESPACE, World
from tests.unit.storage.test_compaction import (
    HOUR_MS,
    SETTINGS,
    a_world,
    compacted,
    records_of,
    segments,
    write,
    write_log,
)

CHECK_MS, GRACE_MS = 100, 1000


def first_held(kind: str, base: int, release: trio.Event) -> tuple[trio.Event, Callable[[Call], Fault | None]]:
    """Return a plan for a store that holds the first read of a segment, and an event that tells of it."""
    begun = trio.Event()

    def plan(call: Call) -> Fault | None:
        if begun.is_set() or (call.kind, call.key) != (kind, paths.segment_key(NAMESPACE, "orders", 0, base)):
            return None
        begun.set()
        return Fault(hold=release)

    return begun, plan


@pytest.mark.parametrize("what", ["fetch", "lookup"])
async def test_a_read_whose_segment_is_replaced_and_deleted_is_repeated(what: str, autojump_clock: MockClock) -> None:
    world = a_world()
    release = trio.Event()
    # A lookup reads the whole segment.
    begun, plan = first_held("get_range" if what == "fetch" else "get", 0, release)
    async with (
        compacted(world, cache_size=0, index_cache_size=0, rewrite_check_ms=CHECK_MS, rewrite_grace_ms=GRACE_MS) as (
            caller,
            _,
            ref,
        ),
        trio.open_nursery() as nursery,
    ):

        async def read() -> None:
            if what == "fetch":
                fetched = await caller.fetch(ref, 0)
                assert fetched.status == Status.OK, fetched.detail
                assert min(records_of(fetched.records)) == 2
            else:
                found = await caller.offset_at(ref, 1)
                assert (found.status, found.offset) == (Status.OK, 2), found.detail

        await write_log(caller, ref)
        world.objects.plan = plan
        nursery.start_soon(read)
        await begun.wait()
        await trio.sleep((GRACE_MS + 4 * CHECK_MS) / 1000)
        assert len(await segments(world)) == 1
        release.set()


async def test_a_read_goes_on_where_the_log_was_rewritten_meanwhile(autojump_clock: MockClock) -> None:
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    release = trio.Event()
    begun, plan = first_held("get", 17, release)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        for number in range(18):
            await write(caller, ref, ("k", str(number)), timestamp=world.now_ms)
    async with world.service(merge="on", rewrite_check_ms=CHECK_MS, readahead_segments=0) as (caller, _):
        # Only these are in the cache.
        for number in range(18, 21):
            await write(caller, ref, ("k", str(number)), timestamp=world.now_ms)
        assert sorted(records_of((await caller.fetch(ref, 16, max_bytes=1)).records)) == [16]
        world.objects.plan = plan
        found: list[int] = []

        async def read() -> None:
            found.extend(records_of((await caller.fetch(ref, 17)).records))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await begun.wait()
            world.now_ms += HOUR_MS + 1
            await trio.sleep(4 * CHECK_MS / 1000)
            assert (await world.state(ref)).root.through == 20
            release.set()
        assert found == list(range(17, 17 + len(found)))


async def test_offsets_below_the_root_are_no_hole(autojump_clock: MockClock) -> None:
    async with compacted(a_world(), rewrite_bytes=150, rewrite_check_ms=CHECK_MS) as (caller, _, ref):
        await write_log(caller, ref)
        await trio.sleep(1)
        run = caller.service.current
        assert run is not None
        owned = run.owned.get((ref.topic_id, ref.partition))
        assert owned is not None
        # A scan that began at offset 1 would take what was deleted since for removed records.
        await caller.delete_records(ref, 4)
        await trio.sleep(1)
        assert owned.log.segments.rewritten is not None
        assert owned.log.segments.rewritten.start == 3
        with pytest.raises(Damaged, match="begins at 3"):
            await run.reader.finder.holding(owned.log, 1)
        assert owned.log.segments.stretch(1, 7) == ([], 1)
        assert await counted_segments(run, owned.log, 1, 7) == []


async def test_a_count_goes_on_where_the_log_was_compacted_meanwhile(autojump_clock: MockClock) -> None:
    world = a_world()
    async with compacted(world) as (caller, _, ref):
        await write_log(caller, ref)
    begun, release = trio.Event(), trio.Event()

    def hold(call: Call) -> Fault | None:
        if begun.is_set() or (call.kind, call.key) != ("list_from", paths.catalog_prefix(NAMESPACE, "orders", 0)):
            return None
        begun.set()
        return Fault(hold=release)

    world.now_ms += HOUR_MS
    # Each segment becomes an object of its own, and of the first two nothing is left.
    async with world.service(rewrite_bytes=1, rewrite_check_ms=CHECK_MS) as (caller, _):
        await write(caller, ref, ("c", "4"))
        await write(caller, ref, ("last", "segment"))
        world.objects.plan = hold
        counts: list[int] = []

        async def count() -> None:
            counts.extend(piece.count for piece in await caller.scan(ref, 0, 3, mode=ScanRequest.COUNT))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            await begun.wait()
            await trio.sleep(20 * CHECK_MS / 1000)
            assert (await world.state(ref)).root.through == 8
            release.set()
        assert sum(counts) == 0
