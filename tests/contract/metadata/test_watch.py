"""Watches and compaction, on every implementation."""

import pytest
import trio

from kafscale.metadata.interface import Compacted, Delete, Event, KeyValue, MetadataStore, Put


async def test_a_watch_returns_past_and_future_changes(store: MetadataStore) -> None:
    first = await store.txn([], [Put("w/a", b"1")])
    second = await store.txn([], [Delete("w/a")])
    async with store.watch("w/", first.revision) as watch:
        assert await watch.next() == (
            Event("w/a", KeyValue("w/a", b"1", first.revision, first.revision), first.revision),
        )
        assert await watch.next() == (Event("w/a", None, second.revision),)
        third = await store.txn([], [Put("w/b", b"2")])
        assert [(event.key, event.revision) for event in await watch.next()] == [("w/b", third.revision)]


async def test_a_watch_from_after_a_snapshot_repeats_nothing_of_it(store: MetadataStore) -> None:
    await store.txn([], [Put("w/a", b"1")])
    snapshot = await store.read_prefix("w/")
    later = await store.txn([], [Put("w/a", b"2")])
    async with store.watch("w/", snapshot.revision + 1) as watch:
        assert [event.revision for event in await watch.next()] == [later.revision]


async def test_all_changes_of_one_revision_are_one_batch_and_of_the_prefix_only(store: MetadataStore) -> None:
    await store.txn([], [Put("w/gone", b"")])
    both = await store.txn([], [Put("w/b", b"1"), Put("v", b"2"), Delete("w/gone"), Put("w/a", b"3"), Put("x", b"4")])
    async with store.watch("w/", both.revision) as watch:
        batch = await watch.next()
    assert {event.key: event.value and event.value.value for event in batch} == {
        "w/a": b"3",
        "w/b": b"1",
        "w/gone": None,
    }
    assert {event.revision for event in batch} == {both.revision}


async def test_a_waiting_watch_wakes_for_its_prefix_only_and_misses_nothing(store: MetadataStore) -> None:
    seen: list[bytes] = []
    start = (await store.txn([], [Put("other", b"")])).revision + 1

    async def follow(task_status: trio.TaskStatus[None]) -> None:
        async with store.watch("w/", start) as watch:
            task_status.started()
            while len(seen) < 50:
                seen.extend(event.value.value for event in await watch.next() if event.value)

    async with trio.open_nursery() as nursery:
        await nursery.start(follow)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(50):
            await store.txn([], [Put("other", b"%d" % number)])
            await store.txn([], [Put("w/a", b"%d" % number)])
    assert seen == [b"%d" % number for number in range(50)]


async def test_two_watches_of_one_prefix_both_get_everything(store: MetadataStore) -> None:
    start = (await store.read_prefix("")).revision + 1
    async with store.watch("w/", start) as one, store.watch("w/", start) as two:
        for number in range(3):
            await store.txn([], [Put("w/a", b"%d" % number)])
        assert [await one.next() for _ in range(3)] == [await two.next() for _ in range(3)]


async def test_a_watch_from_before_a_compaction_raises_compacted(store: MetadataStore) -> None:
    first = await store.txn([], [Put("w/a", b"1")])
    second = await store.txn([], [Put("w/a", b"2")])
    third = await store.txn([], [Put("w/a", b"3")])
    await store.compact(0)
    await store.compact(second.revision)
    with pytest.raises(Compacted):
        async with store.watch("w/", first.revision) as watch:
            await watch.next()
    async with store.watch("w/", third.revision) as watch:
        assert [event.revision for event in await watch.next()] == [third.revision]
    assert [item.value for item in (await store.read_prefix("")).items] == [b"3"]


async def test_a_compaction_beyond_the_newest_revision_discards_all_history(store: MetadataStore) -> None:
    first = await store.txn([], [Put("w/a", b"1")])
    second = await store.txn([], [Put("w/a", b"2")])
    await store.compact(second.revision + 1000)
    await store.compact(first.revision)
    with pytest.raises(Compacted):
        async with store.watch("w/", first.revision) as watch:
            await watch.next()
    third = await store.txn([], [Put("w/a", b"3")])
    async with store.watch("w/", third.revision) as watch:
        assert [event.revision for event in await watch.next()] == [third.revision]


@pytest.mark.parametrize("from_revision", [0, 1])
async def test_a_watch_on_an_untouched_store_from_its_beginning_waits(store: MetadataStore, from_revision: int) -> None:
    async with store.watch("", from_revision) as watch:
        made = await store.txn([], [Put("a", b"1")])
        assert [event.revision for event in await watch.next()] == [made.revision]
