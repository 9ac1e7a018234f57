"""Scans: committed ranges of a partition, served by an instance that is not the owner."""

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.metadata.memory import no_answer
from kafscale.objects.interface import ObjectInfo
from kafscale.objects.memory import Call, Fault, MemoryObjectStore
from kafscale.records.batch import walk
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import Bound
from tests.support.storage.cluster import Cluster, Instance, cluster
from tests.support.storage.harness import NAMESPACE, World, batch, state_key
from tests.support.storage.sequences import numbered, numbers


async def _owned_and_other(two: Cluster) -> tuple[PartitionRef, Instance, Instance]:
    """Return an empty partition, its assigned owner and another instance. Both know the topic."""
    ref = await two.world.topic(two.instances[0].catalog, partitions=1)
    await trio.sleep(1)
    owner = two.assigned(ref)
    (other,) = [instance for instance in two.instances if instance is not owner]
    return ref, owner, other


async def test_a_scan_follows_commits_of_another_instance(autojump_clock: MockClock) -> None:
    async with cluster(World(intake=False, indexing=True), "a:1", "b:1") as two:
        ref, owner, other = await _owned_and_other(two)
        assert (await other.caller.fetch(ref, 0)).status == Status.NOT_OWNER
        never_used = await other.caller.fetch(ref, 0, scan=True)
        assert (never_used.status, never_used.high_watermark, never_used.records) == (Status.OK, 0, b"")
        for number in range(30):
            appended = await two.append_durably(ref, numbered(number))
            assert await other.caller.read_all(ref, scan=True) == numbers(number + 1)
        fetched = await other.caller.fetch(ref, 3, scan=True)
        assert (fetched.epoch, fetched.log_start, fetched.high_watermark) == (appended.epoch, 0, 30)
        assert await owner.caller.read_all(ref, scan=True) == numbers(30)
        assert await two.owner(ref) == owner.caller.run_id, "a scan takes over nothing"


