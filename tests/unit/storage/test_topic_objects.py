"""Topic objects: copies of topics in the bucket, written by one instance after every change, and never reverted."""

from dataclasses import replace

import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.catalog.page import parse_page
from kafscale.catalog.topic_object import TopicObject, parse_topic_object
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Delete, Put, Unchanged
from kafscale.metadata.topic_values import TopicInfo
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.interface import ObjectNotFound
from kafscale.objects.memory import Call, Fault, MemoryObjectStore
from kafscale.segment.format import FOOTER_SIZE, SegmentFooter
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.upkeep.topic_objects import SECONDS_BETWEEN
from tests.support.storage.cluster import Cluster, Instance, cluster
from tests.support.storage.harness import NAMESPACE, World, siblings, state_key
from tests.unit.storage.test_catalogs import START, produce
from tests.unit.storage.test_retention import CHECK, truncate

SOON = 2 * SECONDS_BETWEEN
KEY = paths.topic_object_key(NAMESPACE, "orders")


async def stored(world: World, name: str = "orders") -> TopicObject | None:
    try:
        return parse_topic_object((await world.objects.get(paths.topic_object_key(NAMESPACE, name))).body)
    except ObjectNotFound:
        return None


async def configure(world: World, name: str, configs: dict[str, str]) -> None:
    """Change the configs of a topic in the metadata store."""
    key = paths.topic_key(NAMESPACE, name)
    item = await world.metadata.get(key)
    assert item is not None
    changed = replace(TopicInfo.read(item), configs=configs)
    assert (await world.metadata.txn([Unchanged(key, item.mod_revision)], [Put(key, changed.value())])).succeeded


def writes(world: World) -> int:
    return sum(call.kind in ("put_if_absent", "replace_if_match") and call.key == KEY for call in world.objects.calls)


async def test_the_topic_object_follows_creation_configs_log_starts_and_deletion(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog, configs={"retention.bytes": "1000000"})
        await trio.sleep(SOON)
        made = await stored(world)
        assert made is not None
        assert (made.id, made.partitions, made.configs) == (ref.topic_id, 3, {"retention.bytes": "1000000"})
        assert (made.log_starts, made.created_ms) == ((0, 0, 0), world.now_ms)

        await configure(world, "orders", {"retention.ms": "7200000"})
        await trio.sleep(SOON)
        configured = await stored(world)
        assert configured is not None
        assert configured.configs == {"retention.ms": "7200000"}
        assert configured.metadata_revision > made.metadata_revision

        second = siblings(ref, 2)[1]
        await produce(caller, second, [world.now_ms, world.now_ms])
        assert await truncate(caller, second, 1) == (Status.OK, 1)
        await trio.sleep(SOON)
        moved = await stored(world)
        assert moved is not None
        assert moved.log_starts == (0, 1, 0)

        await catalog.mark_deleting("orders")
        with trio.fail_after(60):
            await catalog.wait_free("orders")
        assert await stored(world) is None
        await trio.sleep(CHECK + SOON)
        assert await stored(world) is None


