"""One instance deletes a topic while the others release its partitions."""

from types import SimpleNamespace
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Put
from kafscale.metadata.membership import Membership
from kafscale.metadata.memory import Fault as MetadataFault
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.topic_values import TopicInfo
from kafscale.objects.memory import Call, Fault, MemoryObjectStore
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.upkeep.deletion import _Deletion
from tests.support.storage.cluster import Cluster, Instance, cluster
from tests.support.storage.harness import NAMESPACE, World, batch, siblings, state_key

PARTITIONS = 6


async def _used_topic(two: Cluster) -> list[PartitionRef]:
    """Create a topic with a record in each partition. Every instance owns some partitions."""
    first = await two.world.topic(two.instances[0].catalog, partitions=PARTITIONS)
    await trio.sleep(1)
    refs = siblings(first, PARTITIONS)
    for ref in refs:
        await two.append_durably(ref, batch(b"old"))
    assert len({two.assigned(ref).address for ref in refs}) == len(two.instances)
    return refs


def _responsible(two: Cluster, refs: list[PartitionRef]) -> tuple[Instance, Instance]:
    """Return the instance that has to delete the topic, and another one."""
    responsible = two.assigned(refs[0])
    return responsible, next(one for one in two.instances if one is not responsible)


async def _topic_keys(world: World) -> list[str]:
    return [info.key for info in await world.objects.list_from(f"{NAMESPACE}/orders/")]


async def _comes_back_empty(two: Cluster, old: list[PartitionRef]) -> None:
    made = siblings(await two.world.topic(two.instances[0].catalog, partitions=PARTITIONS), PARTITIONS)
    await trio.sleep(1)
    for ref in made:
        appended = await two.append_durably(ref, batch(b"new"))
        assert appended.base_offset == 0
        assert await two.read_all(ref) == [b"new"]
    for instance in two.instances:
        assert (await instance.caller.fetch(old[0], 0)).status in (Status.TOPIC_ID_MISMATCH, Status.NOT_OWNER)


async def test_a_topic_of_several_owners_is_deleted_at_once_and_recreated_empty(autojump_clock: MockClock) -> None:
    async with cluster(World(settle_seconds=15), "a:1", "b:1", "c:1") as three:
        refs = await _used_topic(three)
        began = trio.current_time()
        await three.instances[1].catalog.mark_deleting("orders")
        await three.instances[2].catalog.wait_free("orders")
        assert trio.current_time() - began < 2
        assert await _topic_keys(three.world) == []
        await _comes_back_empty(three, refs)


