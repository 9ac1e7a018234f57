"""Every shard is served within a time limit, however a claim or a hand-over was interrupted."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.memory import Fault, MemoryMetadataStore, lost_answer, no_answer
from kafscale.v1 import coordinator_pb2 as pb
from kafscale.v1.groups_pb2 import GroupShard
from tests.support.coordinator.harness import E
from tests.support.coordinator.shell import LEASE_SECONDS, NAMESPACE, TIMEOUT, Coordinators, Instance, coordinators

HANDOVER_SECONDS = 5
BOUND_SECONDS = LEASE_SECONDS + HANDOVER_SECONDS + 5
KEYS = paths.group_shards_prefix(NAMESPACE)
MANY = 1000
GROUPS = [f"g{number}" for number in range(100)]


@pytest.fixture
def store() -> MemoryMetadataStore:
    return MemoryMetadataStore()


async def unserved(made: Coordinators) -> dict[int, str]:
    """Return shards without a serving coordinator after the limit, with the address of the owner in the key."""
    await trio.sleep(BOUND_SECONDS)
    runs = {one.run_id: one for one in made.instances if one.service.current}
    served = {index for one in runs.values() if one.service.current for index in one.service.current.shards}
    without_server = {}
    for index in set(range(paths.GROUP_SHARDS)) - served:
        item = await made.metadata.get(paths.group_shard_key(NAMESPACE, index))
        owner = GroupShard.FromString(item.value).owner if item else ""
        without_server[index] = runs[owner].address if owner in runs else owner
    return without_server


async def beat(instance: Instance) -> None:
    beats = [pb.MemberHeartbeat(group=group, member_id="m", generation=1) for group in GROUPS]
    await instance.client.heartbeat(pb.HeartbeatRequest(heartbeats=beats), timeout=TIMEOUT)


async def wait_until_hit(fault: Fault) -> None:
    with trio.fail_after(BOUND_SECONDS):
        while fault.times == MANY:  # noqa: ASYNC110
            await trio.sleep(0.001)


async def test_a_claim_with_a_lost_answer_does_not_orphan_a_shard(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    store.faults.append(lost_answer(key=KEYS, times=paths.GROUP_SHARDS))
    async with coordinators(store, "a:1", "b:1") as made:
        assert await unserved(made) == {}


@pytest.mark.parametrize("fault", [lost_answer(key=KEYS, times=20), no_answer("txn", key=KEYS, times=20)])
async def test_an_unanswered_release_does_not_orphan_a_shard(
    store: MemoryMetadataStore, autojump_clock: object, fault: Fault
) -> None:
    async with coordinators(store, "a:1") as made:
        await made.serving()
        store.faults.append(fault)
        await made.start("b:1")
        assert await unserved(made) == {}
        assert fault.times == 0


async def test_a_write_of_unknown_outcome_during_a_release_does_not_orphan_a_shard(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1") as made, trio.open_nursery() as nursery:
        for group in GROUPS:
            await made.commit({0: 1}, group)
        written = f"{paths.metadata_root(NAMESPACE)}groups/"
        slow = Fault(method="txn", key=written, delay=3, after=Unavailable("no answer"), times=len(GROUPS))
        store.faults.append(slow)
        for group in GROUPS:
            nursery.start_soon(made.commit, {0: 2}, group)
        await wait_all_tasks_blocked()
        await made.start("b:1")
        assert await unserved(made) == {}
        assert made.instances[0].deps.counters.writes["unknown"] > 0
        assert [await made.offsets(group) for group in GROUPS] == [{0: 2}] * len(GROUPS)


async def test_an_unproven_lease_during_a_release_does_not_orphan_a_shard(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1") as made:
        await made.serving()
        [first] = made.instances
        fault = no_answer("txn", key=KEYS, times=MANY)
        store.faults.append(fault)
        await made.start("b:1")
        await wait_until_hit(fault)
        first.clock.ahead = 60
        await beat(first)
        first.clock.ahead = 0
        fault.times = 0
        assert await unserved(made) == {}


async def test_an_unproven_lease_when_a_release_is_answered_does_not_orphan_a_shard(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1") as made:
        await made.serving()
        [first] = made.instances
        fault = Fault(method="txn", key=KEYS, delay=0.5, times=MANY)
        store.faults.append(fault)
        await made.start("b:1")
        await wait_until_hit(fault)
        fault.times = 0
        first.clock.ahead = 60
        await beat(first)
        await trio.sleep(1)
        first.clock.ahead = 0
        assert first.service.current is not None
        assert await unserved(made) == {}


@pytest.mark.parametrize("attempt", range(8))
async def test_a_caller_cancelled_when_its_answer_arrives_leaves_nothing_behind(
    store: MemoryMetadataStore, autojump_clock: object, attempt: int
) -> None:
    async with coordinators(store, "a:1", group_initial_rebalance_delay_ms=0) as made, trio.open_nursery() as nursery:
        await made.commit({0: 1})
        [instance] = made.instances
        caller, stored, answered = trio.CancelScope(), trio.Event(), trio.Event()
        txn = instance.gate.txn

        async def held(compares, then, otherwise=()):  # type: ignore[no-untyped-def]
            result = await txn(compares, then, otherwise)
            stored.set()
            await answered.wait()
            return result

        async def join() -> None:
            request = pb.JoinGroupRequest(group="g", protocol_type="consumer", session_timeout_ms=30_000)
            request.rebalance_timeout_ms = 30_000
            request.protocols.add(name="range", metadata=b"m")
            with caller:
                await instance.client.join_group(request, timeout=TIMEOUT)

        instance.gate.txn = held  # type: ignore[method-assign]
        nursery.start_soon(join)
        await stored.wait()
        await wait_all_tasks_blocked()
        # Both events happen in one turn of the event loop, in either order.
        answered.set()
        caller.cancel()
        await trio.sleep(1)
        run = instance.service.current
        assert run is not None
        assert len(run.tickets) == 0
        assert await made.offsets() == {0: 1}
        assert E.NOT_COORDINATOR not in made.refusals
