"""Leases, on every implementation."""

import pytest
import trio

from kafscale.metadata.interface import Delete, LeaseNotFound, MetadataStore, Put, Unchanged
from tests.contract.metadata.conftest import Clock, advance, outlast


async def test_the_end_of_a_lease_deletes_its_keys_in_one_revision(store: MetadataStore, clock: Clock) -> None:
    lease = await store.grant_lease(5)
    assert lease != 0
    put = await store.txn([], [Put("m/a", b"1", lease), Put("m/b", b"2", lease), Put("m/c", b"3")])
    found = await store.get("m/a")
    assert found is not None
    assert found.lease == lease
    await advance(clock, 4)
    assert await store.get("m/a") is not None
    await outlast(store, clock, lease, 2)
    snapshot = await store.read_prefix("m/")
    assert [item.key for item in snapshot.items] == ["m/c"]
    assert snapshot.revision == put.revision + 1


async def test_a_waiting_watch_sees_the_end_of_a_lease_without_any_other_call(
    store: MetadataStore, clock: Clock
) -> None:
    lease = await store.grant_lease(2)
    put = await store.txn([], [Put("m/a", b"1", lease), Put("m/b", b"2", lease)])
    batches = []

    async def follow() -> None:
        async with store.watch("m/", put.revision + 1) as watch:
            batches.append(await watch.next())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        await advance(clock, 3)
    assert [(event.key, event.value, event.revision) for event in batches[0]] == [
        ("m/a", None, put.revision + 1),
        ("m/b", None, put.revision + 1),
    ]


async def test_a_waiting_watch_sees_the_end_of_a_lease_granted_after_it_began_to_wait(
    store: MetadataStore, clock: Clock
) -> None:
    start = (await store.read_prefix("")).revision + 1
    seen: list[str] = []

    async def follow() -> None:
        async with store.watch("m/", start) as watch:
            while "gone" not in seen:
                seen.extend("made" if event.value else "gone" for event in await watch.next())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        await store.txn([], [Put("m/a", b"1", await store.grant_lease(2))])
        await trio.testing.wait_all_tasks_blocked()
        await advance(clock, 3)
    assert seen == ["made", "gone"]


async def test_keep_alive_renews_the_lease_and_returns_its_ttl(store: MetadataStore, clock: Clock) -> None:
    lease = await store.grant_lease(5)
    await store.txn([], [Put("a", b"1", lease)])
    for _ in range(3):
        await advance(clock, 4)
        assert await store.keep_alive(lease) == 5
    assert await store.get("a") is not None
    await outlast(store, clock, lease, 6)
    with pytest.raises(LeaseNotFound):
        await store.keep_alive(lease)
    assert await store.get("a") is None


async def test_revoke_deletes_the_keys_at_once_and_is_repeatable(store: MetadataStore, clock: Clock) -> None:
    lease = await store.grant_lease(10)
    put = await store.txn([], [Put("a", b"1", lease), Put("b", b"2", lease)])
    await store.revoke_lease(lease)
    await store.revoke_lease(lease)
    snapshot = await store.read_prefix("")
    assert (snapshot.items, snapshot.revision) == ((), put.revision + 1)
    with pytest.raises(LeaseNotFound):
        await store.txn([], [Put("a", b"1", lease)])


async def test_a_compare_sees_that_a_leased_key_is_gone(store: MetadataStore, clock: Clock) -> None:
    lease = await store.grant_lease(2)
    put = await store.txn([], [Put("owner", b"me", lease)])
    await outlast(store, clock, lease, 3)
    late = await store.txn([Unchanged("owner", put.revision)], [Put("state", b"mine")])
    assert not late.succeeded


async def test_a_key_put_without_the_lease_or_deleted_no_longer_ends_with_it(
    store: MetadataStore, clock: Clock
) -> None:
    lease, other = await store.grant_lease(2), await store.grant_lease(500)
    kept = [Put(key, b"1", lease) for key in ("freed", "moved", "deleted", "kept")]
    await store.txn([], kept)
    await store.txn([], [Put("freed", b"2"), Put("moved", b"2", other), Delete("deleted")])
    last = await store.txn([], [Put("deleted", b"3")])
    await outlast(store, clock, lease, 3)
    snapshot = await store.read_prefix("")
    assert [item.key for item in snapshot.items] == ["deleted", "freed", "moved"]
    assert snapshot.revision == last.revision + 1


async def test_leases_that_ended_are_distinguished_from_later_ones(store: MetadataStore, clock: Clock) -> None:
    first = await store.grant_lease(2)
    await store.txn([], [Put("a", b"1", first)])
    await outlast(store, clock, first, 3)
    second = await store.grant_lease(10)
    assert first != second
    with pytest.raises(LeaseNotFound):
        await store.keep_alive(first)
    assert await store.keep_alive(second) == 10
