"""Owners that are paused, partitioned or late while another one continues: their objects and requests do no harm."""

from collections.abc import Iterable
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.metadata.memory import Fault as MetadataFault
from kafscale.objects.interface import ObjectInfo, ObjectStore
from kafscale.objects.memory import Call, Fault, MemoryObjectStore
from kafscale.v1.common_pb2 import PartitionRef, Status
from tests.support.storage.cluster import Cluster, Instance, cluster, until
from tests.support.storage.harness import NAMESPACE, World, batch, siblings
from tests.support.storage.sequences import numbered

PARTITIONS = 8


async def _of(two: Cluster, instance: Instance, ref: PartitionRef) -> PartitionRef:
    """Return a partition of the topic that is assigned to ``instance``, after appending the record "0"."""
    await trio.sleep(1)
    found = next(one for one in siblings(ref, PARTITIONS) if two.assigned(one) is instance)
    assert (await two.append_durably(found, batch(b"0"))).base_offset == 0
    return found


def _hold_first_puts(world: World, *keys: str) -> trio.Event:
    """Hold the first upload of each of these objects until the returned event is set."""
    held, waiting = trio.Event(), set(keys)

    def plan(call: Call) -> Fault | None:
        if call.kind == "put_if_absent" and call.key in waiting:
            waiting.remove(call.key)
            return Fault(hold=held)
        return None

    world.objects.plan = plan
    return held


async def _taken_by(two: Cluster, ref: PartitionRef, instance: Instance) -> None:
    async def taken() -> bool:
        return await two.owner(ref) == instance.caller.run_id

    await until(taken)


