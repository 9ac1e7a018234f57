"""Topics are deleted by one instance while the others release their partitions."""

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


async def _used(two: Cluster) -> list[PartitionRef]:
    """A topic with a record in each partition, with partitions on every instance."""
    first = await two.world.topic(two.instances[0].catalog, partitions=PARTITIONS)
    await trio.sleep(1)
    refs = siblings(first, PARTITIONS)
    for ref in refs:
        await two.append_durably(ref, batch(b"old"))
    assert len({two.assigned(ref).address for ref in refs}) == len(two.instances)
    return refs


def _responsible(two: Cluster, refs: list[PartitionRef]) -> tuple[Instance, Instance]:
    """Return the instance that will delete the topic, and another one."""
    responsible = two.assigned(refs[0])
    return responsible, next(one for one in two.instances if one is not responsible)


async def _left(world: World) -> list[str]:
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


async def test_a_topic_of_several_owners_is_gone_at_once_and_its_name_comes_back_empty(
    autojump_clock: MockClock,
) -> None:
    async with cluster(World(settle_seconds=15), "a:1", "b:1", "c:1") as three:
        refs = await _used(three)
        began = trio.current_time()
        await three.instances[1].catalog.mark_deleting("orders")
        await three.instances[2].catalog.wait_free("orders")
        assert trio.current_time() - began < 2
        assert await _left(three.world) == []
        await _comes_back_empty(three, refs)


async def test_one_instance_deletes_and_the_others_only_give_up(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1") as two:
        refs = await _used(two)
        responsible, other = _responsible(two, refs)
        responsible.pause()
        await other.catalog.mark_deleting("orders")
        await trio.sleep(4)
        # The other one has released its partitions, and deletes nothing while the first one lives.
        assert other.caller.run_id not in (await two.owners()).values()
        assert len(await _left(two.world)) == 2 * PARTITIONS
        responsible.resume()
        await other.catalog.wait_free("orders")
        assert await _left(two.world) == []


async def test_an_upload_under_way_at_another_instance_is_waited_for(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=15)
    async with cluster(world, "a:1", "b:1") as two:
        refs = await _used(two)
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
        assert await _left(world) == []
        await _comes_back_empty(two, refs)


async def test_a_dead_instances_last_requests_are_waited_for(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=15)
    async with cluster(world, "a:1", "b:1", lease_ttl_seconds=10) as two:
        refs = await _used(two)
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
        assert await _left(world) == []


async def test_the_next_one_goes_on_where_the_one_who_deleted_died(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=15)
    async with cluster(world, "a:1", "b:1", lease_ttl_seconds=10) as two:
        refs = await _used(two)
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
        # The lease expires; after that, requests of the dead one can no longer take effect.
        assert 15 < trio.current_time() - began < 30
        assert await _left(world) == []
        await _comes_back_empty(two, refs)


async def test_a_paused_deleter_deletes_nothing_of_the_next_topic(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=15)
    async with cluster(world, "a:1", "b:1", lease_ttl_seconds=10) as two:
        refs = await _used(two)
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
        # The listing that the paused one began now shows the new topic's first segment.
        held.set()
        await trio.sleep(5)
        assert paths.segment_key(NAMESPACE, "orders", 0, 0) in await _left(world)
        responsible.resume()
        await trio.sleep(5)
        assert await two.read_all(made[0]) == [b"new"]


async def test_what_a_dead_deleter_had_sent_does_not_free_the_name(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=15)
    async with cluster(world, "a:1", "b:1", lease_ttl_seconds=10) as two:
        refs = await _used(two)
        responsible, other = _responsible(two, refs)
        late = MetadataFault(method="txn", key=state_key(refs[0]), delay=20)

        def plan(call: Call) -> None:
            # The last delete: after it, the partitions' keys are deleted and the name is free.
            if call.kind == "delete_many" and call.key == paths.topic_object_key(NAMESPACE, "orders"):
                world.metadata.faults = [late]

        world.objects.plan = plan
        await other.catalog.mark_deleting("orders")
        with trio.fail_after(10):
            while late.times:  # noqa: ASYNC110  the store has no event for it
                await trio.sleep(0.01)
        responsible.pause()
        # The lease expires. The other one deletes until no request of the first one can take effect; then that does.
        await trio.sleep(21)
        await responsible.kill()
        await two.start(responsible.address)
        await trio.sleep(2)
        assert "orders" in other.catalog.view.by_name
        await other.catalog.wait_free("orders")
        await _comes_back_empty(two, refs)


async def test_a_delete_without_an_answer_is_waited_for(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=15)
    async with cluster(world, "a:1", "b:1") as two:
        refs = await _used(two)
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


async def test_nothing_is_deleted_while_a_take_over_of_this_run_may_release_the_partition(
    autojump_clock: MockClock,
) -> None:
    topic = TopicInfo("orders", b"0" * 16, 1, {}, False, 0, 1)
    ref = PartitionRef(topic=topic.name, topic_id=topic.id, partition=0)
    key = state_key(ref)
    metadata, objects = MemoryMetadataStore(), MemoryObjectStore()
    # The former owner is gone, and the partition has no owner now.
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


async def test_a_cluster_whose_namespace_lies_below_a_topics_prefix_keeps_its_objects(
    autojump_clock: MockClock,
) -> None:
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
        left = {info.key for info in await world.objects.list_from("")}
        assert others <= left, "deletion"
        assert not any(key.startswith(f"{NAMESPACE}/orders/0/segment-") for key in left)
