"""Reads and transactions, on every implementation."""

import pytest
import trio

from kafscale.metadata.interface import (
    MAX_NESTED,
    MAX_OPERATIONS,
    MAX_PLAIN,
    MAX_REQUEST_BYTES,
    Compacted,
    Delete,
    Get,
    KeyValue,
    LeaseNotFound,
    MetadataStore,
    Put,
    TooLarge,
    Unchanged,
)


async def test_an_absent_key_is_none(store: MetadataStore) -> None:
    assert await store.get("a") is None
    assert (await store.read_prefix("a")).items == ()


async def test_a_write_makes_one_revision_that_its_keys_carry(store: MetadataStore) -> None:
    first = await store.txn([], [Put("a", b"1"), Put("b", b"2")])
    second = await store.txn([], [Put("a", b"3")])
    assert second.revision == first.revision + 1
    assert await store.get("a") == KeyValue("a", b"3", first.revision, second.revision)
    assert await store.get("b") == KeyValue("b", b"2", first.revision, first.revision)


async def test_a_recreated_key_has_a_new_create_revision(store: MetadataStore) -> None:
    await store.txn([], [Put("a", b"1")])
    await store.txn([], [Delete("a")])
    assert await store.get("a") is None
    made = await store.txn([], [Put("a", b"2")])
    assert await store.get("a") == KeyValue("a", b"2", made.revision, made.revision)


async def test_a_transaction_that_changes_nothing_makes_no_revision(store: MetadataStore) -> None:
    before = (await store.txn([], [Put("a", b"1")])).revision
    assert (await store.txn([], [Delete("absent")])).revision == before
    assert (await store.txn([], [Get("a")])).revision == before
    assert (await store.txn([Unchanged("a", 0)], [Put("a", b"2")])).revision == before
    assert (await store.read_prefix("")).revision == before


async def test_unchanged_0_means_absent(store: MetadataStore) -> None:
    made = await store.txn([Unchanged("a", 0)], [Put("a", b"1")])
    assert made.succeeded
    assert not (await store.txn([Unchanged("a", 0)], [Put("a", b"2")])).succeeded
    assert (await store.txn([Unchanged("a", made.revision)], [Put("a", b"3")])).succeeded
    await store.txn([], [Delete("a")])
    assert (await store.txn([Unchanged("a", 0)], [Put("a", b"4")])).succeeded


async def test_one_failed_compare_runs_the_else_branch_whose_reads_show_which(store: MetadataStore) -> None:
    made = await store.txn([], [Put("a", b"1"), Put("b", b"2")])
    moved = await store.txn([], [Put("b", b"3")])
    result = await store.txn(
        [Unchanged("a", made.revision), Unchanged("b", made.revision)],
        [Put("a", b"9"), Put("b", b"9")],
        [Get("a"), Get("absent"), Get("b")],
    )
    assert not result.succeeded
    assert result.revision == moved.revision
    assert result.reads == (await store.get("a"), None, await store.get("b"))
    assert [item.value for item in (await store.read_prefix("")).items] == [b"1", b"3"]


async def test_the_else_branch_can_write(store: MetadataStore) -> None:
    made = await store.txn([], [Put("a", b"1")])
    result = await store.txn([Unchanged("a", 0)], [Put("a", b"2")], [Put("b", b"x"), Delete("a")])
    assert (result.succeeded, result.revision) == (False, made.revision + 1)
    assert [item.key for item in (await store.read_prefix("")).items] == ["b"]


async def test_reads_of_a_branch_see_its_earlier_writes(store: MetadataStore) -> None:
    await store.txn([], [Put("a", b"1")])
    result = await store.txn([], [Get("a"), Put("a", b"2"), Get("a"), Delete("b"), Get("b")])
    assert [read and read.value for read in result.reads] == [b"1", b"2", None]


async def test_a_refused_transaction_writes_none_of_its_keys(store: MetadataStore) -> None:
    with pytest.raises(LeaseNotFound):
        await store.txn([], [Put("a", b"1"), Put("b", b"2", lease=987654321)])
    with pytest.raises(ValueError, match="twice"):
        await store.txn([], [Put("a", b"1"), Delete("a")])
    assert (await store.read_prefix("")).items == ()


async def test_read_prefix_returns_the_keys_of_the_prefix_in_order_at_one_revision(store: MetadataStore) -> None:
    await store.txn([], [Put(key, key.encode()) for key in ("t/b", "t/a/0", "t/a", "s", "t0", "t/")])
    last = await store.txn([], [Delete("t/b")])
    snapshot = await store.read_prefix("t/")
    assert snapshot.revision == last.revision
    assert [item.key for item in snapshot.items] == ["t/", "t/a", "t/a/0"]


