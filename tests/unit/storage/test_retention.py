"""Retention and DeleteRecords: what they delete, in which order, and what they keep."""

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.memory import no_answer
from kafscale.objects.memory import Call, Fault
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from kafscale.v1.storage_pb2 import DeleteRecordsRequest, PartitionFetched, PartitionOffset, PartitionTruncation
from services.storage.log.segments import SegmentMap
from services.storage.owning import owned
from services.storage.reading import finder
from tests.support.storage.harness import NAMESPACE, Caller, World, batch, siblings, state_key

HOUR = 3_600_000
CHECK = 300
"""Seconds between two checks, the default."""
MARK = paths.cluster_mark_key(NAMESPACE)


async def bases(world: World) -> list[int]:
    """Return the base offsets of the topic's stored segments. No index is left without its segment."""
    keys = [paths.parse_segment_key(info.key) for info in await world.objects.list_from(f"{NAMESPACE}/orders/")]
    assert {key.base_offset for key in keys if key and key.kind == "index"} <= {
        key.base_offset for key in keys if key and key.kind == "kfs"
    }
    return [key.base_offset for key in keys if key and key.kind == "kfs"]


async def fill(world: World, caller: Caller, ref: PartitionRef, ages_hours: list[float], size: int = 10) -> None:
    """Write a segment of two records for each age."""
    for hours in ages_hours:
        timestamp = world.now_ms - int(hours * HOUR)
        await caller.append(ref, batch(b"x" * size, b"x" * size, timestamp=timestamp))
        await caller.flush(ref)


async def log_start(caller: Caller, ref: PartitionRef) -> int:
    return (await caller.fetch(ref, 0)).log_start


async def test_old_segments_are_deleted_and_the_log_start_moves(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog, configs={"retention.ms": str(24 * HOUR)})
        await fill(world, caller, ref, [72, 48, 25, 23, 48, 1])
        await trio.sleep(CHECK + 10)
        # In the order of the log: segments after a newer one are kept, however old they are.
        assert await bases(world) == [6, 8, 10]
        below, at_start = await caller.fetch(ref, 5), await caller.fetch(ref, 6)
        assert (below.status, below.log_start) == (Status.OFFSET_OUT_OF_RANGE, 6)
        assert (at_start.status, at_start.log_start) == (Status.OK, 6)


async def test_a_clock_that_jumps_ahead_deletes_nothing_by_age(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog, configs={"retention.ms": str(24 * HOUR), "retention.bytes": "2000"})
        await fill(world, caller, ref, [0] * 6, size=600)
        world.now_ms += 30 * 24 * HOUR
        world.objects.clock_skew_seconds = -30 * 24 * 3600.0
        world.objects.plan = lambda call: Fault(error=Unavailable("skew")) if call.kind == "delete_many" else None
        await trio.sleep(CHECK + 10)
        # Retention by size still works.
        assert await log_start(caller, ref) == 8
        world.objects.plan, world.objects.clock_skew_seconds = None, 0.0
        await trio.sleep(CHECK)
        assert await log_start(caller, ref) == 12


async def test_the_stores_clock_is_checked_before_deleting_by_age(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog, configs={"retention.ms": str(24 * HOUR)})
        await fill(world, caller, ref, [0] * 3)
        world.now_ms += 30 * 24 * HOUR

        # The store has received no request since the jump.
        def plan(call: Call) -> None:
            if (call.kind, call.key) == ("head", MARK):
                world.objects.clock_skew_seconds = -30 * 24 * 3600.0

        world.objects.plan = plan
        await trio.sleep(CHECK + 10)
        assert await log_start(caller, ref) == 0


async def test_a_clock_corrected_during_a_check_deletes_nothing_by_age(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog, configs={"retention.ms": str(24 * HOUR)})
        await fill(world, caller, ref, [0] * 3)
        right = world.now_ms
        world.now_ms += 30 * 24 * HOUR

        def plan(call: Call) -> None:
            if (call.kind, call.key) == ("head", MARK):
                world.now_ms = right

        world.objects.plan = plan
        await trio.sleep(CHECK + 10)
        assert await log_start(caller, ref) == 0