async def test_a_scan_below_the_known_end_reads_no_metadata(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1") as two:
        ref, _, other = await _owned_and_other(two)
        await two.append_durably(ref, batch(b"0", b"1"))
        assert (await other.caller.fetch(ref, 0, scan=True)).status == Status.OK
        two.world.metadata.faults.append(no_answer("txn", key=state_key(ref), times=1_000))
        assert (await other.caller.fetch(ref, 1, scan=True)).status == Status.OK
        assert (await other.caller.fetch(ref, 2, scan=True)).status == Status.UNAVAILABLE


async def test_a_scan_reports_out_of_range_only_by_the_current_state(autojump_clock: MockClock) -> None:
    async with cluster(World(intake=False), "a:1", "b:1") as two:
        ref, _, other = await _owned_and_other(two)
        await two.append_durably(ref, numbered(0))
        assert (await other.caller.fetch(ref, 2, scan=True)).status == Status.OFFSET_OUT_OF_RANGE
        for number in range(1, 5):
            await two.append_durably(ref, numbered(number))
        ahead = await other.caller.fetch(ref, 4, scan=True)
        assert (ahead.status, ahead.high_watermark) == (Status.OK, 5)
        assert (await other.caller.fetch(ref, 6, scan=True)).status == Status.OFFSET_OUT_OF_RANGE


async def test_a_scan_does_not_rely_on_an_earlier_state_read(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1", fetch_read_timeout_ms=10_000) as two:
        ref, _, other = await _owned_and_other(two)
        await two.append_durably(ref, numbered(0))
        assert (await other.caller.fetch(ref, 1, scan=True)).high_watermark == 1
        answers: dict[str, Status] = {}

        async def ask(name: str, offset: int) -> None:
            answers[name] = (await other.caller.fetch(ref, offset, scan=True)).status

        other.gate.hold_reads = 2.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "before", 2)
            await trio.sleep(1)
            await two.append_durably(ref, numbered(1))
            await two.append_durably(ref, numbered(2))
            nursery.start_soon(ask, "after", 3)
        assert answers == {"before": Status.OFFSET_OUT_OF_RANGE, "after": Status.OK}


@pytest.mark.parametrize("cached", [True, False])
async def test_a_scan_below_the_log_start_gets_the_log_start(autojump_clock: MockClock, cached: bool) -> None:
    async with cluster(World(intake=False), "a:1", "b:1", cache_size=1 << 20 if cached else 0) as two:
        ref, owner, other = await _owned_and_other(two)
        for number in range(10):
            await two.append_durably(ref, numbered(number))
        assert await other.caller.read_all(ref, scan=True) == numbers(10)
        assert (await owner.caller.delete_records(ref, 6)).log_start == 6
        await trio.sleep(1)
        answer = await other.caller.fetch(ref, 2, scan=True)
        if cached:
            assert answer.status in (Status.OK, Status.OFFSET_OUT_OF_RANGE)
        else:
            assert (answer.status, answer.log_start) == (Status.OFFSET_OUT_OF_RANGE, 6)
        assert await other.caller.read_all(ref, 6, scan=True) == numbers(10)[6:]


async def test_records_deleted_during_a_first_read_are_out_of_range_and_not_damaged(
    autojump_clock: MockClock,
) -> None:
    async with cluster(World(intake=False), "a:1", "b:1") as two:
        ref, owner, other = await _owned_and_other(two)
        for number in range(8):
            await two.append_durably(ref, numbered(number))
        held, begun = trio.Event(), trio.Event()

        def plan(call: Call) -> Fault | None:
            if call.kind != "list_from" or "/orders/" not in call.key or begun.is_set():
                return None
            begun.set()
            return Fault(hold=held)

        two.world.objects.plan = plan
        found: list[int] = []

        async def read() -> None:
            found.append((await other.caller.fetch(ref, 0, scan=True)).status)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await begun.wait()
            assert (await owner.caller.delete_records(ref, 6)).log_start == 6
            await trio.sleep(1)
            held.set()
        assert found == [Status.OFFSET_OUT_OF_RANGE]


async def test_a_scan_reports_a_missing_segment(autojump_clock: MockClock) -> None:
    async with cluster(World(intake=False), "a:1", "b:1", cache_size=0) as two:
        ref, _, other = await _owned_and_other(two)
        for number in range(3):
            await two.append_durably(ref, numbered(number))
        await two.world.objects.delete_many([paths.segment_key(NAMESPACE, ref.topic, 0, 1)])
        assert (await other.caller.fetch(ref, 1, scan=True)).status == Status.DAMAGED
        assert (await other.caller.fetch(ref, 2, scan=True)).status == Status.OK


async def test_a_scan_of_a_deleted_topic_is_refused(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1") as two:
        ref, _, other = await _owned_and_other(two)
        await two.append_durably(ref, numbered(0))
        await other.caller.fetch(ref, 0, scan=True)
        await other.catalog.mark_deleting(ref.topic)
        assert (await other.caller.fetch(ref, 1, scan=True)).status == Status.UNKNOWN_TOPIC
        await other.catalog.wait_free(ref.topic)
        made = await two.world.topic(other.catalog, partitions=1)
        await trio.sleep(1)
        await two.append_durably(made, batch(b"new"))
        assert (await other.caller.fetch(ref, 1, scan=True)).status == Status.TOPIC_ID_MISMATCH
        assert await other.caller.read_all(made, scan=True) == [b"new"]


async def test_a_log_is_not_read_by_its_id_with_the_name_of_another_topic(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1") as two:
        ref, owner, other = await _owned_and_other(two)
        named = await two.world.topic(owner.catalog, "named", partitions=1)
        await two.append_durably(ref, numbered(0))
        mixed = PartitionRef(topic=named.topic, topic_id=ref.topic_id)
        for caller in (owner.caller, other.caller):
            # The owner has the log, and the other instance a recent copy of it.
            assert await caller.read_all(ref, scan=True) == numbers(1)
            assert (await caller.scan(ref, 0, 1))[0].status == Status.OK
            assert (await caller.plan(mixed))[0].status == Status.TOPIC_ID_MISMATCH
            assert (await caller.scan(mixed, 0, 1))[0].status == Status.TOPIC_ID_MISMATCH


async def test_scans_remember_a_bounded_number_of_partitions(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1", scanned_partitions=2) as two:
        first = await two.world.topic(two.instances[0].catalog, partitions=12)
        await trio.sleep(1)
        refs = [PartitionRef(topic=first.topic, topic_id=first.topic_id, partition=index) for index in range(12)]
        refs = [ref for ref in refs if two.assigned(ref) is two.instances[0]][:3]
        for ref in refs:
            await two.append_durably(ref, numbered(0))
        other = two.instances[1].caller
        for ref in refs:
            assert await other.read_all(ref, scan=True) == numbers(1)
        two.world.metadata.faults.append(no_answer("txn", key=state_key(refs[0]), times=1_000))
        assert (await other.fetch(refs[0], 0, scan=True)).status == Status.UNAVAILABLE
        two.world.metadata.faults[:] = [no_answer("txn", key=state_key(refs[2]), times=1_000)]
        assert (await other.fetch(refs[2], 0, scan=True)).status == Status.OK


class _HeldListings:
    """An object store that delays answers of segment listings while ``held``. They show the time of the request."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        self._inner = inner
        self.held = False
        self.waiting, self.release = trio.Event(), trio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def list_from(self, prefix: str, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        listed = await self._inner.list_from(prefix, start_after, limit)
        if self.held and "~" not in prefix:
            self.waiting.set()
            await self.release.wait()
        return listed


async def test_a_listing_does_not_hide_segments_committed_meanwhile(autojump_clock: MockClock) -> None:
    world = World(intake=False, indexing=True)
    async with cluster(world) as two:
        stores = {address: _HeldListings(world.objects) for address in ("a:1", "b:1")}
        for address, store in stores.items():
            await two.start(address, objects=store)
        ref, _, other = await _owned_and_other(two)
        store = stores[other.address]
        for number in range(5):
            await two.append_durably(ref, batch(b"old-%d" % number, timestamp=1_000))
        assert (await other.caller.fetch(ref, 4, scan=True)).status == Status.OK
        async with trio.open_nursery() as nursery:
            store.held = True
            nursery.start_soon(lambda: other.caller.fetch(ref, 2, scan=True))
            await store.waiting.wait()
            for number in range(5):
                await two.append_durably(ref, batch(b"new-%d" % number, timestamp=2_000))
            (plan,) = await other.caller.plan(ref, start=Bound(latest=True), end=Bound(latest=True))
            assert plan.high_watermark == 10
            store.held = False
            store.release.set()
        pieces = await other.caller.scan(ref, 0, 10, since_ms=1_500)
        assert [header.base_offset for piece in pieces for _, header in walk(piece.records)] == [5, 6, 7, 8, 9]
        (plan,) = await other.caller.plan(ref, start=Bound(timestamp=1_500))
        assert plan.start == 5
        assert (await other.caller.fetch(ref, 6, scan=True)).status == Status.OK


async def test_a_plan_by_time_recovers_from_an_orphan_that_was_listed_and_then_deleted(
    autojump_clock: MockClock,
) -> None:
    async with cluster(World(intake=False, indexing=True), "a:1", "b:1") as two:
        ref, _, other = await _owned_and_other(two)
        for number in range(4):
            records = [b"%d-%d" % (number, i) for i in range(4)]
            await two.append_durably(ref, batch(*records, timestamp=1_000 * number))
        orphan = paths.segment_key(NAMESPACE, ref.topic, ref.partition, 5)
        await two.world.objects.put_if_absent(orphan, b"a dead owner's")
        # A read of the segments before the orphan lists it too.
        pieces = await other.caller.scan(ref, 0, 4)
        assert pieces[-1].next_offset == 4
        await two.world.objects.delete_many([orphan])
        (plan,) = await other.caller.plan(ref, start=Bound(timestamp=2_000))
        assert (plan.status, plan.start) == (Status.OK, 8)


async def test_a_fetch_recovers_from_an_orphan_that_was_listed_and_then_deleted(autojump_clock: MockClock) -> None:
    async with cluster(World(intake=False, indexing=True), "a:1", "b:1") as two:
        ref, _, other = await _owned_and_other(two)
        for number in range(4):
            await two.append_durably(ref, batch(*(b"%d-%d" % (number, i) for i in range(4))))
        orphan = paths.segment_key(NAMESPACE, ref.topic, ref.partition, 5)
        await two.world.objects.put_if_absent(orphan, b"a dead owner's")
        assert (await other.caller.scan(ref, 0, 4))[-1].next_offset == 4
        await two.world.objects.delete_many([orphan])
        assert (await other.caller.fetch(ref, 6, scan=True)).status == Status.OK
