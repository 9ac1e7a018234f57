"""The oldest objects of a log that somebody else removed, and objects that only seem to be missing."""

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.objects.interface import Object
from kafscale.objects.memory import Call
from kafscale.v1.common_pb2 import Status
from tests.support.storage.harness import NAMESPACE, World, batch
from tests.unit.storage.test_retention import CHECK, HOUR, MARK, bases, fill, log_start, truncate


async def test_removing_the_oldest_objects_moves_the_log_start(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(cache_size=0) as (caller, catalog):
        ref = await world.topic(catalog)
        await fill(world, caller, ref, [0] * 5)
        for base in (0, 2):
            await world.objects.delete_many([paths.segment_key(NAMESPACE, "orders", 0, base)])
        assert (await caller.fetch(ref, 0)).status == Status.DAMAGED
        await trio.sleep(1)
        fetched = await caller.fetch(ref, 0)
        assert (fetched.status, fetched.log_start) == (Status.OFFSET_OUT_OF_RANGE, 4)
        assert (await caller.fetch(ref, 4)).status == Status.OK


_EMPTY: dict[str, Object] = {}
_ANOTHER_CLUSTER = {MARK: Object(b"another cluster", "v0")}


async def test_a_removed_segment_that_contains_the_log_start_is_skipped(autojump_clock: MockClock) -> None:
    async with (world := World()).service(retention_check_ms=1000) as (caller, catalog):
        ref = await world.topic(catalog)
        for _ in range(3):
            await caller.append(ref, batch(b"a", b"b", b"c"))
            await caller.flush(ref)
        await truncate(caller, ref, 1)
    await world.objects.delete_many([paths.segment_key(NAMESPACE, ref.topic, 0, 0)])
    async with world.service(retention_check_ms=1000) as (caller, _):
        # A check that fails before a read must not count as a search for missing objects.
        await trio.sleep(2)
        await caller.fetch(ref, 1)
        await trio.sleep(5)
        assert await log_start(caller, ref) == 3


async def test_it_is_skipped_although_an_older_segment_is_left(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        for _ in range(3):
            await caller.append(ref, batch(b"a", b"b", b"c"))
            await caller.flush(ref)
        first, second = (paths.segment_key(NAMESPACE, ref.topic, 0, base) for base in (0, 3))
        oldest = await world.objects.get(first)
        await truncate(caller, ref, 4)
        await trio.sleep(1)
        assert await bases(world) == [3, 6]
    # The owner died before it deleted the first segment, and a lifecycle rule deleted the one with the log start.
    await world.objects.put_if_absent(first, oldest.body)
    await world.objects.delete_many([second])
    async with world.service(cache_size=0) as (caller, _):
        assert (await caller.fetch(ref, 4)).status == Status.DAMAGED
        await trio.sleep(5)
        assert await log_start(caller, ref) == 6
        assert (await caller.fetch(ref, 6)).status == Status.OK
        assert await bases(world) == [6]


@pytest.mark.parametrize("elsewhere", [_EMPTY, _ANOTHER_CLUSTER], ids=["empty", "another cluster"])
@pytest.mark.parametrize("only_the_listing", [False, True], ids=["all", "listing"])
async def test_the_log_start_does_not_move_without_the_cluster_mark(
    autojump_clock: MockClock, elsewhere: dict[str, Object], *, only_the_listing: bool
) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await fill(world, caller, ref, [0] * 3)
    async with world.service() as (caller, _):
        assert (await caller.offset_at(ref, -1)).offset == 6
        kept = world.objects._objects
        world.objects.calls.clear()

        def marks() -> int:
            return sum(call.kind == "get" and call.key == MARK for call in world.objects.calls)

        def plan(call: Call) -> None:
            """Point the endpoint elsewhere; with ``only_the_listing``, not for the first read of the mark."""
            first = call.key == MARK and marks() == 1
            world.objects._objects = kept if first and only_the_listing else elsewhere

        world.objects.plan = plan
        assert (await caller.fetch(ref, 0)).status == Status.DAMAGED
        await trio.sleep(5)
        world.objects.plan, world.objects._objects = None, kept
        await trio.sleep(2 * CHECK)
        assert await log_start(caller, ref) == 0
        assert marks() == 1 + only_the_listing
        assert len(await caller.read_all(ref)) == 6
        assert await bases(world) == [0, 2, 4]


async def test_a_hole_in_the_log_moves_and_deletes_nothing(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(cache_size=0, retention_ms=24 * HOUR) as (caller, catalog):
        ref = await world.topic(catalog)
        await fill(world, caller, ref, [1] * 5)
        await world.objects.delete_many([paths.segment_key(NAMESPACE, "orders", 0, base) for base in (4, 6)])
        for _ in range(3):
            assert (await caller.fetch(ref, 4)).status == Status.DAMAGED
            await trio.sleep(CHECK)
        assert await log_start(caller, ref) == 0
        assert (await caller.fetch(ref, 8)).status == Status.OK
        keys = {info.key for info in await world.objects.list_from(f"{NAMESPACE}/orders/")}
        assert {paths.segment_key(NAMESPACE, "orders", 0, base) for base in (0, 2, 8)} <= keys
