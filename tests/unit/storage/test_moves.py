"""Partitions move as members join, stop and die, and no record is lost or duplicated."""

from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import Unavailable
from kafscale.metadata.interface import KeyValue, MetadataStore
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.objects.memory import Call, Fault
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import PartitionAppend, PartitionFetched
from tests.support.storage.cluster import Cluster, Instance, cluster, until
from tests.support.storage.harness import World, batch, siblings, state_key
from tests.support.storage.sequences import numbered, numbers


async def _used_topic(cluster: Cluster, partitions: int) -> list[PartitionRef]:
    """Create a topic with a record in each partition."""
    first = await cluster.world.topic(cluster.instances[0].catalog, partitions=partitions)
    await until(lambda: _all_know_topic(cluster, first))
    refs = siblings(first, partitions)
    for ref in refs:
        await cluster.append_durably(ref, numbered(0))
    return refs


async def _all_know_topic(cluster: Cluster, ref: PartitionRef) -> bool:
    return all(instance.catalog.view.live_by_id(ref.topic_id) for instance in cluster.instances)


async def _all_at_assigned_owner(cluster: Cluster, refs: list[PartitionRef]) -> bool:
    owners = await cluster.owners()
    assigned = [cluster.view.owner(ref.topic_id, ref.partition) for ref in refs]
    return [owners[state_key(ref)] for ref in refs] == [live.run_id if live else None for live in assigned]


async def _produce(cluster: Cluster, ref: PartitionRef, count: int, pause: float) -> None:
    """Append the numbers from 1 to ``count`` - 1, each after the ack of the previous one."""
    for number in range(1, count):
        await cluster.append_durably(ref, numbered(number))
        await trio.sleep(pause)


