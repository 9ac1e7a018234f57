"""Changes of a topic's partition count and configs: compare-and-set steps, retried until their outcome is known."""

from collections.abc import Mapping

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.metadata.interface import Put
from kafscale.metadata.memory import Fault, MemoryMetadataStore, lost_answer, no_answer
from kafscale.metadata.topic_values import NotMorePartitions, TopicInfo, UnknownTopic
from kafscale.metadata.topics import TopicCatalog
from tests.unit.metadata.test_topics import NAMESPACE, catalog, make, open_catalog, store

__all__ = ["catalog", "store"]  # fixtures


async def grow_elsewhere(store: MemoryMetadataStore, name: str, partitions: int) -> None:
    """Change the partition count as another gateway does."""
    key = paths.topic_key(NAMESPACE, name)
    item = await store.get(key)
    assert item is not None
    await store.txn([], [Put(key, TopicInfo.read(item).grown(partitions).value())])


async def test_a_topic_gets_more_partitions_and_every_catalogue_sees_them(
    store: MemoryMetadataStore, catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    made = await make(catalog, "orders", 2)
    async with open_catalog(store) as other:
        grown = await catalog.grow(made.id, 5)
        assert catalog.view.live("orders") == grown
        assert (grown.partitions, grown.id, grown.configs, grown.epoch_floor) == (5, made.id, made.configs, 0)
        while (seen := other.view.live("orders")) != grown:
            assert seen == made
            await other.wait_change(other.view)


@pytest.mark.parametrize(("count", "message"), [(2, "already has 2"), (1, "currently has 2 .* 1 would not"), (0, "0")])
async def test_a_topic_never_gets_fewer_partitions(
    catalog: TopicCatalog, count: int, message: str, autojump_clock: MockClock
) -> None:
    made = await make(catalog, "orders", 2)
    with pytest.raises(NotMorePartitions, match=message):
        await catalog.grow(made.id, count)
    assert catalog.view.live("orders") == made


async def test_two_concurrent_changes_of_the_partition_count_never_reduce_it(
    store: MemoryMetadataStore, catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    made = await make(catalog, "orders", 1)
    # The other step happens between this one's read and its write.
    store.faults = [Fault(method="txn", delay=5)]
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _() -> None:
            with pytest.raises(NotMorePartitions, match="currently has 9"):
                await catalog.grow(made.id, 4)

        await trio.testing.wait_all_tasks_blocked()
        await catalog.grow(made.id, 9)
    found = catalog.view.live("orders")
    assert found is not None
    assert found.partitions == 9


@pytest.mark.parametrize(
    "fault",
    [lost_answer("txn"), lost_answer("txn", times=3), no_answer("txn"), no_answer("get"), no_answer(times=4)],
)
async def test_growing_is_safe_to_retry_whichever_answer_is_missing(
    store: MemoryMetadataStore, catalog: TopicCatalog, fault: Fault, autojump_clock: MockClock
) -> None:
    made = await make(catalog, "orders", 2)
    store.faults = [fault]
    grown = await catalog.grow(made.id, 3)
    assert catalog.view.live("orders") == grown
    assert grown.partitions == 3


async def test_growing_without_an_answer_has_succeeded_even_if_another_went_further(
    store: MemoryMetadataStore, catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    made = await make(catalog, "orders", 2)
    store.faults = [Fault(method="get"), lost_answer("txn"), Fault(method="get", delay=5)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(catalog.grow, made.id, 3)
        await trio.sleep(1)
        await grow_elsewhere(store, "orders", 7)
    found = catalog.view.live("orders")
    assert found is not None
    assert found.partitions == 7


async def test_configs_are_changed_relative_to_the_stored_ones(
    store: MemoryMetadataStore, catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    made = await make(catalog, "orders")
    store.faults = [Fault(method="txn", delay=5)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(catalog.configure, made.id, lambda configs: {**configs, "flush.ms": "1"})
        await trio.testing.wait_all_tasks_blocked()
        await catalog.configure(made.id, lambda configs: {**configs, "segment.bytes": "99"})
    found = catalog.view.live("orders")
    assert found is not None
    assert found.configs == {"retention.ms": "5", "flush.ms": "1", "segment.bytes": "99"}


@pytest.mark.parametrize("fault", [lost_answer("txn"), lost_answer("txn", times=3), no_answer("txn"), no_answer("get")])
async def test_configuring_is_safe_to_retry_whichever_answer_is_missing(
    store: MemoryMetadataStore, catalog: TopicCatalog, fault: Fault, autojump_clock: MockClock
) -> None:
    made = await make(catalog, "orders")
    store.faults = [fault]
    done = await catalog.configure(made.id, lambda configs: {"flush.ms": "1"})
    assert catalog.view.live("orders") == done
    assert done.configs == {"flush.ms": "1"}


async def test_nothing_is_written_if_nothing_changes(
    store: MemoryMetadataStore, catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    made = await make(catalog, "orders")
    assert await catalog.configure(made.id, dict) == made
    item = await store.get(paths.topic_key(NAMESPACE, "orders"))
    assert item is not None
    assert item.mod_revision == made.mod_revision


async def test_an_error_about_the_stored_configs_changes_nothing(
    catalog: TopicCatalog, autojump_clock: MockClock
) -> None:
    made = await make(catalog, "orders")

    def refuse(configs: Mapping[str, str]) -> Mapping[str, str]:
        raise NotMorePartitions(str(sorted(configs)))

    with pytest.raises(NotMorePartitions, match=r"retention\.ms"):
        await catalog.configure(made.id, refuse)
    assert catalog.view.live("orders") == made


async def test_a_deleted_topic_can_no_longer_be_changed(catalog: TopicCatalog, autojump_clock: MockClock) -> None:
    made = await make(catalog, "orders")
    hidden = await catalog.mark_deleting("orders")
    with pytest.raises(UnknownTopic):
        await catalog.grow(made.id, 5)
    with pytest.raises(UnknownTopic):
        await catalog.configure(made.id, dict)
    with pytest.raises(UnknownTopic):
        await catalog.grow(bytes(16), 5)
    assert catalog.view.by_name["orders"] == hidden