async def test_pages_return_all_keys_of_a_prefix_once_at_one_revision_or_raise_compacted(
    store: MetadataStore,
) -> None:
    keys = [f"t/{number:04d}" for number in range(1100)]
    for start in range(0, len(keys), MAX_PLAIN):
        await store.txn([], [Put(key, key.encode()) for key in keys[start : start + MAX_PLAIN]])
    written = await store.txn([], [Put("s", b""), Put("t0", b"")])
    page = await store.read_page("t/")
    assert (page.revision, page.more) == (written.revision, True)
    found = list(page.items)
    while page.more:
        page = await store.read_page("t/", after=found[-1].key, revision=page.revision)
        assert page.revision == written.revision
        found += page.items
    assert [(item.key, item.value) for item in found] == [(key, key.encode()) for key in keys]
    later = await store.txn([], [Put(keys[-1], b"later"), Put("t/9999", b"later")])
    await store.compact(later.revision)
    with pytest.raises(Compacted):
        await store.read_page("t/", after=found[-2].key, revision=written.revision)
    with pytest.raises(Compacted):
        await store.read_page("t/", revision=later.revision + 1_000_000)


async def test_a_read_sees_every_write_that_was_answered_before_it(store: MetadataStore) -> None:
    for number in range(50):
        await store.txn([], [Put("a", b"%d" % number)])
        read = await store.get("a")
        assert read is not None
        assert read.value == b"%d" % number


async def test_limits_refuse_the_whole_transaction(store: MetadataStore) -> None:
    keys = [f"k{number}" for number in range(MAX_OPERATIONS + 1)]
    for compares, then, otherwise in (
        ([Unchanged(key, 0) for key in keys[: MAX_PLAIN + 1]], [Put("a", b"")], []),
        ([Unchanged(key, 0) for key in keys[: MAX_NESTED + 1]], [Put(key, b"") for key in keys[: MAX_PLAIN + 1]], []),
        ([], [Put(key, b"") for key in keys], []),
        ([Unchanged("x", 7)], [Put("a", b"")], [Get(key) for key in keys]),
        ([], [Put("a", bytes(MAX_REQUEST_BYTES // 2)), Put("b", bytes(MAX_REQUEST_BYTES // 2))], []),
    ):
        with pytest.raises(TooLarge):
            await store.txn(compares, then, otherwise)
    assert (await store.read_prefix("")).items == ()
    few = keys[:MAX_PLAIN]
    await store.txn([Unchanged(key, 0) for key in few], [Put(key, b"") for key in few], [Get(key) for key in few])
    await store.txn([Unchanged(key, 0) for key in keys[MAX_PLAIN:][:MAX_NESTED]], [Put(key, b"") for key in keys[:-1]])
    await store.txn([], [Put("a", bytes(MAX_REQUEST_BYTES - 1000))])


@pytest.mark.parametrize("count", [MAX_PLAIN, MAX_PLAIN + 1, 1000, MAX_OPERATIONS])
async def test_a_transaction_of_many_operations_is_one(store: MetadataStore, count: int) -> None:
    keys = [f"k{number}" for number in range(count)]
    done = await store.txn([Unchanged("k0", 0)], [Put(key, key.encode()) for key in keys], [Get("k0")])
    found = (await store.read_prefix("k")).items
    assert {item.key: (item.value, item.mod_revision) for item in found} == {
        key: (key.encode(), done.revision) for key in keys
    }
    refused = await store.txn([Unchanged("k0", 0)], [Delete(key) for key in keys], [Get(key) for key in keys])
    assert [read.key if read else None for read in refused.reads] == keys
    mixed = [Delete(key) if number % 2 else Get(key) for number, key in enumerate(keys)]
    gone = await store.txn([Unchanged("k0", done.revision)], mixed)
    assert [read.key if read else None for read in gone.reads] == keys[::2]
    assert [item.key for item in (await store.read_prefix("k")).items] == sorted(keys[::2])


async def test_100_racing_increments_lose_none(store: MetadataStore) -> None:
    await store.txn([], [Put("count", b"0"), Put("copy", b"0")])

    async def increment() -> None:
        while True:
            current = await store.get("count")
            assert current is not None
            more = b"%d" % (int(current.value) + 1)
            compares = [Unchanged("count", current.mod_revision)]
            if (await store.txn(compares, [Put("count", more), Put("copy", more)])).succeeded:
                return

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(increment)
    assert [item.value for item in (await store.read_prefix("co")).items] == [b"100", b"100"]
