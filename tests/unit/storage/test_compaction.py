"""Compacted topics: an indexer rewrites their logs, the owner commits the result, and readers follow."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import Unavailable
from kafscale.metadata.interface import Put
from kafscale.metadata.memory import no_answer
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.memory import Call, Fault
from kafscale.records.batch import walk
from kafscale.records.record import Record, build_batch, read_records
from kafscale.rewritten.keys import RewrittenKey, RootKey, parse_rewritten_key, rewritten_prefix
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import Bound, ScanRequest
from services.storage.log.sink_progress import SinkEpoch
from services.storage.settings import StorageSettings
from tests.support.storage.cluster import cluster
from tests.support.storage.harness import NAMESPACE, Caller, World, state_key

CHECK, GRACE = 10.0, 100.0
HOUR_MS = 3_600_000
SETTINGS = StorageSettings(
    compression_codec="producer",
    rewrite_check_ms=int(CHECK * 1000),
    rewrite_grace_ms=int(GRACE * 1000),
    retention_check_ms=1_000_000_000,
)
# Everything but the last segment may be compacted.
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}

Log = dict[int, tuple[bytes, bytes | None]]


def keyed(*records: tuple[str, str | None], timestamp: int = 1_000) -> bytes:
    return build_batch(
        [
            Record(i, timestamp, key.encode(), None if value is None else value.encode(), ())
            for i, (key, value) in enumerate(records)
        ],
        base_offset=0,
    )


async def write(caller: Caller, ref: PartitionRef, *records: tuple[str, str | None], timestamp: int = 1_000) -> None:
    """Write the records as a segment of their own."""
    appended = await caller.append(ref, keyed(*records, timestamp=timestamp))
    assert appended.status == Status.OK, appended.detail
    await caller.flush(ref)


async def read(caller: Caller, ref: PartitionRef, offset: int = 0, *, scan: bool = False) -> Log:
    """Return the records from ``offset`` on, by their offset."""
    found: Log = {}
    while True:
        fetched = await caller.fetch(ref, offset, scan=scan)
        assert fetched.status == Status.OK, fetched.detail
        if not fetched.records:
            return found
        found |= records_of(fetched.records)
        offset = [header for _, header in walk(fetched.records)][-1].next_offset


def records_of(batches: bytes) -> Log:
    return {
        record.offset: (record.key or b"", record.value)
        for position, header in walk(batches)
        for record in read_records(batches[position : position + header.size], max_bytes=1 << 24)
    }


async def names(world: World, prefix: str = f"{NAMESPACE}/") -> list[str]:
    return [info.key for info in await world.objects.list_from(prefix)]


async def rewritten(world: World, kind: type[RewrittenKey | RootKey]) -> list[Any]:
    keys = map(parse_rewritten_key, await names(world, rewritten_prefix(NAMESPACE, "orders", 0)))
    return [key for key in keys if isinstance(key, kind) and getattr(key, "kind", "kfs") == "kfs"]


async def segments(world: World) -> list[str]:
    return [key for key in await names(world, f"{NAMESPACE}/orders/0/") if key.endswith(".kfs")]


def a_world() -> World:
    world = World(SETTINGS, indexing=True, rewrites=True)
    world.now_ms = 10 * HOUR_MS
    return world


@asynccontextmanager
async def compacted(
    world: World, configs: Mapping[str, str] | None = None, **changes: Any
) -> AsyncIterator[tuple[Caller, TopicCatalog, PartitionRef]]:
    async with world.service(**changes) as (caller, catalog):
        yield caller, catalog, await world.topic(catalog, configs={**COMPACTED, **(configs or {})}, partitions=1)


async def write_log(caller: Caller, ref: PartitionRef) -> Log:
    """Write three keys in four segments, and return what compaction leaves of them."""
    await write(caller, ref, ("a", "1"), ("b", "1"), ("c", "1"))
    await write(caller, ref, ("a", "2"), ("b", "2"))
    await write(caller, ref, ("a", "3"))
    await write(caller, ref, ("last", "segment"))
    return {2: (b"c", b"1"), 4: (b"b", b"2"), 5: (b"a", b"3"), 6: (b"last", b"segment")}


async def test_the_last_record_of_each_key_stays_at_its_offset(autojump_clock: MockClock) -> None:
    async with compacted(world := a_world()) as (caller, _, ref):
        left = await write_log(caller, ref)
        assert len(await read(caller, ref)) == 7
        await trio.sleep(2 * CHECK)
        assert await read(caller, ref) == left
        assert await read(caller, ref, 3) == {offset: one for offset, one in left.items() if offset >= 3}
        assert await read(caller, ref, scan=True) == left
        state = await world.state(ref)
        assert (state.root.number, state.root.through, state.high_watermark, state.log_start) == (1, 6, 7, 0)


async def test_replaced_objects_are_deleted_after_the_grace_and_once(autojump_clock: MockClock) -> None:
    async with compacted(world := a_world()) as (caller, _, ref):
        left = await write_log(caller, ref)
        await trio.sleep(2 * CHECK)
        assert len(await segments(world)) == 4
        await trio.sleep(GRACE - 2 * CHECK)
        assert len(await segments(world)) == 4
        await trio.sleep(3 * CHECK)
        assert await segments(world) == [f"{NAMESPACE}/orders/0/segment-{6:020d}.kfs"]
        assert (await world.state(ref)).root.number == 2
        before = await names(world)
        # Nothing is left to do, so nothing more is written.
        await trio.sleep(5 * GRACE)
        assert (await world.state(ref)).root.number == 2
        assert await names(world) == before
        assert await read(caller, ref) == left


async def test_a_dead_owners_object_inside_the_log_is_not_compacted(autojump_clock: MockClock) -> None:
    never = 1_000_000_000
    async with compacted(world := a_world(), rewrite_check_ms=never) as (caller, _, ref):
        await write(caller, ref, ("a", "1"))
    async with world.service(graceful=False, segment_bytes=1, rewrite_check_ms=never) as (caller, _):
        await caller.fetch(ref, 0)
        world.metadata.faults.append(no_answer("txn", key=state_key(ref), times=1_000))
        for value in ("2", "3"):
            await caller.append(ref, keyed(("a", value)))
        await trio.sleep(1)
    world.metadata.faults.clear()
    await trio.sleep(60)
    # The next segment spans the offsets of both objects, and replaces only the first one.
    async with world.service(rewrite_check_ms=never) as (caller, _):
        await write(caller, ref, ("a", "4"), ("b", "1"))
        await write(caller, ref, ("last", "segment"))
    assert [int(name[-24:-4]) for name in await segments(world)] == [0, 1, 2, 3]
    world.now_ms += HOUR_MS
    async with world.service() as (caller, _):
        await caller.fetch(ref, 4)
        await trio.sleep(2 * CHECK)
        assert await read(caller, ref) == {1: (b"a", b"4"), 2: (b"b", b"1"), 3: (b"last", b"segment")}
    assert not world.counters.rewrites_failed


async def test_replaced_objects_are_deleted_although_compaction_fails(autojump_clock: MockClock) -> None:
    world = a_world()
    async with compacted(world) as (caller, _, ref):
        await write_log(caller, ref)
        await trio.sleep(2 * CHECK)
    world.now_ms += HOUR_MS
    # There is only room for one key.
    async with world.service(compaction_memory=30) as (caller, _):
        await write(caller, ref, ("x", "1"), ("y", "1"))
        await write(caller, ref, ("last", "segment"))
        await trio.sleep(GRACE + 60 + 3 * CHECK)
        assert [int(key[-24:-4]) for key in await segments(world)] == [7, 9]
        assert world.counters.rewrites_failed


async def test_another_owner_reads_and_continues(autojump_clock: MockClock) -> None:
    world = a_world()
    async with compacted(world) as (caller, _, ref):
        left = await write_log(caller, ref)
        await trio.sleep(2 * CHECK)
    async with world.service() as (caller, _):
        assert await read(caller, ref) == left
        await write(caller, ref, ("b", "4"))
        await write(caller, ref, ("more", "4"))
        await trio.sleep(2 * CHECK)
        del left[4]
        left |= {7: (b"b", b"4"), 8: (b"more", b"4")}
        assert await read(caller, ref) == left
        assert (await world.state(ref)).root.number == 2
        # What the first owner's root listed goes too.
        await trio.sleep(GRACE + 3 * CHECK)
        assert len(await segments(world)) == 1
        assert 1 not in [key.number for key in await rewritten(world, RootKey)]
        assert await read(caller, ref) == left
        assert (await caller.epoch_end(ref, 1)).end_offset == 7


async def test_an_object_of_an_earlier_owner_that_stays_whole_may_have_the_number_of_the_attempt(
    autojump_clock: MockClock,
) -> None:
    world = a_world()
    async with compacted(world) as (caller, _, ref):
        left = await write_log(caller, ref)
        await trio.sleep(2 * CHECK)
        [first] = await rewritten(world, RewrittenKey)
    world.now_ms += HOUR_MS
    # The object is a step of its own, and the attempts of an owner are numbered from 1.
    size = len((await world.objects.get(str(first))).body)
    async with world.service(rewrite_bytes=size) as (caller, _):
        await write(caller, ref, ("d", "4"))
        await write(caller, ref, ("more", "4"))
        await trio.sleep(2 * CHECK)
        kept, *others = await rewritten(world, RewrittenKey)
        assert kept == first
        assert {(key.epoch, key.attempt) for key in others} == {(first.epoch + 1, first.attempt)}
        assert (await world.state(ref)).root.through == 8
        assert await read(caller, ref) == left | {7: (b"d", b"4"), 8: (b"more", b"4")}


@pytest.mark.parametrize("piece_bytes", [0, 64 * 1024])
async def test_scans_and_counts_of_a_compacted_log(piece_bytes: int, autojump_clock: MockClock) -> None:
    async with compacted(a_world()) as (caller, _, ref):
        left = await write_log(caller, ref)
        await trio.sleep(2 * CHECK)
        [plan] = await caller.plan(ref)
        assert (plan.status, plan.start, plan.end) == (Status.OK, 0, 7)
        assert sum(split.end - split.start for split in plan.splits) == 7
        pieces = await caller.scan(ref, 0, 7, piece_bytes=piece_bytes)
        assert all(piece.status == Status.OK for piece in pieces)
        found: Log = {}
        for piece in pieces:
            found |= records_of(piece.records)
        assert found == left
        bounds = [(piece.first_offset, piece.next_offset) for piece in pieces]
        assert bounds[-1][1] == 7
        assert all(before[1] == after[0] for before, after in pairwise(bounds))
        counts = await caller.scan(ref, 0, 7, mode=ScanRequest.COUNT)
        assert sum(piece.count for piece in counts) == 4
        assert sum(piece.count for piece in await caller.scan(ref, 3, 6, mode=ScanRequest.COUNT)) == 2


async def test_lookups_by_time_find_what_is_left(autojump_clock: MockClock) -> None:
    async with compacted(a_world()) as (caller, _, ref):
        for number in range(3):
            await write(caller, ref, ("a", "x"), (f"k{number}", "x"), timestamp=1_000 * (1 + number))
        await write(caller, ref, ("last", "segment"), timestamp=9_000)
        await trio.sleep(2 * CHECK)
        assert sorted(await read(caller, ref)) == [1, 3, 4, 5, 6]
        assert (await caller.offset_at(ref, 1_000)).offset == 1
        assert (await caller.offset_at(ref, 2_000)).offset == 3
        assert (await caller.offset_at(ref, 2_001)).offset == 4
        [plan] = await caller.plan(ref, start=Bound(timestamp=2_000))
        assert plan.start == 3


async def test_a_tombstone_stays_for_its_time(autojump_clock: MockClock) -> None:
    async with compacted(world := a_world(), {"delete.retention.ms": "1000"}) as (caller, _, ref):
        await write(caller, ref, ("a", "1"), ("b", "1"))
        await write(caller, ref, ("a", None))
        await write(caller, ref, ("last", "segment"))
        await trio.sleep(2 * CHECK)
        assert await read(caller, ref) == {1: (b"b", b"1"), 2: (b"a", None), 3: (b"last", b"segment")}
        # Its horizon includes the grace, and an hour in which the rewrite could have been committed.
        for later_ms, stays in ((HOUR_MS, True), (int(GRACE * 1000) + 2000, False)):
            world.now_ms += later_ms
            await write(caller, ref, ("last", "segment"))
            await write(caller, ref, ("last", "segment"))
            await trio.sleep(2 * CHECK)
            assert (2 in await read(caller, ref)) == stays


async def test_nothing_is_compacted_while_the_clock_is_wrong(autojump_clock: MockClock) -> None:
    async with compacted(world := a_world(), {"delete.retention.ms": "1000"}) as (caller, _, ref):
        await write(caller, ref, ("a", "1"), ("b", "1"))
        await write(caller, ref, ("a", None))
        await write(caller, ref, ("last", "segment"))
        right_ms = world.now_ms
        # The tombstone would get a horizon that is past when the clock is right again.
        world.now_ms, world.objects.clock_skew_seconds = right_ms - 5 * HOUR_MS, 5 * 3600.0
        await trio.sleep(2 * CHECK)
        assert sorted(await read(caller, ref)) == [0, 1, 2, 3]
        world.now_ms, world.objects.clock_skew_seconds = right_ms, 0.0
        for _ in range(2):
            await write(caller, ref, ("last", "segment"))
            await trio.sleep(2 * CHECK)
            assert 2 in await read(caller, ref)


async def test_records_of_the_active_segment_and_younger_ones_stay(autojump_clock: MockClock) -> None:
    async with compacted(world := a_world(), {"segment.ms": str(HOUR_MS)}) as (caller, _, ref):
        for _ in range(3):
            await write(caller, ref, ("a", "1"), timestamp=world.now_ms)
        await trio.sleep(2 * CHECK)
        assert len(await read(caller, ref)) == 3
        world.now_ms += HOUR_MS + 1
        await trio.sleep(2 * CHECK)
        assert sorted(await read(caller, ref)) == [1, 2]


async def test_a_log_start_within_a_rewritten_log(autojump_clock: MockClock) -> None:
    async with compacted(world := a_world()) as (caller, _, ref):
        left = await write_log(caller, ref)
        await trio.sleep(2 * CHECK)
        await caller.delete_records(ref, 5)
        assert (await caller.fetch(ref, 4)).status == Status.OFFSET_OUT_OF_RANGE
        assert await read(caller, ref, 5) == {5: left[5], 6: left[6]}
        await caller.delete_records(ref, 6)
        await trio.sleep(GRACE + 4 * CHECK)
        # Its only object is below the log start.
        assert await rewritten(world, RewrittenKey) == []
        assert await read(caller, ref, 6) == {6: left[6]}
        await write(caller, ref, ("a", "9"))
        await write(caller, ref, ("a", "10"))
        await trio.sleep(2 * CHECK)
        assert sorted(await read(caller, ref, 6)) == [6, 7, 8]


async def test_a_missing_root_makes_only_the_rewritten_log_unreadable(autojump_clock: MockClock) -> None:
    world = a_world()
    async with compacted(world) as (caller, _, ref):
        left = await write_log(caller, ref)
        await trio.sleep(2 * CHECK)
    [root] = await rewritten(world, RootKey)
    saved = (await world.objects.get(str(root))).body
    await world.objects.delete_many([str(root)])
    async with world.service() as (caller, _):
        fetched = await caller.fetch(ref, 0)
        assert (fetched.status, str(root) in fetched.detail) == (Status.DAMAGED, True)
        assert await read(caller, ref, 6) == {6: left[6]}
        assert (await caller.offset_at(ref, -2)).offset == 0
        assert (await caller.append(ref, keyed(("new", "1")))).status == Status.OK
        await world.objects.put_if_absent(str(root), saved)
        await trio.sleep(2 * CHECK)
        assert await read(caller, ref) == left | {7: (b"new", b"1")}


async def test_metadata_older_than_the_roots_takes_the_partition_offline(autojump_clock: MockClock) -> None:
    world = a_world()
    async with compacted(world) as (caller, _, ref):
        await write_log(caller, ref)
        old = await world.state(ref)
        await trio.sleep(2 * CHECK)
        await trio.sleep(GRACE + 4 * CHECK)
        assert (await world.state(ref)).root.number == 2
    item = await world.metadata.get(state_key(ref))
    assert item is not None
    old.owner = ""
    await world.metadata.txn([], [Put(state_key(ref), old.SerializeToString())])
    async with world.service() as (caller, _):
        appended = await caller.append(ref, keyed(("new", "1")))
        assert (appended.status, "root" in appended.detail) == (Status.DAMAGED, True)
        assert (await caller.offset_at(ref, -2)).status == Status.DAMAGED


async def test_a_deleted_topic_leaves_no_rewritten_objects(autojump_clock: MockClock) -> None:
    async with compacted(world := a_world()) as (caller, catalog, ref):
        await write_log(caller, ref)
        await trio.sleep(2 * CHECK)
        assert await rewritten(world, RewrittenKey)
        await catalog.mark_deleting("orders")
        await trio.sleep(60)
        assert [key for key in await names(world) if "/orders/" in key] == []


async def test_objects_of_an_attempt_that_came_to_nothing_are_deleted(autojump_clock: MockClock) -> None:
    world = a_world()

    def no_roots(call: Call) -> Fault | None:
        return Fault(error=Unavailable("no answer")) if "/roots/" in call.key and "put" in call.kind else None

    async with compacted(world) as (caller, _, ref):
        world.objects.plan = no_roots
        left = await write_log(caller, ref)
        await trio.sleep(2 * CHECK)
        assert len(await rewritten(world, RewrittenKey)) == 1
        assert await rewritten(world, RootKey) == []
        world.objects.plan = None
        await trio.sleep(60 + 3 * CHECK)
        [named] = await rewritten(world, RewrittenKey)
        assert (await world.state(ref)).root.attempt == named.attempt + 1
        assert await read(caller, ref) == left


async def test_a_hand_over_does_not_wait_for_a_rewrite(autojump_clock: MockClock) -> None:
    world = a_world()
    release = trio.Event()

    def hold(call: Call) -> Fault | None:
        return Fault(hold=release) if "~rewritten" in call.key and "put" in call.kind else None

    async with cluster(world, "a:1") as there:
        first = there.instances[0]
        ref = await world.topic(first.catalog, configs=COMPACTED, partitions=1)
        left = await write_log(first.caller, ref)
        world.objects.plan = hold
        await trio.sleep(2 * CHECK)
        await there.start("b:1")
        began = trio.current_time()
        await first.stop()
        assert trio.current_time() - began < 5
        world.objects.plan = None
        release.set()
        world.now_ms += HOUR_MS
        assert await there.read_all(ref)
        await trio.sleep(3 * CHECK)
        assert await read(there.instances[0].caller, ref) == left


async def test_records_younger_than_the_lag_stay(autojump_clock: MockClock) -> None:
    async with compacted(world := a_world(), {"min.compaction.lag.ms": str(HOUR_MS)}) as (caller, _, ref):
        for _ in range(2):
            await write(caller, ref, ("a", "old"), timestamp=world.now_ms - HOUR_MS)
        for _ in range(3):
            await write(caller, ref, ("a", "young"), timestamp=world.now_ms - 1_000)
        await trio.sleep(2 * CHECK)
        assert sorted(await read(caller, ref)) == [1, 2, 3, 4]


async def test_old_records_are_compacted_however_few_they_are(autojump_clock: MockClock) -> None:
    configs = {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": str(HOUR_MS)}
    async with compacted(world := a_world(), configs) as (caller, _, ref):
        left = await write_log(caller, ref)
        world.now_ms -= 10 * HOUR_MS - 2_000
        await trio.sleep(2 * CHECK)
        assert len(await read(caller, ref)) == 7
        world.now_ms += HOUR_MS
        await trio.sleep(2 * CHECK)
        assert await read(caller, ref) == left


def sent_by(producer_id: int, sequence: int, key: str) -> bytes:
    records = [Record(0, 1_000, key.encode(), b"value", ())]
    return build_batch(records, base_offset=0, producer_id=producer_id, base_sequence=sequence)


async def test_a_producer_is_known_although_its_records_are_gone(autojump_clock: MockClock) -> None:
    world = a_world()
    async with compacted(world) as (caller, _, ref):
        for producer_id in (1, 2, 3):
            await caller.append(ref, sent_by(producer_id, 0, "a"))
            await caller.flush(ref)
        await trio.sleep(2 * CHECK)
        state = await world.state(ref)
        assert sorted(await read(caller, ref)) == [1, 2]
        assert state.producers_from >= state.root.through == 2
    snapshot = (await world.state(ref)).producer_snapshot
    await world.objects.delete_many([snapshot])
    async with world.service() as (caller, _):
        # Without a snapshot, a new owner learns the sequences from the log.
        again = await caller.append(ref, sent_by(1, 0, "a"))
        assert (again.status, again.base_offset) == (Status.OK, 0)
        assert (await caller.append(ref, sent_by(1, 1, "a"))).base_offset == 3


async def test_a_log_that_waits_for_a_sink_is_not_compacted(autojump_clock: MockClock) -> None:
    async with compacted(a_world()) as (caller, _, ref):
        left = await write_log(caller, ref)
        run = caller.service.current
        assert run is not None
        owned = run.owned.get((ref.topic_id, ref.partition))
        assert owned is not None
        epoch = SinkEpoch("sink", 1, 1_000)
        owned.sinks.appended(epoch, 1)
        await trio.sleep(2 * CHECK)
        assert len(await read(caller, ref)) == 7
        owned.sinks.finish(epoch)
        await trio.sleep(2 * CHECK)
        assert await read(caller, ref) == left


async def test_a_log_start_above_an_interrupted_pass_ends_it(autojump_clock: MockClock) -> None:
    world = a_world()

    def second_fails(call: Call) -> Fault | None:
        second = "~rewritten" in call.key and "put" in call.kind and f"/{3:020d}-" in call.key
        return Fault(error=Unavailable("no answer")) if second else None

    async with compacted(world, {"cleanup.policy": "compact,delete"}, rewrite_bytes=150) as (caller, _, ref):
        left = await write_log(caller, ref)
        world.objects.plan = second_fails
        await trio.sleep(2 * CHECK)
        state = await world.state(ref)
        assert (state.root.number, state.root.through) == (1, 3)
        world.objects.plan = None
        await caller.delete_records(ref, 6)
        await trio.sleep(60 + 3 * CHECK)
        assert await read(caller, ref, 6) == {6: left[6]}
        for _ in range(3):
            await write(caller, ref, ("a", "new"))
        await trio.sleep(3 * CHECK)
        assert sorted(await read(caller, ref, 6)) == [6, 8, 9]


async def test_retention_removes_what_is_old_of_a_compacted_log(autojump_clock: MockClock) -> None:
    world = a_world()
    configs = {"cleanup.policy": "compact,delete", "retention.ms": str(HOUR_MS)}
    async with compacted(world, configs, retention_check_ms=10_000) as (caller, _, ref):
        for number in range(24):
            await write(caller, ref, (f"key {number}", "value"), timestamp=world.now_ms)
            world.now_ms += HOUR_MS // 4
            await trio.sleep(2 * CHECK)
        assert (await world.state(ref)).root.number > 1
        assert 3 <= len(await read(caller, ref, (await caller.offset_at(ref, -2)).offset)) <= 5


@pytest.mark.parametrize("name", ["orders", "roots"])
async def test_replaced_objects_whose_delete_failed_are_deleted_later(name: str, autojump_clock: MockClock) -> None:
    world = a_world()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, name, configs=COMPACTED, partitions=1)
        await write_log(caller, ref)
        await trio.sleep(2 * CHECK)
        world.objects.plan = lambda call: Fault(error=Unavailable("busy")) if call.kind == "delete_many" else None
        await trio.sleep(GRACE + 2 * CHECK)
        world.objects.plan = None
        await trio.sleep(60 + 3 * CHECK)
        left = [key for key in await names(world, f"{NAMESPACE}/{name}/0/") if key.endswith(".kfs")]
        assert left == [f"{NAMESPACE}/{name}/0/segment-{6:020d}.kfs"]
