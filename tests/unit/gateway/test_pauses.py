"""A gateway that was suspended and resumes executes no request from before the pause."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale.v1 import coordinator_pb2 as pb
from tests.support.gateway import group_asking as asking
from tests.support.gateway.asking import fetch_body, produce, produce_body
from tests.support.gateway.group_asking import commit, commit_values, join_values
from tests.support.gateway.harness import Harness, batch, request, running_gateway

LIMIT_SECONDS = 5


async def test_a_commit_in_the_socket_of_a_suspended_gateway_is_not_executed() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        assert await commit(client, {"t": {0: (200, "")}}) == [[0]]
        harness.cluster.suspended_seconds += LIMIT_SECONDS + 1
        await client.send(8, 8, request(8, 8, **commit_values(8, {"t": {0: (100, "")}})))
        assert await client.closed()
        assert len(harness.coordinator.requests_of(pb.OffsetCommitRequest)) == 1


async def test_a_wall_clock_set_forward_closes_no_connection() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        assert await commit(client, {"t": {0: (100, "")}}) == [[0]]
        harness.cluster.wall_ahead_seconds += LIMIT_SECONDS + 1
        assert await commit(client, {"t": {0: (200, "")}}) == [[0]]


async def test_a_late_join_of_a_static_member_does_not_fence_the_live_one() -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        member_id, generation = await asking.stable(client, instance="i")
        harness.cluster.suspended_seconds += LIMIT_SECONDS + 1
        late = await harness.connect()
        await late.send(11, 5, request(11, 5, **join_values(5, "", instance="i")))
        assert await late.closed()
        await settle(harness)
        again = await harness.connect()
        assert await asking.heartbeat(again, 3, generation, member_id, instance="i") == 0


async def test_a_connection_from_the_backlog_is_closed_and_a_later_one_served() -> None:
    async with running_gateway() as harness:
        harness.cluster.suspended_seconds += LIMIT_SECONDS + 1
        for _ in range(2):
            assert await (await harness.connect()).closed()
        await settle(harness)
        assert (await (await harness.connect()).ask(18, 0)).error_code == 0


async def test_a_queued_request_is_dropped_after_a_pause() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        harness.coordinator.gate = trio.Event()
        for offset in (1, 2):
            await client.send(8, 8, request(8, 8, **commit_values(8, {"t": {0: (offset, "")}})))
        await harness.coordinator.wait_until(lambda: bool(harness.coordinator.requests))
        harness.cluster.suspended_seconds += LIMIT_SECONDS + 1
        harness.coordinator.gate.set()
        assert await client.closed()
        assert len(harness.coordinator.requests_of(pb.OffsetCommitRequest)) == 1


async def test_records_from_before_a_pause_are_not_sent_to_storage() -> None:
    async with running_gateway(append_messages=2) as harness:
        await harness.topic()
        for sequence in (1, 2):
            harness.storage.gates[sequence] = trio.Event()
        client = await harness.connect()
        for _ in range(3):
            await client.send(0, 9, produce_body({("t", 0): batch(b"late")}, timeout_ms=60_000))
            await wait_all_tasks_blocked(0.02)
        assert len(harness.storage.appends) == 2
        harness.cluster.suspended_seconds += LIMIT_SECONDS + 1
        for gate in harness.storage.gates.values():
            gate.set()
        assert await client.closed()
        await settle(harness)
        assert (await produce(await harness.connect(), batch(b"later"))).base_offset == 2


async def test_pauses_within_the_limit_keep_connections_open(mock_clock: MockClock) -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        await client.send(1, 12, fetch_body({("t", 0): 0}, max_wait_ms=60_000))
        await harness.storage.wait_until(lambda: bool(harness.storage.fetches))
        for _ in range(12):
            harness.cluster.suspended_seconds += LIMIT_SECONDS - 1
            mock_clock.jump(LIMIT_SECONDS - 1)
            await wait_all_tasks_blocked(0.02)
        mock_clock.jump(60)
        await client.receive()


async def settle(harness: Harness) -> None:
    """Wait until connections from before the pause can no longer arrive."""
    await wait_all_tasks_blocked(0.02)
    harness.cluster.suspended_seconds += 2
