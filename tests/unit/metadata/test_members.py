"""The view of members, and the assignment of partitions to them."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale import paths
from kafscale.errors import Refused
from kafscale.metadata.interface import Delete, Put
from kafscale.metadata.members import LiveMember, Members, MembersView
from kafscale.metadata.memory import Fault, MemoryMetadataStore, Method, no_answer
from kafscale.v1.metadata_pb2 import Member

NS = "ns"
_READS: tuple[Method, ...] = ("read_prefix", "watch")
PLACES = [(bytes([topic]) * 16, partition) for topic in range(10) for partition in range(100)]
ADDRESSES = {
    "one host": [f"127.0.0.1:{9095 + 10 * number}" for number in range(5)],
    "a stateful set": [f"storage-{number}.storage.kafscale.svc.cluster.local:9095" for number in range(5)],
    "pods": [f"10.42.{number}.{17 * number + 3}:9095" for number in range(5)],
    "names": [f"{name}:9095" for name in ("ash", "birch", "cedar", "elm", "fir")],
}


def members(*addresses: str, leaving: tuple[str, ...] = ()) -> list[LiveMember]:
    numbers = count(1)
    return [
        LiveMember(Member(run_id=f"run-{number}", address=address, leaving=address in leaving), number)
        for number, address in zip(numbers, addresses, strict=False)
    ]


def view(*addresses: str, leaving: tuple[str, ...] = ()) -> MembersView:
    return MembersView.of(1, members(*addresses, leaving=leaving))


def placement(seen: MembersView) -> dict[tuple[bytes, int], str]:
    owners = {place: seen.owner(*place) for place in PLACES}
    return {place: owner.address for place, owner in owners.items() if owner is not None}


@pytest.mark.parametrize("addresses", ADDRESSES.values(), ids=ADDRESSES)
def test_a_thousand_partitions_are_spread_over_four_members_within_20_percent_of_the_mean(addresses: list[str]) -> None:
    counts = Counter(placement(view(*addresses[:4])).values())
    assert len(counts) == 4
    assert all(200 <= each <= 300 for each in counts.values()), counts


@pytest.mark.parametrize("addresses", ADDRESSES.values(), ids=ADDRESSES)
def test_a_member_that_joins_is_assigned_its_share_and_nothing_else_moves(addresses: list[str]) -> None:
    four, five = placement(view(*addresses[:4])), placement(view(*addresses))
    moved = [place for place in PLACES if four[place] != five[place]]
    assert {five[place] for place in moved} == {addresses[4]}
    assert 150 <= len(moved) <= 250


def test_a_member_that_dies_or_leaves_loses_only_its_own_partitions() -> None:
    addresses = ADDRESSES["pods"]
    five, four = placement(view(*addresses)), placement(view(*addresses[:4]))
    assert all(four[place] == five[place] for place in PLACES if five[place] != addresses[4])
    assert placement(view(*addresses, leaving=(addresses[4],))) == four


def test_assignment_does_not_depend_on_the_order_of_joining_or_on_run_ids() -> None:
    addresses = ADDRESSES["names"]
    assert placement(view(*addresses)) == placement(view(*reversed(addresses)))


def test_the_older_run_of_an_address_is_assigned_nothing() -> None:
    seen = MembersView.of(1, reversed(members("a", "b", "a")))
    assert [live.run_id for live in seen.present] == ["run-3", "run-2"]
    assert seen.placed == seen.present
    assert {live.run_id for live in seen} == {"run-1", "run-2", "run-3"}


def test_a_restarted_member_that_leaves_does_not_bring_its_former_run_back() -> None:
    restarted = members("a", "b", "a")
    restarted[2].member.leaving = True
    seen = MembersView.of(1, restarted)
    assert [live.run_id for live in seen.present] == ["run-3", "run-2"]
    assert [live.run_id for live in seen.placed] == ["run-2"]


def test_nothing_is_assigned_without_members() -> None:
    assert view().owner(*PLACES[0]) is None
    assert view("a", leaving=("a",)).owner(*PLACES[0]) is None


async def put(store: MemoryMetadataStore, run_id: str, address: str, lease: int = 0) -> None:
    member = Member(run_id=run_id, address=address)
    await store.txn((), [Put(paths.member_key(NS, "storage", run_id), member.SerializeToString(), lease)])


@asynccontextmanager
async def watching(store: MemoryMetadataStore) -> AsyncIterator[Members]:
    watched = Members(store, NS, "storage")
    async with trio.open_nursery() as nursery:
        await nursery.start(watched.run)
        yield watched
        nursery.cancel_scope.cancel()


def runs(watched: Members) -> list[str]:
    return sorted(live.run_id for live in watched.view)


async def test_members_that_join_and_leave_are_seen() -> None:
    store = MemoryMetadataStore()
    await put(store, "x", "a")
    await store.txn((), [Put(paths.member_key(NS, "gateway", "g"), Member(run_id="g").SerializeToString())])
    async with watching(store) as watched:
        before = watched.view
        assert runs(watched) == ["x"]
        lease = await store.grant_lease(10)
        await put(store, "y", "b", lease)
        assert sorted(live.run_id for live in await watched.wait_change(before)) == ["x", "y"]
        seen = watched.view
        await put(store, "x", "c")
        assert [live.address for live in (await watched.wait_change(seen)).present] == ["b", "c"]
        seen = watched.view
        await store.revoke_lease(lease)
        await watched.wait_change(seen)
        await store.txn((), [Delete(paths.member_key(NS, "storage", "x"))])
        await wait_all_tasks_blocked()
        assert runs(watched) == []
        assert list(before) != list(watched.view), "a view never changes"


async def test_the_last_view_remains_while_the_store_does_not_answer(mock_clock: MockClock) -> None:
    store = MemoryMetadataStore()
    await put(store, "x", "a")
    async with watching(store) as watched:
        await wait_all_tasks_blocked()
        # The watch that is already waiting still answers, the next one does not.
        store.faults = [no_answer("watch"), no_answer("read_prefix")]
        await put(store, "y", "b")
        await wait_all_tasks_blocked()
        await store.txn((), [Delete(paths.member_key(NS, "storage", "x"))])
        await wait_all_tasks_blocked()
        assert runs(watched) == ["x", "y"]
        mock_clock.jump(0.06)
        await wait_all_tasks_blocked()
        assert runs(watched) == ["x", "y"]
        mock_clock.jump(0.11)
        await wait_all_tasks_blocked()
        assert runs(watched) == ["y"]


async def test_a_store_that_does_not_answer_at_the_start_is_retried(autojump_clock: MockClock) -> None:
    store = MemoryMetadataStore()
    await put(store, "x", "a")
    store.faults = [no_answer("read_prefix", times=3)]
    async with watching(store) as watched:
        assert runs(watched) == ["x"]


async def test_a_refusal_ends_a_start_and_later_is_logged_once_until_it_is_fixed(
    autojump_clock: MockClock,
) -> None:
    store = MemoryMetadataStore()
    watched = Members(store, NS, "storage")
    store.faults = [Fault(method="read_prefix", before=Refused("permission denied"))]
    with pytest.raises(Refused):
        await watched.run()
    async with trio.open_nursery() as nursery:
        await nursery.start(watched.run)
        for _ in range(2):
            store.faults = [Fault(method=method, before=Refused("permission denied"), times=5) for method in _READS]
            with capture_logs() as logs:
                await put(store, "x", "a")
                await trio.sleep(60)
                assert not store.faults[1].times
            assert [entry["log_level"] for entry in logs] == ["error"]
            assert runs(watched) == ["x"]
        nursery.cancel_scope.cancel()