async def test_a_late_segment_of_a_former_owner_is_never_read(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with cluster(world, "a:1", "b:1", cache_size=0, flush_interval_ms=100) as two:
        a, b = two.instances
        ref = await _of(two, a, await world.topic(a.catalog, partitions=PARTITIONS))
        late = paths.segment_key(NAMESPACE, ref.topic, ref.partition, 51)
        held = _hold_first_puts(world, paths.segment_key(NAMESPACE, ref.topic, ref.partition, 1), late)
        for values in ([b"a1"] * 50, [b"a51"] * 50):
            await a.caller.append(ref, batch(*values))
            await trio.sleep(1)
        a.pause()
        await _taken_by(two, ref, b)
        theirs = [b"b%d" % i for i in range(80)]
        assert (await two.append_durably(ref, batch(*theirs))).base_offset == 1
        held.set()
        await trio.sleep(1)
        assert (await world.objects.head(late)).size > 0
        await two.append_durably(ref, batch(b"last"))
        assert await b.caller.read_all(ref, 61) == [*theirs, b"last"]
        # A new instance finds the late segment in a listing.
        c = await two.start("c:1", cache_size=0)
        assert await c.caller.read_all(ref, 61, scan=True) == [*theirs, b"last"]
        await b.kill()
        await _taken_by(two, ref, c)
        assert (await c.caller.fetch(ref, 61)).status == Status.OK
        assert await c.caller.read_all(ref) == [b"0", *theirs, b"last"]


async def test_a_former_owners_object_is_overwritten_and_never_deleted(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with cluster(world, "a:1", "b:1") as two:
        a, b = two.instances
        ref = await _of(two, a, await world.topic(a.catalog, partitions=PARTITIONS))
        key = paths.segment_key(NAMESPACE, ref.topic, ref.partition, 1)
        state_key = paths.partition_state_key(NAMESPACE, ref.topic, ref.partition)
        world.metadata.faults.append(MetadataFault(method="txn", key=state_key, delay=100))
        await a.caller.append(ref, batch(b"a"))
        await trio.sleep(1)
        a.pause()
        await _taken_by(two, ref, b)
        assert (await world.objects.head(key)).size > 0
        await two.append_durably(ref, batch(b"b"))
        assert [call for call in world.objects.calls if call.kind == "delete_many" and key in call.keys] == []
        assert await two.read_all(ref) == [b"0", b"b"]


async def test_a_partition_is_released_with_its_high_watermark(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with cluster(world, "a:1", handover_timeout_ms=2_000) as one:
        (a,) = one.instances
        first = await world.topic(a.catalog, partitions=PARTITIONS)
        for ref in siblings(first, PARTITIONS):
            await one.append_durably(ref, batch(b"0"))
        b = await one.start("b:1")
        ref = next(one_ref for one_ref in siblings(first, PARTITIONS) if one.assigned(one_ref) is a)
        a.gate.hold_answer_of = paths.partition_state_key(NAMESPACE, ref.topic, ref.partition)
        await a.caller.append(ref, batch(b"1"))
        await trio.sleep(1)
        assert (await one.state(ref)).high_watermark == 2
        with trio.move_on_after(10):
            await a.stop()
        await _taken_by(one, ref, b)
        assert (await one.append_durably(ref, batch(b"2"))).base_offset == 2
        assert await one.read_all(ref) == [b"0", b"1", b"2"]


async def test_uncommitted_segments_are_not_served_when_ownership_returns(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with cluster(world, "a:1", handover_timeout_ms=2_000) as one:
        (a,) = one.instances
        first = await world.topic(a.catalog, partitions=PARTITIONS)
        refs = siblings(first, PARTITIONS)
        for ref in refs:
            await one.append_durably(ref, batch(b"0"))
        for ref in refs:
            state_key = paths.partition_state_key(NAMESPACE, ref.topic, ref.partition)
            world.metadata.faults.append(MetadataFault(method="txn", key=state_key, delay=20))
        for ref in refs:
            await a.caller.append(ref, batch(b"a"))
        await trio.sleep(1)
        b = await one.start("b:1")
        ref = next(ref for ref in refs if one.assigned(ref) is b)
        assert (await world.objects.head(paths.segment_key(NAMESPACE, ref.topic, ref.partition, 1))).size > 0
        await _taken_by(one, ref, b)
        await one.append_durably(ref, batch(b"b"))
        await b.stop()
        await _taken_by(one, ref, a)
        assert len(a.caller.runs) == 1
        assert await a.caller.read_all(ref) == [b"0", b"b"]


async def test_a_stale_owner_does_not_report_offsets_out_of_range(autojump_clock: MockClock) -> None:
    world = World()
    async with cluster(world, "a:1", "b:1") as two:
        a, b = two.instances
        ref = await _of(two, a, await world.topic(a.catalog, partitions=PARTITIONS))
        a.pause()
        await _taken_by(two, ref, b)
        for value in (b"1", b"2", b"3"):
            await two.append_durably(ref, batch(value))
        assert (await b.caller.fetch(ref, 4)).status == Status.OK
        assert (await a.caller.fetch(ref, 4)).status == Status.NOT_OWNER
        # It may still serve records that it knows to be committed.
        assert (await a.caller.fetch(ref, 0)).status == Status.OK
        a.resume()
        await trio.sleep(1)
        answer = await a.caller.fetch(ref, 4)
        assert (answer.status, answer.owner) in [(Status.NOT_OWNER, b.caller.run_id), (Status.OK, "")]


async def test_a_restarted_instance_is_distinct_from_its_paused_predecessor(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with cluster(world, "a:1", lease_ttl_seconds=10, flush_interval_ms=100) as one:
        (former,) = one.instances
        ref = await world.topic(former.catalog, partitions=1)
        await one.append_durably(ref, batch(b"0"))
        held = _hold_first_puts(world, paths.segment_key(NAMESPACE, ref.topic, 0, 1))
        buffered = await former.caller.append(ref, batch(b"former's"))
        former.pause()
        restarted = await one.start("a:1", lease_ttl_seconds=10)
        refused = await restarted.caller.append(ref, batch(b"too early"))
        assert (refused.status, refused.owner) == (Status.NOT_OWNER, former.caller.runs[0])
        await _taken_by(one, ref, restarted)
        assert (await one.append_durably(ref, batch(b"next"))).base_offset == 1
        refused = await former.caller.append(ref, batch(b"unacknowledged"), unacknowledged=True)
        assert refused.status == Status.NOT_OWNER
        held.set()
        former.resume()
        await trio.sleep(5)
        assert not any(news.high_watermark >= buffered.end_offset for news in former.caller.news)
        assert await one.owner(ref) == (one.assigned(ref)).caller.run_id
        assert await one.read_all(ref) == [b"0", b"next"]


class _SlowListing:
    """An object store whose listings of producer snapshots wait for ``go``."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        self._inner = inner
        self.go, self.reached = trio.Event(), trio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def list_from(self, prefix: str, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        if "~producers" in prefix:
            self.reached.set()
            await self.go.wait()
        return await self._inner.list_from(prefix, start_after, limit)


async def test_a_late_cleanup_of_a_former_owner_keeps_the_referenced_snapshot(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    held = _SlowListing(world.objects)

    async def append(producer_id: int, count: int) -> None:
        for sequence in range(count):
            await one.append_durably(ref, numbered(sequence, producer_id=producer_id))

    async def referenced_snapshot_exists() -> bool:
        listed = await world.objects.list_from(paths.producers_prefix(NAMESPACE, ref.topic, 0))
        return (await one.state(ref)).producer_snapshot in [info.key for info in listed]

    async with cluster(world, "a:1") as one:
        (a,) = one.instances
        ref = await world.topic(a.catalog, partitions=1)
        await append(7, 3)
        b = await _start_assignee(one, ref, cast("ObjectStore", held))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(append, 8, 20)
            await held.reached.wait()
            await trio.sleep(20)
            nursery.cancel_scope.cancel()
        b.pause()
        await a.stop()
        c = await one.start("c:1")
        await _taken_by(one, ref, c)
        await append(9, 40)
        await trio.sleep(1)
        assert await referenced_snapshot_exists()
        held.go.set()
        await trio.sleep(1)
        assert await referenced_snapshot_exists()


async def _start_assignee(one: Cluster, ref: PartitionRef, objects: ObjectStore) -> Instance:
    """Start instances until the partition is assigned to one, and return it."""
    for number in range(2, 20):
        started = await one.start(f"b:{number}", objects=objects)
        if one.assigned(ref) is started:
            return started
        await started.stop()
    raise AssertionError("none")


async def test_a_paused_owner_does_not_answer_delete_records(autojump_clock: MockClock) -> None:
    world = World()
    async with cluster(world, "a:1", "b:1") as two:
        a, b = two.instances
        ref = await _of(two, a, await world.topic(a.catalog, partitions=PARTITIONS))
        # These need no commit when they are requested again.
        assert (await a.caller.delete_records(ref, -1)).log_start == 1
        assert (await a.caller.delete_records(ref, 0)).log_start == 1
        a.pause()
        await _taken_by(two, ref, b)
        await two.append_durably(ref, batch(b"1", b"2", b"3"))
        for offset in (-1, 0, 1, 3):
            answer = await a.caller.delete_records(ref, offset)
            assert answer.status == Status.NOT_OWNER, (offset, answer.detail)
        assert (await b.caller.delete_records(ref, 3)).log_start == 3


@pytest.mark.parametrize("request_name", ["DeleteRecords", "Flush"])
async def test_requests_that_wait_for_a_commit_are_answered_when_the_lease_is_lost(
    request_name: str, autojump_clock: MockClock
) -> None:
    async with cluster(World(), "a:1") as one:
        (paused,) = one.instances
        ref = await one.world.topic(paused.catalog, partitions=1)
        await one.append_durably(ref, batch(b"a"))
        paused.pause()
        async with trio.open_nursery() as nursery:
            if request_name == "Flush":
                await paused.caller.append(ref, batch(b"b"))
                nursery.start_soon(paused.caller.flush, ref)
            else:
                nursery.start_soon(paused.caller.delete_records, ref, 1)
            await trio.sleep(30)
            assert nursery.child_tasks
            paused.resume()
            await trio.sleep(30)
            assert len(paused.caller.runs) == 2
            assert not nursery.child_tasks
            nursery.cancel_scope.cancel()


class _StoppedBeforeSending:
    """An object store that is paused on the way in with a delete of segments, so that dates set after that are late."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        self._inner = inner
        self.stop = False
        self.stopped, self.go_on = trio.Event(), trio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def delete_many(self, keys: Iterable[str], *, dated: float | None = None, unused: bool = False) -> None:
        doomed = list(keys)
        if self.stop and any(key.endswith(".kfs") for key in doomed):
            self.stopped.set()
            await self.go_on.wait()
        await self._inner.delete_many(doomed, dated=dated, unused=unused)


@pytest.mark.parametrize("by", ["retention", "deletion"])
async def test_a_late_delete_of_a_paused_owner_does_not_affect_the_recreated_topic(
    autojump_clock: MockClock, by: str
) -> None:
    world = World(intake=False, settle_seconds=20)
    store = _StoppedBeforeSending(world.objects)
    async with cluster(world) as two:
        a = await two.start("a:1", objects=cast(ObjectStore, store))
        ref = await world.topic(a.catalog, partitions=1)
        for number in range(5):
            await two.append_durably(ref, batch(b"old-%d" % number))
        store.stop = True
        if by == "retention":
            assert (await a.caller.delete_records(ref, 4)).status == Status.OK
        else:
            await a.catalog.mark_deleting("orders")
        await store.stopped.wait()
        a.pause()
        b = await two.start("b:1")
        await trio.sleep(30)
        if by == "retention":
            await b.catalog.mark_deleting("orders")
        await b.catalog.wait_free("orders")
        later = await world.topic(b.catalog, partitions=1)
        for number in range(5):
            appended = await b.caller.append(later, batch(b"new-%d" % number))
            assert await b.caller.durable(appended, later)
        store.go_on.set()
        await trio.sleep(5)
        listed = await world.objects.list_from("test/orders/0/")
        assert sum(info.key.endswith(".kfs") for info in listed) == 5
