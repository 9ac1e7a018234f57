"""Reads from the object store: bounded, shared, and ahead of sequential readers."""

import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.objects.memory import Fault
from kafscale.v1.common_pb2 import PartitionRef, Status
from tests.support.storage.harness import Caller, World


async def _together(caller: Caller, ref: PartitionRef, *offsets: int) -> None:
    """Fetch at all offsets concurrently."""

    async def fetch(offset: int) -> None:
        fetched = await caller.fetch(ref, offset)
        assert (fetched.status, bool(fetched.records)) == (Status.OK, True)

    async with trio.open_nursery() as nursery:
        for offset in offsets:
            nursery.start_soon(fetch, offset)


def _read_whole(world: World, kind: str) -> list[int]:
    """Return the base offsets of the segments or indexes that were read whole since the calls were cleared."""
    keys = [paths.parse_segment_key(call.key) for call in world.objects.calls if call.kind == "get"]
    return sorted(key.base_offset for key in keys if key is not None and key.kind == kind)


async def _create_log(world: World, segments: int) -> PartitionRef:
    """Create a topic whose first partition has segments of 50 records."""
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.fill(ref, segments, batches=1)
    return ref


async def test_concurrent_reads_are_bounded(autojump_clock: MockClock) -> None:
    ref = await _create_log(world := World(), 6)
    async with world.service(reads_in_flight=2) as (caller, _):
        await caller.fetch(ref, 300)
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if call.kind in ("get", "get_range") else None
        world.objects.calls.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_together, caller, ref, *range(0, 300, 50))
            await trio.sleep(1)
            assert world.objects.count("get", "get_range") == 2
            held.set()


async def test_readers_of_one_cold_segment_share_its_reads(autojump_clock: MockClock) -> None:
    ref = await _create_log(world := World(), 2)
    async with world.service(readahead_segments=0) as (caller, _):
        await _together(caller, ref, 0, 0, 10)
        assert (_read_whole(world, "index"), _read_whole(world, "kfs")) == ([0], [])
        # They read on sequentially, for which the whole segment is read.
        await _together(caller, ref, 50, 50, 50)
        assert (_read_whole(world, "index"), _read_whole(world, "kfs")) == ([0], [50])


async def test_segments_ahead_of_a_reader_are_prefetched(autojump_clock: MockClock) -> None:
    ref = await _create_log(world := World(), 6)
    async with world.service(readahead_segments=2) as (caller, _):
        await caller.fetch(ref, 0)
        await trio.sleep(1)
        assert _read_whole(world, "kfs") == [50, 100]
        world.objects.calls.clear()
        await caller.fetch(ref, 50, max_bytes=1)
        assert world.objects.calls == []
        await trio.sleep(1)
        assert _read_whole(world, "kfs") == [150]