async def test_retention_by_size_keeps_at_least_the_limit(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog, configs={"retention.bytes": "3000"})
        await fill(world, caller, ref, [0] * 6, size=600)
        sizes = [
            len((await world.objects.get(paths.segment_key(NAMESPACE, "orders", 0, base))).body) for base in (0, 2)
        ]
        assert sizes[0] == sizes[1]
        assert 2 * sizes[0] < 3000 < 3 * sizes[0]
        await trio.sleep(CHECK + 10)
        assert await bases(world) == [6, 8, 10]


async def test_nothing_is_deleted_without_limits(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await fill(world, caller, ref, [10_000] * 3)
        await trio.sleep(3 * CHECK)
        assert await bases(world) == [0, 2, 4]


async def test_a_log_continues_after_losing_all_its_records(autojump_clock: MockClock) -> None:
    async with (world := World()).service(retention_ms=HOUR) as (caller, catalog):
        ref = await world.topic(catalog)
        await fill(world, caller, ref, [3, 2])
        await trio.sleep(CHECK + 10)
        assert await bases(world) == []
        fetched = await caller.fetch(ref, 4)
        assert (fetched.status, fetched.log_start, fetched.high_watermark) == (Status.OK, 4, 4)
    async with world.service(retention_ms=HOUR) as (caller, _):
        await fill(world, caller, ref, [0])
        assert (await caller.fetch(ref, 4)).records
        assert await log_start(caller, ref) == 4


async def test_segments_without_timestamps_age_by_their_creation_time(autojump_clock: MockClock) -> None:
    async with (world := World()).service(retention_ms=HOUR) as (caller, catalog):
        ref = await world.topic(catalog)
        for _ in range(2):
            await caller.append(ref, batch(b"x", timestamp=-1))
            await caller.flush(ref)
            world.now_ms += HOUR
        await trio.sleep(CHECK + 10)
        assert await bases(world) == [1]


async def test_retention_works_after_a_restart_without_requests(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        by_age = await world.topic(catalog, configs={"retention.ms": str(24 * HOUR)})
        await fill(world, caller, by_age, [72, 48, 1])
    async with world.service():
        await trio.sleep(CHECK + 10)
        assert await bases(world) == [4]


async def test_the_log_start_moves_before_anything_is_deleted(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog, configs={"retention.ms": str(24 * HOUR)})
        await fill(world, caller, ref, [72, 48, 1])
        world.metadata.faults.append(no_answer("txn", key=state_key(ref), times=1_000))
        await trio.sleep(CHECK + 60)
        assert await bases(world) == [0, 2, 4]
        assert await log_start(caller, ref) == 0
        world.metadata.faults.clear()
        world.objects.plan = lambda call: Fault(error=Unavailable("down")) if call.kind == "delete_many" else None
        await trio.sleep(60)
        assert await log_start(caller, ref) == 4
        assert await bases(world) == [0, 2, 4]
    world.objects.plan = None
    await trio.sleep(60)
    async with world.service() as (caller, _):
        assert await log_start(caller, ref) == 4
        await trio.sleep(CHECK + 10)
        assert await bases(world) == [4]


async def test_an_owner_without_a_proven_lease_deletes_nothing(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog, configs={"retention.ms": str(24 * HOUR)})
        await fill(world, caller, ref, [72, 1])
        await trio.sleep(CHECK - 30)
        world.metadata.faults.append(no_answer("keep_alive", times=1_000))
        await trio.sleep(60)
        deleted = [key for call in world.objects.calls if call.kind == "delete_many" for key in call.keys]
        assert not [key for key in deleted if not key.startswith(paths.intakes_prefix(NAMESPACE))]


async def test_a_dead_owners_objects_are_deleted_when_the_log_has_passed_them(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await fill(world, caller, ref, [0])
    async with world.service(graceful=False, segment_bytes=1) as (caller, _):
        await caller.fetch(ref, 0)
        world.metadata.faults.append(no_answer("txn", key=state_key(ref), times=1_000))
        for _ in range(4):
            await caller.append(ref, batch(b"lost"))
        await trio.sleep(1)
    world.metadata.faults.clear()
    assert await bases(world) == [0, 2, 3, 4, 5]
    await trio.sleep(60)
    async with world.service(retention_ms=24 * HOUR) as (caller, _):
        await fill(world, caller, ref, [0])
        await trio.sleep(CHECK + 10)
        # Offsets 4 and 5 are not in the log yet.
        assert await bases(world) == [0, 2, 4, 5]
        await fill(world, caller, ref, [0])
        await trio.sleep(CHECK)
        assert await bases(world) == [0, 2, 4]
        assert len(await caller.read_all(ref)) == 6


async def test_the_log_start_survives_commits_and_restarts(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(retention_ms=HOUR) as (caller, catalog):
        ref = await world.topic(catalog)
        await fill(world, caller, ref, [3, 2, 0])
        await trio.sleep(CHECK + 10)
        await fill(world, caller, ref, [0])
        item = await world.metadata.get(state_key(ref))
        assert item is not None
        state = PartitionState.FromString(item.value)
        assert (state.log_start, state.high_watermark) == (4, 8)
    async with world.service(retention_ms=HOUR) as (caller, _):
        assert (await caller.fetch(ref, 3)).status == Status.OFFSET_OUT_OF_RANGE
        assert len(await caller.read_all(ref, 4)) == 4


async def test_a_check_without_work_sends_no_request_to_the_object_store(autojump_clock: MockClock) -> None:
    async with (world := World()).service(retention_ms=24 * HOUR) as (caller, catalog):
        ref = await world.topic(catalog)
        await fill(world, caller, ref, [48, 1, 0])
        await trio.sleep(CHECK + 10)
        world.objects.calls.clear()
        await trio.sleep(10 * CHECK)
        assert world.objects.calls == list[Call]()


async def truncate(caller: Caller, ref: PartitionRef, offset: int) -> tuple[Status, int]:
    request = DeleteRecordsRequest(partitions=[PartitionTruncation(partition=ref, offset=offset)])
    (result,) = (await caller.storage.delete_records(request, timeout=1000)).results
    return result.status, result.log_start


async def test_delete_records_moves_the_log_start_durably_and_deletes_whole_segments(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        await fill(world, caller, ref, [0] * 5)
        assert await truncate(caller, ref, 5) == (Status.OK, 5)
        assert await truncate(caller, ref, 3) == (Status.OK, 5)
        assert await truncate(caller, ref, 11) == (Status.OFFSET_OUT_OF_RANGE, 0)
        assert await truncate(caller, ref, -2) == (Status.OFFSET_OUT_OF_RANGE, 0)
        await trio.sleep(1)
        # The segment that contains the log start is kept whole. Its records below the log start are not served.
        assert await bases(world) == [4, 6, 8]
        assert (await caller.fetch(ref, 4)).status == Status.OFFSET_OUT_OF_RANGE
    await trio.sleep(60)
    async with world.service() as (caller, _):
        assert (await caller.fetch(ref, 5)).log_start == 5
        assert await truncate(caller, ref, -1) == (Status.OK, 10)
        await trio.sleep(1)
        assert await bases(world) == []
        appended = await caller.append(ref, batch(b"next"))
        assert (appended.base_offset, appended.log_start) == (10, 10)
        assert await caller.durable(appended)


async def test_delete_records_does_not_trigger_retention_by_time(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog, configs={"retention.ms": str(24 * HOUR)})
        await fill(world, caller, ref, [72, 48, 25, 1])
        assert await truncate(caller, ref, 2) == (Status.OK, 2)
        await trio.sleep(CHECK / 10)
        assert await bases(world) == [2, 4, 6]
        assert await log_start(caller, ref) == 2


async def test_delete_records_deletes_objects_later_if_the_store_is_down(autojump_clock: MockClock) -> None:
    async with (world := World()).service(retention_ms=24 * HOUR) as (caller, catalog):
        ref = await world.topic(catalog)
        await fill(world, caller, ref, [0] * 3)
        world.objects.plan = lambda call: Fault(error=Unavailable("down")) if call.kind == "delete_many" else None
        assert await truncate(caller, ref, 4) == (Status.OK, 4)
        await trio.sleep(60)
        assert await bases(world) == [0, 2, 4]
        world.objects.plan = None
        await trio.sleep(CHECK + 10)
        assert await bases(world) == [4]


async def test_a_segment_deleted_during_a_read_is_not_reported_as_damage(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(cache_size=0, index_cache_size=0) as (caller, catalog):
        ref = await world.topic(catalog)
        await fill(world, caller, ref, [3, 2, 1])
        held = trio.Event()
        first = f"{NAMESPACE}/orders/0/segment-{0:020}"

        def plan(call: Call) -> Fault | None:
            return Fault(hold=held) if call.key.startswith(first) and call.kind[:3] == "get" else None

        world.objects.plan = plan
        fetched: list[PartitionFetched] = []
        found: list[PartitionOffset] = []

        async def fetch() -> None:
            fetched.append(await caller.fetch(ref, 0))

        async def look_up() -> None:
            found.append(await caller.offset_at(ref, world.now_ms - 3 * HOUR))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            nursery.start_soon(look_up)
            await trio.sleep(0.5)
            assert not fetched
            assert await truncate(caller, ref, 4) == (Status.OK, 4)
            await trio.sleep(0.5)
            assert await bases(world) == [4]
            held.set()
        assert (fetched[0].status, fetched[0].log_start) == (Status.OFFSET_OUT_OF_RANGE, 4)
        assert (found[0].status, found[0].offset) == (Status.OK, 4)


async def test_frequent_requests_do_not_delay_the_check(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog, configs={"retention.ms": str(24 * HOUR)})
        await fill(world, caller, ref, [72, 48, 1])
        for _ in range(6):
            assert await truncate(caller, siblings(ref, 2)[1], 0) == (Status.OK, 0)
            await trio.sleep(CHECK / 5)
        assert await bases(world) == [4]


async def test_retention_keeps_young_segments_in_a_log_larger_than_the_segment_map(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned, "SegmentMap", partial(SegmentMap, limit=20))
    monkeypatch.setattr(finder, "_PAGE", 20)
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, configs={"retention.ms": str(24 * HOUR)})
        await fill(world, caller, ref, [48.0] * 3 + [1.0] * 57)
        await trio.sleep(CHECK + 10)
        assert await log_start(caller, ref) == 6
    async with world.service() as (caller, _):
        world.now_ms += 22 * HOUR
        await fill(world, caller, ref, [0.0] * 30)
        await trio.sleep(CHECK + 10)
        assert await log_start(caller, ref) == 6
        world.now_ms += 2 * HOUR
        await trio.sleep(CHECK + 10)
        assert await log_start(caller, ref) == 120
        assert len(await caller.read_all(ref, 120)) == 60


async def test_a_new_owner_finishes_a_deletion_without_limits(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        await fill(world, caller, ref, [0] * 3)
        world.objects.plan = lambda call: Fault(error=Unavailable("down")) if call.kind == "delete_many" else None
        assert await truncate(caller, ref, -1) == (Status.OK, 6)
        await trio.sleep(10)
    world.objects.plan = None
    async with world.service():
        await trio.sleep(2 * CHECK)
        assert await bases(world) == []