async def test_creating_a_topic_does_not_wait_for_its_object(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await _while_topic_objects_fail(world, catalog)
        assert (await caller.fetch(ref, 0)).status == Status.OK
        world.objects.plan = None
        assert await stored(world) is None
        await trio.sleep(SOON)
        assert await stored(world) is not None


async def test_changes_to_a_topic_share_writes(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (_, catalog):
        await world.topic(catalog)
        await trio.sleep(SOON)
        world.objects.calls.clear()
        for i in range(100):
            await configure(world, "orders", {"retention.ms": str(10_000_000 + i)})
            await trio.sleep(0.2)
        await trio.sleep(SOON)
        assert 1 <= writes(world) <= 20 / SECONDS_BETWEEN + 2
        found = await stored(world)
        assert found is not None
        assert found.configs == {"retention.ms": "10000099"}


async def test_unchanged_topics_cause_no_requests_to_the_object_store(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (_, catalog):
        await world.topic(catalog)
        await trio.sleep(SOON + CHECK)
        world.objects.calls.clear()
        await trio.sleep(10 * CHECK)
        assert not world.objects.calls
    async with world.service():
        await trio.sleep(SOON)
        # The object is read once after a start, and not written.
        assert [call.kind for call in world.objects.calls if call.key == KEY] == ["get"]


async def test_a_topic_object_missed_before_a_kill_is_written_after_it(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (_, catalog):
        await _while_topic_objects_fail(world, catalog)
    world.objects.plan = None
    async with world.service():
        await trio.sleep(SOON)
        assert await stored(world) is not None


async def test_a_newer_topic_object_is_kept_and_a_damaged_one_replaced(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (_, catalog):
        await world.topic(catalog)
        await trio.sleep(SOON)
        found = await stored(world)
        assert found is not None
        newer = replace(found, metadata_revision=1_000_000, configs={"retention.ms": "99999999"})
        await world.objects.replace_if_match(KEY, newer.encode(), (await world.objects.head(KEY)).etag)
        await configure(world, "orders", {"retention.ms": "7200000"})
        await trio.sleep(SOON)
        assert await stored(world) == newer
        await world.objects.replace_if_match(KEY, b"{", (await world.objects.head(KEY)).etag)
        await configure(world, "orders", {"retention.ms": "7300000"})
        await trio.sleep(SOON)
        found = await stored(world)
        assert found is not None
        assert found.configs == {"retention.ms": "7300000"}


async def test_one_instance_writes_topic_objects_and_another_continues_when_it_dies(autojump_clock: MockClock) -> None:
    world, second = World(), MemoryObjectStore()
    # Both stores have the same objects and count their own requests.
    second._objects = world.objects._objects
    async with world.service(address="a:1") as (_, catalog):
        await _check_single_writer(world, second, catalog)


async def _check_single_writer(world: World, second: MemoryObjectStore, catalog: TopicCatalog) -> None:
    async with world.service(address="b:1", objects=second):
        names = [f"topic-{i}" for i in range(12)]
        for name in names:
            await world.topic(catalog, name)
        await trio.sleep(SOON)
        for name in names:
            key = paths.topic_object_key(NAMESPACE, name)
            by = [
                sum(call.kind == "put_if_absent" and call.key == key for call in store.calls)
                for store in (world.objects, second)
            ]
            assert sorted(by) == [0, 1]
        world.objects.calls.clear()
    await trio.sleep(SOON)
    for name in names:
        await configure(world, name, {"retention.ms": "7200000"})
    await trio.sleep(4 * SOON)
    for name in names:
        found = await stored(world, name)
        assert found is not None
        assert found.configs == {"retention.ms": "7200000"}


async def test_a_topic_object_stored_after_the_deletion_is_deleted_later(autojump_clock: MockClock) -> None:
    world = World()
    async with cluster(world, "a:1") as some:
        (a,) = some.instances
        late = await _delete_by_another(world, some, a)
        late.set()
        await trio.sleep(1)
        assert await stored(world) is not None
        await trio.sleep(2 * CHECK)
        assert await stored(world) is None


async def test_a_recreated_topic_keeps_its_object_when_a_late_one_is_deleted(autojump_clock: MockClock) -> None:
    world = World()
    async with cluster(world, "a:1") as some:
        (a,) = some.instances
        late = await _delete_by_another(world, some, a)
        late.set()
        deleting = trio.Event()

        def plan(call: Call) -> Fault | None:
            if (call.kind, call.key) != ("delete_many", KEY):
                return None
            deleting.set()
            return Fault(delay=SOON)

        world.objects.plan = plan
        with trio.fail_after(2 * CHECK):
            await deleting.wait()
        # The topic is created during the delete, and its object stored by an instance other than the deleting one.
        while (
            assigned := some.view.owner((world.now_ms + 1).to_bytes(16, "big"), 0)
        ) is None or assigned.address != "a:1":
            world.now_ms += 1
        ref = await world.topic(a.catalog)
        await trio.sleep(SOON / 2)
        assert await stored(world) is not None
        await trio.sleep(2 * SOON)
        found = await stored(world)
        assert found is not None
        assert found.id == ref.topic_id


async def test_an_object_of_an_unknown_topic_is_kept(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (_, catalog):
        await world.topic(catalog)
        await trio.sleep(SOON)
    # As with metadata that was restored from a backup.
    item = await world.metadata.get(paths.topic_key(NAMESPACE, "orders"))
    assert item is not None
    async with world.service():
        await world.metadata.txn((), [Delete(item.key)])
        await trio.sleep(3 * CHECK)
        assert await stored(world) is not None


async def _delete_by_another(world: World, some: Cluster, a: Instance) -> trio.Event:
    """Delete a topic while ``a`` still puts its object. The put waits for the returned event."""
    late, puts = trio.Event(), 0

    def plan(call: Call) -> Fault | None:
        nonlocal puts
        if (call.kind, call.key) != ("put_if_absent", KEY):
            return None
        puts += 1
        return Fault(hold=late) if puts == 1 else None

    world.objects.plan = plan
    ref = await world.topic(a.catalog, partitions=1)
    await trio.sleep(1)
    assert puts == 1
    for number in range(2, 20):
        started = await some.start(f"b:{number}")
        if some.assigned(ref) is started:
            break
        await started.stop()
    await a.catalog.mark_deleting("orders")
    with trio.fail_after(60):
        await a.catalog.wait_free("orders")
    assert await stored(world) is None
    return late


async def test_the_bucket_alone_describes_topics_and_their_logs(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        orders = await world.topic(catalog, configs={"cleanup.policy": "delete"})
        await world.topic(catalog, "empty", partitions=1)
        gone = await world.topic(catalog, "gone", partitions=1)
        for ref, count in ((orders, 70), (siblings(orders, 3)[2], 5), (gone, 2)):
            await produce(caller, ref, range(START, START + count))
        assert await truncate(caller, orders, 3) == (Status.OK, 3)
        await catalog.mark_deleting("gone")
        await catalog.wait_free("gone")
        await trio.sleep(SOON)
        topics = {topic.name: topic for topic in catalog.view.by_name.values()}
    topics_found = await _read_topics(world.objects)
    assert topics_found.keys() == topics.keys() == {"orders", "empty"}
    for name, topic in topics.items():
        found, ends = topics_found[name]
        assert (found.id, found.partitions, found.configs) == (topic.id, topic.partitions, topic.configs)
        for index in range(topic.partitions):
            item = await world.metadata.get(state_key(PartitionRef(topic=name, partition=index)))
            state = PartitionState.FromString(item.value) if item else PartitionState()
            assert (found.log_starts[index], ends[index]) == (state.log_start, state.high_watermark)
    assert topics_found["orders"][0].log_starts == (3, 0, 0)
    assert topics_found["orders"][1] == [70, 0, 5]


async def _read_topics(objects: MemoryObjectStore) -> dict[str, tuple[TopicObject, list[int]]]:
    """Return each topic and the ends of its partitions, from the objects alone."""
    topics_found = {}
    for info in await objects.list_from(paths.topic_objects_prefix(NAMESPACE)):
        found = parse_topic_object((await objects.get(info.key)).body)
        assert info.key == paths.topic_object_key(NAMESPACE, found.name)
        ends = [await _end(objects, found.name, index, log_start) for index, log_start in enumerate(found.log_starts)]
        topics_found[found.name] = (found, ends)
    return topics_found


async def _end(objects: MemoryObjectStore, topic: str, partition: int, log_start: int) -> int:
    """Return the end of a log, from the last page and the footers of the segments after it."""
    end, after = log_start, ""
    pages = await objects.list_from(paths.catalog_prefix(NAMESPACE, topic, partition))
    if pages:
        end = parse_page((await objects.get(pages[-1].key)).body).segments[-1].next_offset
        after = paths.segment_key(NAMESPACE, topic, partition, end - 1)
    for info in await objects.list_from(paths.partition_prefix(NAMESPACE, topic, partition), after):
        if info.key.endswith(".kfs"):
            footer = await objects.get_range(info.key, info.size - FOOTER_SIZE, FOOTER_SIZE)
            end = SegmentFooter.parse(footer).last_offset + 1
    return end


async def _while_topic_objects_fail(world: World, catalog: TopicCatalog) -> PartitionRef:
    world.objects.plan = lambda call: Fault(error=Unavailable("down")) if call.key == KEY else None
    with trio.fail_after(1):
        ref = await world.topic(catalog)
    await trio.sleep(1)
    return ref