async def test_a_new_instance_gets_its_share_and_nothing_else_moves(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1", "c:1") as three:
        refs = await _used_topic(three, 120)
        before = await three.owners()
        newcomer = await three.start("d:1")
        took = await until(lambda: _all_at_assigned_owner(three, refs))
        after = await three.owners()
        moved = {key for key in before if before[key] != after[key]}
        assert {after[key] for key in moved} == {newcomer.caller.run_id}
        assert 120 / 4 * 0.6 < len(moved) < 120 / 4 * 1.4
        assert took < 1
        for ref in refs:
            assert await three.read_all(ref) == [b"0"]


async def test_an_idle_partition_moves_to_its_new_owner_within_a_second(autojump_clock: MockClock) -> None:
    async with cluster(World(intake=False), "a:1") as one:
        (ref,) = await _used_topic(one, 1)
        addresses = (f"{letter}:1" for letter in "bcdefghijklmnopqrstuvwxyz")
        while one.assigned(ref).address == "a:1":
            began = trio.current_time()
            newcomer = await one.start(next(addresses))
        await until(lambda: _all_at_assigned_owner(one, [ref]))
        assert trio.current_time() - began < 1
        # It moved without a request, because retention needs an owner too.
        assert await one.owner(ref) == newcomer.caller.run_id


async def test_concurrent_moves_are_limited(autojump_clock: MockClock) -> None:
    world = World()
    async with cluster(world, "a:1", flush_interval_ms=600_000, moves_in_flight=8) as one:
        refs = await _used_topic(one, 60)
        old = one.instances[0].caller
        for ref in refs:
            assert (await old.append(ref, batch(b"buffered"))).status == Status.OK
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if _stores_a_segment(call) else None
        await one.start("b:1")
        await trio.sleep(5)
        reassigned = [ref for ref in refs if one.assigned(ref).address == "b:1"]
        refused = [ref for ref in refs if (await old.append(ref, batch(b"more"))).status == Status.NOT_OWNER]
        assert (len(refused), set(map(str, refused)) <= set(map(str, reassigned))) == (8, True)
        assert len(reassigned) > 20
        held.set()
        await until(lambda: _all_at_assigned_owner(one, refs))
        for ref in refs:
            await one.assigned(ref).caller.flush(ref)
            found = await one.read_all(ref)
            assert found[:2] == [b"0", b"buffered"]
            assert len(found) == 2 + (ref not in refused)


async def test_membership_changes_lose_and_duplicate_nothing(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1") as moving:
        refs = await _used_topic(moving, 6)
        async with trio.open_nursery() as producers:
            for ref in refs:
                producers.start_soon(_produce, moving, ref, 100, 0.2)
            await trio.sleep(3)
            b = await moving.start("b:1")
            await trio.sleep(3)
            c = await moving.start("c:1")
            await trio.sleep(3)
            await b.stop()
            await trio.sleep(3)
            await c.kill()
        for ref in refs:
            assert await moving.read_all(ref) == numbers(100)


async def test_a_batch_resent_after_a_move_gets_its_first_offset(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1") as two:
        refs = await _used_topic(two, 8)
        moved = [ref for ref in refs if two.assigned(ref).address == "a:1"]
        first = {ref.partition: await two.append_durably(ref, numbered(1)) for ref in moved}
        two.world.objects.calls.clear()
        await two.instances[0].stop()
        assert moved
        for ref in moved:
            again = await two.append_durably(ref, numbered(1))
            assert again.base_offset == first[ref.partition].base_offset
            assert again.epoch > first[ref.partition].epoch
            assert await two.read_all(ref) == numbers(2)
            # The new owner got the producers from the snapshot and read no segment for them.
        reads = [call.key for call in two.world.objects.calls if call.kind in ("get", "get_range")]
        assert sum("~producers" in key for key in reads) == len(moved)


async def test_a_stop_hands_over_with_at_most_one_refusal_per_partition(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with cluster(world, "a:1", "b:1", flush_interval_ms=600_000) as two:
        refs = await _used_topic(two, 10)
        first = two.instances[0]
        theirs = [ref for ref in refs if two.assigned(ref) is first]
        buffered = {ref.partition: await first.caller.append(ref, numbered(1)) for ref in theirs}
        world.objects.plan = lambda call: Fault(delay=0.2) if call.kind == "put_if_absent" else None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.stop)
            for ref in theirs:
                assert await first.caller.durable(buffered[ref.partition], ref)
                two.refusals = 0
                _, answer = await two.append(ref, numbered(2))
                assert (answer.status, answer.base_offset, two.refusals <= 1) == (Status.OK, 2, True)
        assert len(theirs) > 2
        assert first.caller.run_id not in (await two.owners()).values()


async def test_an_instance_takes_over_nothing_assigned_to_another(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1") as two:
        first = await two.world.topic(two.instances[0].catalog, partitions=8)
        await trio.sleep(1)
        for ref in siblings(first, 8):
            owner = two.assigned(ref)
            (other,) = [instance for instance in two.instances if instance is not owner]
            appended, fetched = await other.caller.append(ref, batch(b"x")), await other.caller.fetch(ref, 0)
            found, truncated = await other.caller.offset_at(ref, -1), await other.caller.delete_records(ref, 0)
            epoch_end = await other.caller.epoch_end(ref, 0)
            hints = {appended.owner, fetched.owner, found.owner, truncated.owner, epoch_end.owner}
            assert hints == {owner.caller.run_id}
            statuses = {appended.status, fetched.status, found.status, truncated.status, epoch_end.status}
            assert statuses == {Status.NOT_OWNER}
            assert await two.owner(ref) == ""


async def test_a_refusal_still_blocks_later_appends_after_the_partition_returns(autojump_clock: MockClock) -> None:
    world = World()
    async with cluster(world, "a:1", flush_interval_ms=600_000) as one:
        refs = await _used_topic(one, 6)
        old = one.instances[0].caller
        for ref in refs:
            await old.append(ref, batch(b"1"))
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if _stores_a_segment(call) else None
        newcomer = await one.start("b:1")
        await trio.sleep(1)
        (ref, *_) = [ref for ref in refs if one.assigned(ref) is newcomer]
        assert (await old.append(ref, batch(b"2"))).status == Status.NOT_OWNER
        unseen = old.sequence - 1
        held.set()
        await until(lambda: _all_at_assigned_owner(one, refs))
        await newcomer.stop()
        await until(lambda: _all_at_assigned_owner(one, refs))
        sent_behind = await old.send(PartitionAppend(partition=ref, records=batch(b"3")), seen=unseen)
        assert sent_behind.results[0].status == Status.REFUSED_BEHIND
        for value in (b"2", b"3"):
            assert (await old.append(ref, batch(value))).status == Status.OK
        await old.flush(ref)
        assert await old.read_all(ref) == [b"0", b"1", b"2", b"3"]


async def test_a_dead_instances_partitions_are_taken_over_when_its_lease_expires(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1", lease_ttl_seconds=10) as two:
        refs = await _used_topic(two, 10)
        dead = two.instances[0]
        theirs = [ref for ref in refs if two.assigned(ref) is dead]
        await dead.kill()
        await trio.sleep(5)
        survivor = two.instances[0].caller
        refused = await survivor.append(theirs[0], numbered(1))
        assert (refused.status, refused.owner) == (Status.NOT_OWNER, dead.caller.run_id)
        assert await until(lambda: _all_at_assigned_owner(two, refs)) < 6
        for ref in theirs:
            await two.append_durably(ref, numbered(1))
            assert await two.read_all(ref) == numbers(2)


async def test_ownership_that_moves_back_and_forth_loses_and_duplicates_nothing(autojump_clock: MockClock) -> None:
    async with cluster(World(intake=False), "a:1") as moving:
        refs = await _used_topic(moving, 4)
        number = 1
        for _ in range(4):
            other = await moving.start("b:1")
            for stop in (False, True):
                if stop:
                    await other.stop()
                for ref in refs:
                    assert (await moving.append_durably(ref, numbered(number))).base_offset == number
                number += 1
        for ref in refs:
            assert await moving.read_all(ref) == numbers(number)
            assert (await moving.state(ref)).high_watermark == number
        epochs = {(await moving.state(ref)).epoch for ref in refs}
        assert max(epochs) >= 9


@pytest.mark.parametrize("lands_first", [True, False])
async def test_a_late_put_after_the_hand_over_deadline_overwrites_nothing(
    autojump_clock: MockClock, lands_first: bool
) -> None:
    world = World(intake=False)
    async with cluster(world, "a:1", flush_interval_ms=600_000, handover_timeout_ms=5_000, cache_size=0) as one:
        refs = await _used_topic(one, 6)
        old = one.instances[0].caller
        buffered = {ref.partition: await old.append(ref, batch(b"lost")) for ref in refs}
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if _stores_a_segment(call) else None
        newcomer = await one.start("b:1", cache_size=0)
        await trio.sleep(4)
        (ref, *_) = [ref for ref in refs if one.assigned(ref) is newcomer]
        assert await one.owner(ref) == old.run_id
        assert not await old.durable(buffered[ref.partition], ref)
        await until(lambda: _all_at_assigned_owner(one, refs), seconds=2)
        world.objects.plan = None
        if lands_first:
            held.set()
            await trio.sleep(1)
        appended = await one.append_durably(ref, batch(b"kept"))
        held.set()
        await trio.sleep(1)
        assert appended.base_offset == 1
        assert await one.read_all(ref) == [b"0", b"kept"]


async def test_a_partition_is_released_when_its_unanswered_delete_can_no_longer_apply(
    autojump_clock: MockClock,
) -> None:
    world = World(settle_seconds=15)
    async with cluster(world, "a:1") as one:
        refs = await _used_topic(one, 6)
        old = one.instances[0].caller
        for ref in refs:
            await one.append_durably(ref, numbered(1))
        world.objects.plan = lambda call: (
            Fault(error=Unavailable("timeout")) if call.kind == "delete_many" and "segment" in call.key else None
        )
        for ref in refs:
            await old.delete_records(ref, 1)
        await trio.sleep(2)
        newcomer = await one.start("b:1")
        (ref, *_) = [ref for ref in refs if one.assigned(ref) is newcomer]
        await trio.sleep(11)
        assert await one.owner(ref) == old.run_id
        await until(lambda: _all_at_assigned_owner(one, refs), seconds=5)
        assert not (await one.state(ref)).unclean


def _stores_a_segment(call: Call) -> bool:
    return call.kind == "put_if_absent" and call.key.endswith(".kfs")


async def test_a_pending_hand_over_delays_appends_only_once(autojump_clock: MockClock) -> None:
    world = World()
    async with cluster(world, "a:1", flush_interval_ms=600_000) as one:
        refs = await _used_topic(one, 8)
        old = one.instances[0].caller
        for ref in refs:
            assert (await old.append(ref, numbered(1))).status == Status.OK
        world.objects.plan = lambda call: Fault(delay=10) if _stores_a_segment(call) else None
        new = (await one.start("b:1")).caller
        (moving, *_) = [ref for ref in refs if one.assigned(ref).caller is new]
        await trio.sleep(0.1)
        waits = []
        for _ in range(50):
            began = trio.current_time()
            answer = await new.append(moving, numbered(2))
            assert (answer.status, answer.owner) == (Status.NOT_OWNER, old.run_id)
            waits.append(trio.current_time() - began)
            await trio.sleep(0.1)
        assert waits[0] == pytest.approx(0.5)
        assert max(waits[1:]) == pytest.approx(0)
        await until(lambda: _all_at_assigned_owner(one, refs))
        assert (await one.append_durably(moving, numbered(2))).base_offset == 2


async def test_readers_are_served_until_a_partition_is_released(autojump_clock: MockClock) -> None:
    world = World()
    async with cluster(world, "a:1", flush_interval_ms=600_000) as one:
        refs = await _used_topic(one, 8)
        old = one.instances[0].caller
        for ref in refs:
            assert (await old.append(ref, numbered(1))).status == Status.OK
        world.objects.plan = lambda call: Fault(delay=3) if call.kind == "put_if_absent" else None
        newcomer = await one.start("b:1")
        await trio.sleep(1)
        (ref, *_) = [ref for ref in refs if one.assigned(ref) is newcomer]
        during = await old.append(ref, numbered(2))
        assert (during.status, during.owner) == (Status.NOT_OWNER, newcomer.caller.run_id)
        assert (await old.fetch(ref, 0)).status == Status.OK
        assert (await old.offset_at(ref, -1)).status == Status.OK
        await trio.sleep(10)
        after = await old.fetch(ref, 0)
        assert (after.status, after.owner) == (Status.NOT_OWNER, newcomer.caller.run_id)
        found = await old.offset_at(ref, -1)
        assert (found.status, found.owner) == (Status.NOT_OWNER, newcomer.caller.run_id)
        assert await newcomer.caller.read_all(ref) == numbers(2)


async def _owns(two: Cluster, instance: Instance, ref: PartitionRef) -> bool:
    return await two.owner(ref) == instance.caller.run_id


async def test_a_repeated_batch_is_acked_after_its_partition_left_and_returned(autojump_clock: MockClock) -> None:
    world = World()
    async with cluster(world, "a:1") as two:
        a = two.instances[0]
        refs = siblings(await world.topic(a.catalog, partitions=16), 16)
        b = await two.start("b:1")
        await trio.sleep(1)
        moving, slow = (next(ref for ref in refs if two.assigned(ref) is instance) for instance in (b, a))
        await b.stop()
        await trio.sleep(1)
        assert (await a.caller.append(moving, numbered(0))).status == Status.OK
        await a.caller.flush(moving)
        prefix = f"test/{slow.topic}/{slow.partition}/"
        world.objects.plan = lambda call: Fault(delay=1) if (call.kind, call.key) == ("list_from", prefix) else None

        async def append_to_both() -> None:
            # The second partition must be taken over first. The first one is handed over meanwhile.
            await a.caller.send(
                PartitionAppend(partition=moving, records=numbered(1)),
                PartitionAppend(partition=slow, records=batch(b"x")),
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(append_to_both)
            await trio.sleep(0.01)
            b = await two.start("b:1")
        await until(lambda: _owns(two, b, moving))
        original = await b.caller.append(moving, numbered(1))
        assert original.status == Status.OK
        assert await b.caller.durable(original, moving)
        await b.stop()
        await until(lambda: _owns(two, a, moving))
        repeated = await a.caller.append(moving, numbered(1))
        assert (repeated.status, repeated.base_offset) == (Status.OK, original.base_offset)
        assert await a.caller.durable(repeated, moving)


class _HeldState:
    """A metadata store whose next ``get`` of ``held`` waits until ``release`` is set, and then reads."""

    def __init__(self, inner: MemoryMetadataStore) -> None:
        self._inner = inner
        self.held = ""
        self.waiting, self.release = trio.Event(), trio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, key: str) -> KeyValue | None:
        if key == self.held:
            self.held = ""
            self.waiting.set()
            await self.release.wait()
        return await self._inner.get(key)


async def test_a_fetch_reports_no_old_end_if_the_partition_left_and_returned_meanwhile(
    autojump_clock: MockClock,
) -> None:
    world = World()
    metadata = _HeldState(world.metadata)
    async with cluster(world, "a:1", metadata=cast(MetadataStore, metadata)) as two:
        a = two.instances[0]
        refs = siblings(await world.topic(a.catalog, partitions=16), 16)
        b = await two.start("b:1")
        await trio.sleep(1)
        moving = next(ref for ref in refs if two.assigned(ref) is b)
        await b.stop()
        await trio.sleep(1)
        await two.append_durably(moving, numbered(0))
        metadata.held = state_key(moving)
        fetched: list[PartitionFetched] = []

        async def fetch() -> None:
            fetched.append(await a.caller.fetch(moving, 2))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await metadata.waiting.wait()
            b = await two.start("b:1")
            await until(lambda: _owns(two, b, moving))
            for number in (1, 2):
                appended = await b.caller.append(moving, numbered(number))
                assert await b.caller.durable(appended, moving)
            await b.stop()
            await until(lambda: _owns(two, a, moving))
            metadata.release.set()
        assert fetched[0].status == Status.NOT_OWNER
        assert ((again := await a.caller.fetch(moving, 2)).status, again.high_watermark) == (Status.OK, 3)
