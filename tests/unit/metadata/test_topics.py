import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import CorruptData, Refused, Unavailable
from kafscale.metadata.interface import Compacted, KeyValue, Put, Snapshot
from kafscale.metadata.memory import Fault, MemoryMetadataStore, lost_answer, no_answer
from kafscale.metadata.topic_values import (
    NEW_CLUSTER_STATE_FORMAT,
    ClusterInfo,
    InvalidTopicName,
    TopicDeleting,
    TopicExists,
    TopicInfo,
    UnknownTopic,
)
from kafscale.metadata.topics import TopicCatalog
from kafscale.v1 import metadata_pb2

NAMESPACE = "test"
DELETER = paths.member_key(NAMESPACE, "storage", "deleter")
_ids = (number.to_bytes(16, "big") for number in itertools.count(1))


def new_id() -> bytes:
    return next(_ids)


@asynccontextmanager
async def open_catalog(store: MemoryMetadataStore) -> AsyncIterator[TopicCatalog]:
    catalog = TopicCatalog(store, NAMESPACE)
    async with trio.open_nursery() as nursery:
        await nursery.start(catalog.run)
        yield catalog
        nursery.cancel_scope.cancel()


@pytest.fixture
def store() -> MemoryMetadataStore:
    return MemoryMetadataStore()


@pytest.fixture
async def catalog(store: MemoryMetadataStore, autojump_clock: MockClock) -> AsyncIterator[TopicCatalog]:
    await store.txn((), [Put(DELETER, b"")])
    async with open_catalog(store) as catalog:
        yield catalog


async def make(catalog: TopicCatalog, name: str, partitions: int = 1) -> TopicInfo:
    return await catalog.create(name, partitions, {"retention.ms": "5"}, now_ms=7, topic_id=new_id())


async def delete(catalog: TopicCatalog, name: str, highest_epoch: int) -> None:
    hidden = await catalog.mark_deleting(name)
    await catalog.finish_delete(name, hidden.id, highest_epoch, deleter=DELETER)


async def test_a_new_topic_is_in_the_view_when_create_returns(catalog: TopicCatalog, autojump_clock: MockClock) -> None:
    made = await catalog.create("orders", 3, {"retention.ms": "5"}, now_ms=7, topic_id=b"i" * 16)
    assert made == TopicInfo("orders", b"i" * 16, 3, {"retention.ms": "5"}, True, 0, 7, made.mod_revision)
    assert catalog.view.live("orders") == catalog.view.live_by_id(b"i" * 16) == made


async def test_every_catalogue_sees_it_and_views_do_not_change_under_their_readers(
    store: MemoryMetadataStore, catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    async with open_catalog(store) as other:
        before = other.view
        await make(catalog, "orders")
        after = await other.wait_change(before)
        assert (before.live("orders"), after.live("orders")) == (None, catalog.view.live("orders"))
    async with open_catalog(store) as late:
        assert late.view.by_name == catalog.view.by_name


async def test_the_store_gets_no_requests_while_nothing_changes(autojump_clock: MockClock) -> None:
    class Counting(MemoryMetadataStore):
        reads = 0

        async def read_prefix(self, prefix: str) -> Snapshot:
            self.reads += 1
            return await super().read_prefix(prefix)

        async def get(self, key: str) -> KeyValue | None:
            self.reads += 1
            return await super().get(key)

    store = Counting()
    async with open_catalog(store) as catalog, open_catalog(store) as other:
        before = store.reads
        await trio.sleep(60)
        assert store.reads == before
        made = await make(other, "orders")
        await trio.testing.wait_all_tasks_blocked()
        assert catalog.view.live("orders") == made


async def test_of_several_racing_creates_of_a_name_one_succeeds(
    store: MemoryMetadataStore, catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    outcomes: list[object] = []

    async def race(one: TopicCatalog) -> None:
        try:
            outcomes.append(await make(one, "orders"))
        except TopicExists:
            outcomes.append(None)

    async with open_catalog(store) as other, trio.open_nursery() as nursery:
        for one in (catalog, other) * 4:
            nursery.start_soon(race, one)
    assert outcomes.count(None) == 7


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "a~"])
async def test_kafkas_rules_for_names(catalog: TopicCatalog, name: str, autojump_clock: MockClock) -> None:
    with pytest.raises(InvalidTopicName):
        await make(catalog, name)