async def test_a_recreated_topic_begins_above_all_epochs_of_the_deleted_one(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1") as two:
        refs = await _used_topic(two)
        last = max([(await two.append_durably(ref, batch(b"old"))).epoch for ref in refs])
        await two.instances[0].catalog.mark_deleting("orders")
        await two.instances[0].catalog.wait_free("orders")
        made = await two.world.topic(two.instances[0].catalog, partitions=1)
        await trio.sleep(1)
        assert (await two.append_durably(made, batch(b"new"))).epoch > last


async def test_one_instance_deletes_and_the_others_only_release(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1") as two:
        refs = await _used_topic(two)
        responsible, other = _responsible(two, refs)
        responsible.pause()
        await other.catalog.mark_deleting("orders")
        await trio.sleep(4)
        # The other instance has released its partitions. It deletes nothing while the first one is alive.
        assert other.caller.run_id not in (await two.owners()).values()
        assert len(await _topic_keys(two.world)) == 2 * PARTITIONS
        responsible.resume()
        await other.catalog.wait_free("orders")
        assert await _topic_keys(two.world) == []


async def test_a_deletion_waits_for_an_upload_of_another_instance(autojump_clock: MockClock) -> None:
    world = World(intake=False, settle_seconds=15)
    async with cluster(world, "a:1", "b:1") as two:
        refs = await _used_topic(two)
        _, other = _responsible(two, refs)
        ref = next(ref for ref in refs if two.assigned(ref) is other)
        held = trio.Event()
        key = paths.segment_key(NAMESPACE, "orders", ref.partition, 1)
        world.objects.plan = lambda call: Fault(hold=held) if call.key == key and not held.is_set() else None
        appended = await other.caller.append(ref, batch(b"late"))
        await trio.sleep(1)
        await other.catalog.mark_deleting("orders")
        await trio.sleep(60)
        assert not await other.caller.durable(appended, ref)
        assert "orders" in other.catalog.view.by_name
        held.set()
        await other.catalog.wait_free("orders")
        assert await _topic_keys(world) == []
        await _comes_back_empty(two, refs)


async def test_a_deletion_waits_for_the_last_requests_of_a_dead_instance(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=15)
    async with cluster(world, "a:1", "b:1", lease_ttl_seconds=10) as two:
        refs = await _used_topic(two)
        _, other = _responsible(two, refs)
        ref = next(ref for ref in refs if two.assigned(ref) is other)

        def plan(call: Call) -> Fault | None:
            late = call.key == paths.segment_key(NAMESPACE, "orders", ref.partition, 1)
            return Fault(error=Unavailable("timeout"), applied="later") if late else None

        world.objects.plan = plan
        await other.caller.append(ref, batch(b"late"))
        await trio.sleep(0.7)
        await other.kill()
        world.objects.plan = None
        (survivor,) = two.instances
        await survivor.catalog.mark_deleting("orders")
        await trio.sleep(20)
        assert "orders" in survivor.catalog.view.by_name
        world.objects.land_stray()
        await survivor.catalog.wait_free("orders")
        assert await _topic_keys(world) == []


async def test_another_instance_finishes_a_deletion_when_the_first_one_dies(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=15)
    async with cluster(world, "a:1", "b:1", lease_ttl_seconds=10) as two:
        refs = await _used_topic(two)
        responsible, other = _responsible(two, refs)
        deletes: list[Call] = []

        def plan(call: Call) -> Fault | None:
            if call.kind != "delete_many" or not call.key.startswith(f"{NAMESPACE}/orders/"):
                return None
            deletes.append(call)
            return Fault(error=Unavailable("timeout"), applied="later") if len(deletes) == 2 else None

        world.objects.plan = plan
        await other.catalog.mark_deleting("orders")
        with trio.fail_after(10):
            while len(deletes) < 2:  # noqa: ASYNC110  the store has no event for it
                await trio.sleep(0.01)
        began = trio.current_time()
        await responsible.kill()
        await other.catalog.wait_free("orders")
        # The lease expires, and later no request of the dead instance can apply any more.
        assert 15 < trio.current_time() - began < 30
        assert await _topic_keys(world) == []
        await _comes_back_empty(two, refs)


async def test_a_paused_instance_deletes_nothing_of_the_recreated_topic(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=15)
    async with cluster(world, "a:1", "b:1", lease_ttl_seconds=10) as two:
        refs = await _used_topic(two)
        responsible, other = _responsible(two, refs)
        held = trio.Event()
        listed: list[Call] = []

        def plan(call: Call) -> Fault | None:
            if call.kind != "list_from" or call.key != f"{NAMESPACE}/orders/0/" or listed:
                return None
            listed.append(call)
            return Fault(hold=held)

        world.objects.plan = plan
        await other.catalog.mark_deleting("orders")
        await trio.sleep(1)
        assert listed
        responsible.pause()
        await other.catalog.wait_free("orders")
        made = siblings(await two.world.topic(other.catalog, partitions=PARTITIONS), PARTITIONS)
        await trio.sleep(1)
        assert (await other.caller.append(made[0], batch(b"new"))).status == Status.OK
        await other.caller.flush(made[0])
        # The listing that the paused instance had begun now contains the new topic's first segment.
        held.set()
        await trio.sleep(5)
        assert paths.segment_key(NAMESPACE, "orders", 0, 0) in await _topic_keys(world)
        responsible.resume()
        await trio.sleep(5)
        assert await two.read_all(made[0]) == [b"new"]


async def test_a_late_request_of_a_dead_instance_does_not_free_the_name(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=15)
    async with cluster(world, "a:1", "b:1", lease_ttl_seconds=10) as two:
        refs = await _used_topic(two)
        responsible, other = _responsible(two, refs)
        late = MetadataFault(method="txn", key=state_key(refs[0]), delay=20)

        def plan(call: Call) -> None:
            # The last object to be deleted. Then the partitions' keys are deleted, and the name is free.
            if call.kind == "delete_many" and call.key == paths.topic_object_key(NAMESPACE, "orders"):
                world.metadata.faults = [late]

        world.objects.plan = plan
        await other.catalog.mark_deleting("orders")
        with trio.fail_after(10):
            while late.times:  # noqa: ASYNC110  the store has no event for it
                await trio.sleep(0.01)
        responsible.pause()
        # The lease expires, and the other instance deletes until the first one's transaction is applied.
        await trio.sleep(21)
        await responsible.kill()
        await two.start(responsible.address)
        await trio.sleep(2)
        assert "orders" in other.catalog.view.by_name
        await other.catalog.wait_free("orders")
        await _comes_back_empty(two, refs)


async def test_a_deletion_waits_until_an_unanswered_delete_cannot_apply(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=15)
    async with cluster(world, "a:1", "b:1") as two:
        refs = await _used_topic(two)
        failed: list[Call] = []

        def plan(call: Call) -> Fault | None:
            if call.kind != "delete_many" or not call.key.startswith(f"{NAMESPACE}/orders/") or failed:
                return None
            failed.append(call)
            return Fault(error=Unavailable("timeout"), applied="later")

        world.objects.plan = plan
        began = trio.current_time()
        catalog = two.instances[0].catalog
        await catalog.mark_deleting("orders")
        await catalog.wait_free("orders")
        assert failed
        assert 15 <= trio.current_time() - began < 20
        await _comes_back_empty(two, refs)


async def test_a_deletion_waits_for_a_take_over_of_its_own_run(autojump_clock: MockClock) -> None:
    topic = TopicInfo("orders", b"0" * 16, 1, {}, False, 0, 1)
    ref = PartitionRef(topic=topic.name, topic_id=topic.id, partition=0)
    key = state_key(ref)
    metadata, objects = MemoryMetadataStore(), MemoryObjectStore()
    # The former owner has released the partition, and it has no owner now.
    state = PartitionState(format=1, topic_id=topic.id, epoch=1)
    puts = [Put(paths.topic_key(NAMESPACE, topic.name), topic.value()), Put(key, state.SerializeToString())]
    await metadata.txn((), puts)
    taking_over = True
    deletion = _Deletion(
        topic,
        cast(Membership, SimpleNamespace(run_id="run-1", proven=True)),
        metadata,
        objects,
        namespace=NAMESPACE,
        holds=lambda _: taking_over,
    )
    with pytest.raises(Unavailable, match="orders-0 is still"):
        await deletion.run()
    assert not deletion.began
    assert PartitionState.FromString((await metadata.read_prefix(key)).items[0].value) == state
    taking_over = False
    assert await deletion.run() == 2


async def test_a_cluster_with_a_namespace_below_a_topics_prefix_keeps_its_objects(autojump_clock: MockClock) -> None:
    world = World()
    # Cluster test/orders has a topic "0" with a partition 0, so its keys begin like those of partition 0 of "orders".
    others = {paths.segment_key(f"{NAMESPACE}/orders", "0", 0, base) for base in (0, 1, 7)}
    for key in others:
        await world.objects.put_if_absent(key, b"another cluster's")
    async with world.service(retention_check_ms=10_000, cache_size=0) as (caller, catalog):
        ref = await world.topic(catalog)
        for number in range(3):
            assert await caller.durable(await caller.append(ref, batch(b"%d" % number)))
        assert (await caller.delete_records(ref, 2)).status == Status.OK
        await trio.sleep(60)
        assert others <= {info.key for info in await world.objects.list_from("")}, "retention"
    async with world.service(cache_size=0) as (caller, catalog):
        assert await caller.read_all(ref, 2) == [b"2"]
        await catalog.mark_deleting("orders")
        await catalog.wait_free("orders")
        remaining = {info.key for info in await world.objects.list_from("")}
        assert others <= remaining, "deletion"
        assert not any(key.startswith(f"{NAMESPACE}/orders/0/segment-") for key in remaining)
