"""A run's lease (proof, loss, leaving), and registration that renews itself."""

from collections.abc import Sequence

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale import paths
from kafscale.errors import ConfigError, Refused, Unavailable
from kafscale.metadata.interface import LeaseNotFound, Operation, TxnResult, Unchanged
from kafscale.metadata.membership import LeaseClock, Membership, new_run_id, stay_registered
from kafscale.metadata.memory import Fault, MemoryMetadataStore, lost_answer, no_answer
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


async def test_a_run_announces_that_it_leaves_and_then_leaves() -> None:
    store = MemoryMetadataStore()
    mine = membership(store)
    await mine.join()
    await mine.tell_leaving()
    assert [member.leaving for member in await registered(store)] == [True]
    await mine.leave()
    assert (await registered(store), mine.proven) == ([], False)
    with pytest.raises(LeaseNotFound):
        await mine.tell_leaving()


@pytest.mark.parametrize("revoke_delay", [0, 1], ids=["renewed-after", "renewed-before"])
async def test_a_renewal_while_the_lease_is_revoked_is_no_loss_and_proves_nothing(
    autojump_clock: MockClock, revoke_delay: float
) -> None:
    store = MemoryMetadataStore()
    mine = membership(store)
    await mine.join()
    store.faults = [Fault(method="keep_alive", delay=0.5), Fault(method="revoke_lease", delay=revoke_delay)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mine.keep)
        await trio.sleep(TTL / 4 + 0.2)
        await mine.leave()
    assert not mine.proven


class LateStore(MemoryMetadataStore):
    """A store whose first write is cancelled by its caller, but takes effect five seconds later."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__()
        self._nursery = nursery
        self._first = True

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        if not self._first:
            return await super().txn(compares, then, otherwise)
        self._first = False
        self._nursery.start_soon(self._later, compares, then, otherwise)
        raise Unavailable("no answer in time")

    async def _later(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation]
    ) -> None:
        await trio.sleep(5)
        await super().txn(compares, then, otherwise)


async def test_a_late_write_of_the_key_does_not_attach_it_to_a_lease_that_nobody_renews(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        store = LateStore(nursery)
        mine = membership(store)
        await mine.join()
        nursery.start_soon(mine.keep)
        for _ in range(10):
            await trio.sleep(TTL)
            assert mine.proven
            assert [member.run_id for member in await registered(store)] == ["x"], "proven, and nobody sees it"
        nursery.cancel_scope.cancel()


async def test_joining_survives_lost_answers_and_a_lease_that_expired_meanwhile(
    autojump_clock: MockClock,
) -> None:
    store = MemoryMetadataStore()
    mine = membership(store)
    store.faults = [
        lost_answer("grant_lease"),
        lost_answer("txn"),
        Fault(method="keep_alive", delay=2 * TTL, before=Unavailable("no answer")),
        no_answer("txn", times=2),
        Fault(method="txn", before=Refused("permission denied")),
    ]
    await mine.join()
    assert (mine.proven, len(await registered(store))) == (True, 1)
    await store.keep_alive(mine.lease)
    await mine.leave()
    assert await registered(store) == [], "the key is tied to another lease"


async def test_a_lease_whose_renewal_is_refused_is_renewed_when_that_is_fixed_and_it_is_logged_once(
    autojump_clock: MockClock,
) -> None:
    store = MemoryMetadataStore()
    mine = membership(store)
    await mine.join()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mine.keep)
        for reason in ("permission denied", "permission denied", "no such role"):
            store.faults = [Fault(method="keep_alive", before=Refused(reason), times=2)]
            with capture_logs() as logs:
                await trio.sleep(TTL)
            assert [(entry["log_level"], entry["refused"]) for entry in logs] == [("error", reason)]
            assert mine.proven
        nursery.cancel_scope.cancel()


def test_run_ids_are_random() -> None:
    made = {new_run_id() for _ in range(100)}
    assert len(made) == 100
    # Each commit of a partition stores it.
    assert all(len(run_id) == 12 and run_id.isalnum() for run_id in made)


async def test_a_registration_is_renewed_after_its_loss_and_revoked_in_the_end(
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
        store.faults = [no_answer("grant_lease"), Fault(method="grant_lease", before=Refused("permission denied"))]
        await store.revoke_lease(first.lease)
        await trio.sleep(2 * TTL)
        assert [member.run_id for member in await registered(store)] == ["run-1"]
        nursery.cancel_scope.cancel()
    await wait_all_tasks_blocked()
    assert await registered(store) == []


@pytest.mark.parametrize("error", [Refused("permission denied"), ConfigError("a wrong id")])
async def test_a_registration_that_fails_at_the_start_is_an_error(error: Exception) -> None:
    async def join() -> Membership:
        raise error

    with pytest.raises(type(error)):
        await stay_registered(join)


async def test_a_registration_is_retried_if_the_store_is_unavailable_at_the_start(autojump_clock: MockClock) -> None:
    store = MemoryMetadataStore()

    async def join() -> Membership:
        await store.get("claimed")
        one = membership(store)
        await one.join()
        return one

    store.faults = [no_answer("get", times=3), lost_answer("txn", times=3)]
    async with trio.open_nursery() as nursery:
        await nursery.start(stay_registered, join)
        assert len(await registered(store)) == 1
        nursery.cancel_scope.cancel()


def test_a_wall_clock_that_is_set_forward_ends_the_proof_of_a_lease_and_one_that_is_set_back_does_not() -> None:
    boot, wall = 100.0, 5_000.0
    clock = LeaseClock(lambda: boot, lambda: wall)
    began = clock()
    boot, wall = boot + 2, wall + 2.01
    assert clock() - began == pytest.approx(2)
    # The hypervisor has paused the machine for a minute, which shows only when the wall clock is set.
    wall += 60
    assert clock() - began == pytest.approx(62, abs=0.1)
    wall -= 3_600
    assert clock() - began == pytest.approx(62, abs=0.1)
    boot, wall = boot + 1, wall + 1
    assert clock() - began == pytest.approx(63, abs=0.1)