async def test_names_that_differ_in_dot_and_underscore_only_collide(
    catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    await make(catalog, "a.b_c")
    with pytest.raises(InvalidTopicName, match=r"collides with existing topic: a\.b_c"):
        await make(catalog, "a_b.c")
    with pytest.raises(TopicExists):
        await make(catalog, "a.b_c")
    await make(catalog, "a-b_c")


async def test_a_name_is_not_free_until_its_deletion_is_finished(
    catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    first = await make(catalog, "orders")
    hidden = await catalog.mark_deleting("orders")
    assert (hidden.id, hidden.live, catalog.view.live("orders")) == (first.id, False, None)
    with pytest.raises(TopicDeleting):
        await make(catalog, "orders")
    with pytest.raises(UnknownTopic):
        await catalog.mark_deleting("orders")

    freed = trio.Event()

    async def wait() -> None:
        await catalog.wait_free("orders")
        freed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not freed.is_set()
        await catalog.finish_delete("orders", first.id, 5, deleter=DELETER)
    second = await make(catalog, "orders")
    assert second.id != first.id


async def test_a_recreated_topic_starts_above_every_epoch_of_the_old_one(
    store: MemoryMetadataStore, catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    assert (await make(catalog, "orders")).epoch_floor == 0
    await delete(catalog, "orders", 9)
    again = await make(catalog, "orders")
    assert again.epoch_floor >= 9
    assert (await make(catalog, "other")).epoch_floor >= 9
    await delete(catalog, "other", 3)
    assert (await make(catalog, "third")).epoch_floor >= 9


async def test_the_end_of_an_old_deletion_does_not_touch_the_new_topic(
    store: MemoryMetadataStore, catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    old = await make(catalog, "orders")
    await delete(catalog, "orders", 1)
    new = await make(catalog, "orders")
    state = paths.partition_state_key(NAMESPACE, "orders", 0)
    await store.txn([], [Put(state, b"new")])
    await catalog.finish_delete("orders", old.id, 50, deleter=DELETER)
    assert catalog.view.live("orders") == new
    assert await store.get(state) is not None
    with pytest.raises(ValueError, match="not being deleted"):
        await catalog.finish_delete("orders", new.id, 50, deleter=DELETER)


async def test_a_resumed_deletion_keeps_the_epochs_that_only_its_first_half_knew(
    store: MemoryMetadataStore, catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    first = await make(catalog, "orders")
    await catalog.mark_deleting("orders")
    store.faults = [Fault(method="txn", key=paths.partition_state_key(NAMESPACE, "orders", 0), hang=True)]
    with trio.move_on_after(60) as scope:
        await catalog.finish_delete("orders", first.id, 9, deleter=DELETER)
    assert scope.cancelled_caught
    await catalog.finish_delete("orders", first.id, 0, deleter=DELETER)
    assert (await make(catalog, "orders")).epoch_floor >= 9


async def test_two_processes_that_finish_a_deletion_spare_a_topic_created_in_between(
    store: MemoryMetadataStore, catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    old = (await make(catalog, "orders")).id
    await catalog.mark_deleting("orders")
    cluster = paths.cluster_key(NAMESPACE)
    # The first one stops after it has deleted the partitions' keys, before it reads the cluster again.
    store.faults = [Fault(method="get", key=cluster), Fault(method="get", key=cluster, delay=10)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(catalog.finish_delete, "orders", old, 1, deleter=DELETER))
        await trio.testing.wait_all_tasks_blocked()
        await catalog.finish_delete("orders", old, 1, deleter=DELETER)
        new = await make(catalog, "orders")
    stored = await store.get(paths.topic_key(NAMESPACE, "orders"))
    assert stored is not None
    assert TopicInfo.read(stored) == new


async def test_a_finished_deletion_leaves_no_key_of_the_topic_and_all_of_the_others(
    store: MemoryMetadataStore, catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    await make(catalog, "orders", partitions=200)
    await make(catalog, "orders-2", partitions=1)
    for topic, partitions in (("orders", 200), ("orders-2", 1)):
        for partition in range(partitions):
            for key in (paths.partition_state_key, paths.epoch_history_key):
                await store.txn([], [Put(key(NAMESPACE, topic, partition), b"")])
    await delete(catalog, "orders", 1)
    assert [item.key for item in (await store.read_prefix("")).items] == [
        paths.cluster_key(NAMESPACE),
        paths.epoch_history_key(NAMESPACE, "orders-2", 0),
        DELETER,
        paths.partition_state_key(NAMESPACE, "orders-2", 0),
        paths.topic_key(NAMESPACE, "orders-2"),
    ]


Make = Callable[[], Fault]
_TROUBLES: list[Make] = [lambda: no_answer("txn"), lambda: lost_answer("txn"), lambda: lost_answer("txn", times=2)]
_READ_TROUBLES: list[Make] = [lambda: no_answer("get"), lambda: no_answer(times=3)]


@pytest.mark.parametrize("trouble", _TROUBLES + _READ_TROUBLES)
@pytest.mark.parametrize("calls_before", range(6))
async def test_every_step_is_safe_to_retry_whichever_answer_is_missing(
    store: MemoryMetadataStore, catalog: TopicCatalog, trouble: Make, calls_before: int, autojump_clock: MockClock
) -> None:
    async def troubled(step: Callable[[], Awaitable[object]]) -> None:
        fault = trouble()
        store.faults = [Fault(method=fault.method, times=calls_before), fault]
        await step()
        store.faults = []

    first = new_id()
    await troubled(lambda: catalog.create("orders", 100, {}, now_ms=1, topic_id=first))
    found = catalog.view.live("orders")
    assert found is not None
    assert found.id == first
    await troubled(lambda: catalog.mark_deleting(first))
    assert catalog.view.live("orders") is None
    await troubled(lambda: catalog.finish_delete("orders", first, 4, deleter=DELETER))
    assert "orders" not in catalog.view.by_name
    assert (await catalog.cluster()).epoch_floor == 4


async def test_a_retried_create_does_not_restore_a_topic_that_others_may_have_deleted(
    store: MemoryMetadataStore, catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    await catalog.cluster()

    async def delete_at_once() -> None:
        view = catalog.view
        while view.live("orders") is None:
            view = await catalog.wait_change(view)
        await delete(catalog, "orders", 0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete_at_once)
        await trio.testing.wait_all_tasks_blocked()
        store.faults = [lost_answer("txn")]
        with pytest.raises(Unavailable):
            await make(catalog, "orders")
    assert catalog.view.by_name == {}


async def test_a_delete_retried_after_a_lost_answer_spares_the_next_topic_of_the_name(
    store: MemoryMetadataStore, catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    first = await make(catalog, "orders")
    made: list[TopicInfo] = []

    async def finish_and_recreate() -> None:
        view = catalog.view
        while view.live("orders") is not None:
            view = await catalog.wait_change(view)
        await catalog.finish_delete("orders", first.id, 1, deleter=DELETER)
        made.append(await make(catalog, "orders"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(finish_and_recreate)
        await trio.testing.wait_all_tasks_blocked()
        store.faults = [lost_answer("txn")]
        await catalog.mark_deleting("orders")
    assert catalog.view.live("orders") == made[0]


@pytest.mark.parametrize("error", [Unavailable("no answer"), Compacted("gone")])
async def test_a_broken_watch_is_resumed_without_missing_a_change(
    store: MemoryMetadataStore, catalog: TopicCatalog, error: Exception, autojump_clock: MockClock
) -> None:
    await make(catalog, "kept")
    await make(catalog, "gone")
    async with open_catalog(store) as other:
        # `other` waits inside the store. The watch then fails, and so do its first attempts to read again.
        store.faults = [Fault(method="watch", times=2, after=error), no_answer("read_prefix", times=3)]
        await trio.testing.wait_all_tasks_blocked()
        await delete(catalog, "gone", 1)
        await make(catalog, "new")
        for one in (catalog, other):
            while sorted(one.view.by_name) != ["kept", "new"]:
                await one.wait_change(one.view)


async def test_a_store_that_refuses_at_start_stops_the_start(store: MemoryMetadataStore) -> None:
    store.faults = [Fault(method="read_prefix", before=Refused("permission denied"))]
    with pytest.raises(BaseExceptionGroup) as caught:
        async with open_catalog(store):
            pass
    assert caught.group_contains(Refused)


async def test_the_cluster_has_one_id_whoever_asks_first(store: MemoryMetadataStore, autojump_clock: MockClock) -> None:
    seen: set[str] = set()

    async def ask(catalog: TopicCatalog) -> None:
        seen.add((await catalog.cluster()).cluster_id)

    store.faults = [Fault(method="txn", delay=1), lost_answer("txn")]
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask, TopicCatalog(store, NAMESPACE))
    [cluster_id] = seen
    assert len(cluster_id) == 22


@pytest.mark.parametrize("value", [b"\xff\xff", b"", metadata_pb2.Topic(format=2, name="orders").SerializeToString()])
async def test_a_value_that_this_release_cannot_read_is_never_skipped(store: MemoryMetadataStore, value: bytes) -> None:
    await store.txn([], [Put(paths.topic_key(NAMESPACE, "orders"), value)])
    with pytest.raises(BaseExceptionGroup) as caught:
        async with open_catalog(store):
            pass
    assert caught.group_contains(CorruptData)


async def test_the_state_format_is_kept_when_a_topic_is_deleted(
    store: MemoryMetadataStore, catalog: TopicCatalog
) -> None:
    key = paths.cluster_key(NAMESPACE)
    assert (await catalog.cluster()).state_format == NEW_CLUSTER_STATE_FORMAT
    await store.txn((), [Put(key, ClusterInfo("A" * 22, 0, state_format=2).value())])
    await catalog.create("orders", 1, {}, now_ms=1, topic_id=new_id())
    await delete(catalog, "orders", 4)
    assert await catalog.cluster() == ClusterInfo("A" * 22, 4, state_format=2)
