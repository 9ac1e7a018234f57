"""Heartbeats at a coordinator whose store is slow."""

import pytest
import trio
import trio.lowlevel

from kafscale import paths
from kafscale.metadata.memory import Fault, MemoryMetadataStore
from kafscale.v1 import coordinator_pb2 as pb
from services.gateway.coordinators.heartbeats import CALLS_IN_FLIGHT, heartbeat_gatherer
from tests.support.coordinator.harness import E
from tests.support.coordinator.shell import NAMESPACE, TIMEOUT, Consumer, Coordinators, coordinators, stable

HEADER = paths.GroupKeys(NAMESPACE, "g").header
SHARD = paths.group_shard("g")


@pytest.fixture
def store() -> MemoryMetadataStore:
    return MemoryMetadataStore()


async def _beats(made: Coordinators, *beats: tuple[str, str, int]) -> list[int]:
    """Send heartbeats of these groups, members and generations in one call, which must not wait. Return the errors."""
    heartbeats = [pb.MemberHeartbeat(group=group, member_id=name, generation=number) for group, name, number in beats]
    began = trio.current_time()
    reply = await made.instances[0].client.heartbeat(pb.HeartbeatRequest(heartbeats=heartbeats), timeout=TIMEOUT)
    assert trio.current_time() == began
    return [result.error for result in reply.results]


async def test_heartbeats_are_answered_at_once_from_stored_state(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1", group_queue_bytes=2_000) as made, trio.open_nursery() as nursery:
        [member] = await stable(made, nursery, 1)
        await made.commit({0: 1}, "other")
        beats = [("g", member.member_id, 1), ("g", member.member_id, 0), ("other", "x", 1)]
        assert await _beats(made, *beats) == [E.NONE, E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID]
        store.faults += [Fault(method="txn", key=HEADER, delay=7, times=2)]
        store.faults += [Fault(method="txn", key=paths.GroupKeys(NAMESPACE, "other").header, delay=7)]
        nursery.start_soon(made.commit, {0: 2}, "g", member.member_id, 1)
        nursery.start_soon(made.commit, {0: 2}, "other")
        await trio.sleep(0.1)
        # Commits that are being stored change nothing about members.
        assert await _beats(made, *beats) == [E.NONE, E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID]
        await trio.sleep(7)
        assert await _beats(made, *beats) == [E.NONE, E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID]
        # The next generation exists but is not stored.
        newcomer = Consumer(made, "c")
        nursery.start_soon(newcomer.join)
        await trio.sleep(0.5)
        assert await _beats(made, *beats) == [E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID]
        with trio.fail_after(30):
            while made.instances[0].deps.counters.queued_bytes == 0:  # noqa: ASYNC110  it has no event for it
                await trio.sleep(0.1)
        assert await _beats(made, beats[0]) == [E.COORDINATOR_LOAD_IN_PROGRESS]
        await trio.sleep(7)
        assert await _beats(made, beats[0]) == [E.ILLEGAL_GENERATION]
        nursery.cancel_scope.cancel()


async def test_slow_writes_of_a_group_do_not_delay_heartbeats_of_others(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1") as made, trio.open_nursery() as nursery:
        [instance] = made.instances
        member = Consumer(made, "c")
        await member.join(session_timeout_ms=6_000)
        gatherer = heartbeat_gatherer(lambda request: instance.client.heartbeat(request, timeout=TIMEOUT))
        nursery.start_soon(gatherer.run)
        for slow in [f"slow{number}" for number in range(2 * CALLS_IN_FLIGHT)]:
            await made.commit({0: 1}, slow)
            store.faults.append(Fault(method="txn", key=paths.GroupKeys(NAMESPACE, slow).header, delay=30))
            nursery.start_soon(made.commit, {0: 2}, slow)
            await trio.lowlevel.checkpoint()
            nursery.start_soon(gatherer.ask, pb.MemberHeartbeat(group=slow, member_id="x", generation=1))
        for _ in range(8):
            await trio.sleep(3)
            beat = pb.MemberHeartbeat(group="g", member_id=member.member_id, generation=1)
            assert (await gatherer.ask(beat)).error == E.NONE
        nursery.cancel_scope.cancel()
