"""A run's lease: proof, loss, leaving; and registration that stays."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale import paths
from kafscale.errors import ConfigError, Unavailable
from kafscale.metadata.interface import LeaseNotFound
from kafscale.metadata.membership import Membership, new_run_id, stay_registered
from kafscale.metadata.memory import MemoryMetadataStore, no_answer
from kafscale.v1.metadata_pb2 import Member

NS = "ns"
TTL = 10


def membership(store: MemoryMetadataStore, run_id: str = "x") -> Membership:
    member = Member(run_id=run_id, service="gateway", address="a")
    return Membership(store, namespace=NS, member=member, ttl_seconds=TTL, clock=trio.current_time)


async def registered(store: MemoryMetadataStore) -> list[Member]:
    snapshot = await store.read_prefix(paths.members_prefix(NS, "gateway"))
    return [Member.FromString(item.value) for item in snapshot.items]


async def test_the_proof_counts_from_when_the_keepalive_was_sent_and_falls_short_of_the_lease(
    autojump_clock: MockClock,
) -> None:
    store = MemoryMetadataStore()
    mine = membership(store)
    assert not mine.proven
    await mine.join()
    await trio.sleep(0.79 * TTL)
    assert mine.proven
    await trio.sleep(0.02 * TTL)
    assert not mine.proven, "others cannot have taken over for two more seconds"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mine.keep)
        await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert len(await registered(store)) == 1


async def test_a_lease_is_renewed_while_it_can_be_and_its_loss_is_raised(autojump_clock: MockClock) -> None:
    store = MemoryMetadataStore()
    mine = membership(store)
    await mine.join()
    store.faults = [no_answer("keep_alive")]
    with trio.move_on_after(5 * TTL) as kept:
        await mine.keep()
    assert kept.cancelled_caught
    assert mine.proven
    await store.revoke_lease(mine.lease)
    with pytest.raises(LeaseNotFound):
        await mine.keep()


async def test_a_run_tells_that_it_leaves_and_then_leaves() -> None:
    store = MemoryMetadataStore()
    mine = membership(store)
    await mine.join()
    await mine.tell_leaving()
    assert [member.leaving for member in await registered(store)] == [True]
    await mine.leave()
    assert (await registered(store), mine.proven) == ([], False)
    with pytest.raises(LeaseNotFound):
        await mine.tell_leaving()


def test_run_ids_are_random() -> None:
    assert len({new_run_id() for _ in range(100)}) == 100


async def test_a_registration_is_taken_anew_after_its_loss_and_given_back_in_the_end(
    autojump_clock: MockClock,
) -> None:
    store = MemoryMetadataStore()
    made: list[Membership] = []

    async def join() -> Membership:
        one = membership(store, f"run-{len(made)}")
        await one.join()
        made.append(one)
        return one

    async with trio.open_nursery() as nursery:
        first = await nursery.start(stay_registered, join)
        assert first is made[0]
        store.faults = [no_answer("grant_lease", times=2)]
        await store.revoke_lease(first.lease)
        await trio.sleep(2 * TTL)
        assert [member.run_id for member in await registered(store)] == ["run-1"]
        nursery.cancel_scope.cancel()
    await wait_all_tasks_blocked()
    assert await registered(store) == []


@pytest.mark.parametrize("error", [Unavailable("no answer"), ConfigError("a wrong id")])
async def test_a_registration_that_fails_at_the_start_is_an_error(error: Exception) -> None:
    async def join() -> Membership:
        raise error

    with pytest.raises(type(error)):
        await stay_registered(join)
