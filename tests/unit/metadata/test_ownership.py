"""The ownership map: which run settled which epoch of each partition, and its notifications."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale import paths
from kafscale.metadata.interface import Delete, Put
from kafscale.metadata.memory import MemoryMetadataStore, no_answer
from kafscale.metadata.ownership import OwnershipMap
from kafscale.v1.metadata_pb2 import EpochHistory

NS = "ns"
T, U = b"t" * 16, b"u" * 16


async def settle(
    store: MemoryMetadataStore, owner: str, *epochs: int, topic: str = "t", topic_id: bytes = T, partition: int = 0
) -> None:
    entries = [EpochHistory.Entry(epoch=epoch, first_offset=10 * epoch) for epoch in epochs]
    value = EpochHistory(format=1, topic_id=topic_id, owner=owner, entries=entries)
    await store.txn((), [Put(paths.epoch_history_key(NS, topic, partition), value.SerializeToString())])
    await wait_all_tasks_blocked()


@asynccontextmanager
async def watching(store: MemoryMetadataStore) -> AsyncIterator[tuple[OwnershipMap, list[tuple[str, bytes, int]]]]:
    """The map, and the partitions that it reported as changed."""
    watched = OwnershipMap(store, NS)
    news: list[tuple[str, bytes, int]] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(watched.run)
        watched.listen(lambda key, topic: news.append((topic, *key)))
        yield watched, news
        nursery.cancel_scope.cancel()


def owner_of(watched: OwnershipMap, topic_id: bytes = T, partition: int = 0) -> tuple[str, int] | None:
    owned = watched.get(topic_id, partition)
    return None if owned is None else (owned.owner, owned.epoch)


async def test_the_owner_is_the_run_that_settled_the_last_epoch() -> None:
    store = MemoryMetadataStore()
    await settle(store, "a", 1, 4)
    async with watching(store) as (watched, news):
        assert (owner_of(watched), owner_of(watched, partition=1)) == (("a", 4), None)
        await settle(store, "b", 1, 4, 5)
        await settle(store, "a", 2, partition=1)
        assert (owner_of(watched), owner_of(watched, partition=1)) == (("b", 5), ("a", 2))
        assert news == [("t", T, 0), ("t", T, 1)]


async def test_a_recreated_topic_shares_nothing_with_the_old_one() -> None:
    store = MemoryMetadataStore()
    await settle(store, "a", 3)
    async with watching(store) as (watched, news):
        await store.txn((), [Delete(paths.epoch_history_key(NS, "t", 0))])
        await wait_all_tasks_blocked()
        assert owner_of(watched) is None
        await settle(store, "b", 4, topic_id=U)
        await settle(store, "b", 4, 5, topic_id=T)
        assert (owner_of(watched), owner_of(watched, U)) == (("b", 5), None)
        assert news == [("t", T, 0), ("t", U, 0), ("t", U, 0), ("t", T, 0)]


async def test_only_entries_that_changed_during_a_gap_are_reported_after_it(mock_clock: MockClock) -> None:
    store = MemoryMetadataStore()
    for partition in range(3):
        await settle(store, "a", 1, partition=partition)
    async with watching(store) as (watched, news):
        await wait_all_tasks_blocked()
        # The watch that is already waiting still answers, the next one does not.
        store.faults = [no_answer("watch"), no_answer("read_prefix")]
        await settle(store, "a", 1, partition=3)
        news.clear()
        await settle(store, "b", 1, 2)
        await store.txn((), [Delete(paths.epoch_history_key(NS, "t", 2))])
        await wait_all_tasks_blocked()
        assert news == []
        for _ in range(3):
            mock_clock.jump(1)
            await wait_all_tasks_blocked()
        assert [owner_of(watched, partition=partition) for partition in range(3)] == [("b", 2), ("a", 1), None]
        assert sorted(news) == [("t", T, 0), ("t", T, 2)]


async def test_keys_that_are_not_partitions_and_empty_histories_are_ignored() -> None:
    store = MemoryMetadataStore()
    await store.txn((), [Put(paths.epoch_histories_prefix(NS) + "odd", b"")])
    await settle(store, "a")
    async with watching(store) as (watched, news):
        assert owner_of(watched) is None
        await settle(store, "a", 1)
        assert owner_of(watched) == ("a", 1)
        await settle(store, "a")
        assert (owner_of(watched), news) == (None, [("t", T, 0), ("t", T, 0)])
