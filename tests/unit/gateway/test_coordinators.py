"""Which coordinator the gateway asks about a group, how long it waits, and the errors of groups without one."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from kafscale.errors import Refused, Unavailable
from kafscale.metadata.members import LiveMember, MembersView
from kafscale.paths import group_shard
from kafscale.v1.coordinator_pb2 import (
    DescribeGroupsRequest,
    GroupError,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from kafscale.v1.metadata_pb2 import Member
from services.gateway.clients.connection import kafka_host
from tests.support.gateway import group_asking as asking
from tests.support.gateway.exchanges import nested
from tests.support.gateway.fake_coordinator import FakeCoordinator
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.group_asking import commit, heartbeat, join, join_values, known_in, stable
from tests.support.gateway.harness import Client, Cluster, Harness, read_response, request, running_gateway

JOIN_VERSION = 5


async def two_coordinators() -> Cluster:
    cluster = Cluster()
    await cluster.add("storage", FakeStorage())
    for run_id in ("a", "b"):
        await cluster.add_coordinator(run_id, FakeCoordinator())
    return cluster


def assigned_to(group: str) -> str:
    """Return which of the coordinators a and b a group is assigned to."""
    members = [LiveMember(Member(run_id=name, address=f"{name}:9096"), 1) for name in ("a", "b")]
    owner = MembersView.of(1, members).shard_owner(group_shard(group))
    assert owner is not None
    return owner.run_id


def groups_of(run_id: str, count: int) -> list[str]:
    return [group for group in map("g{}".format, range(1000)) if assigned_to(group) == run_id][:count]


async def send_join(client: Client, member_id: str, **options: Any) -> None:
    body = request(asking.JOIN, JOIN_VERSION, **join_values(JOIN_VERSION, member_id, **options))
    await client.send(asking.JOIN, JOIN_VERSION, body)


async def new_id(client: Client, **options: Any) -> str:
    reply = await join(client, JOIN_VERSION, **options)
    assert reply.error_code == 79
    return str(reply.member_id)


async def parked_join(harness: Harness, client: Client) -> str:
    """Send a join that waits for another member to rejoin. Return the member's id."""
    member_id = await new_id(client)
    before = len(harness.coordinator.requests_of(JoinGroupRequest))
    await send_join(client, member_id)
    await harness.coordinator.wait_until(lambda: len(harness.coordinator.requests_of(JoinGroupRequest)) > before)
    return member_id


async def test_a_request_goes_to_the_coordinator_that_the_groups_shard_is_assigned_to() -> None:
    cluster = await two_coordinators()
    async with running_gateway(cluster=cluster) as harness:
        client = await harness.connect()
        for run_id, coordinator in cluster.coordinators.items():
            for group in groups_of(run_id, 3):
                await stable(client, group=group)
                assert group in coordinator.groups


async def test_a_redirect_to_another_coordinator_is_followed_and_remembered() -> None:
    cluster = await two_coordinators()
    (group,) = groups_of("a", 1)
    first, second = cluster.coordinators["a"], cluster.coordinators["b"]
    async with running_gateway(cluster=cluster) as harness:
        client = await harness.connect()
        first.moved[group] = "b"
        member_id, generation = await stable(client, group=group)
        requested = len(first.requests)
        assert requested == 1
        assert await heartbeat(client, 4, generation, member_id, group=group) == 0
        assert (len(first.requests), len(second.requests_of(HeartbeatRequest))) == (requested, 1)
        # Back again.
        first.moved.clear()
        second.moved[group] = "a"
        assert await heartbeat(client, 4, generation, member_id, group=group) == 25
        assert len(first.requests_of(HeartbeatRequest)) == 1


@pytest.mark.parametrize("named", ["", "a", "b", "gone"])
async def test_a_group_without_a_coordinator_gets_a_retriable_error_after_two_attempts(named: str) -> None:
    cluster = await two_coordinators()
    (group,) = groups_of("a", 1)
    for coordinator in cluster.coordinators.values():
        coordinator.moved[group] = named
    async with running_gateway(cluster=cluster) as harness:
        topic = await harness.topic("t")
        assert topic.partitions == 1
        client = await harness.connect()
        assert (await join(client, 9, group=group)).error_code == 15
        assert sum(len(each.requests) for each in cluster.coordinators.values()) == (2 if named == "b" else 1)
        assert (await asking.sync(client, 5, 1, "m", group=group)).error_code == 15
        assert await heartbeat(client, 4, 1, "m", group=group) == 15
        assert await commit(client, {"t": {0: (1, "")}}, group=group) == [[15]]
        assert (await client.ask(13, 1, group_id=group, member_id="m")).error_code == 15
        (fetched,) = await asking.fetch(client, 8, {group: {"t": (0,)}})
        assert fetched.error_code == 14
        described = await client.ask(15, 6, groups=(group,), include_authorized_operations=True)
        assert [each.error_code for each in described.groups] == [15]
        assert [each.error_code for each in (await client.ask(42, 2, groups_names=(group,))).results] == [15]


async def test_group_requests_get_retriable_errors_without_coordinators() -> None:
    cluster = Cluster()
    await cluster.add("storage", FakeStorage())
    async with running_gateway(cluster=cluster) as harness:
        client = await harness.connect()
        assert (await client.ask(10, 1, key="g", key_type=0)).node_id == 0
        assert (await join(client, 9)).error_code == 15
        assert (await client.ask(16, 4, states_filter=())).error_code == 15
        coordinator = FakeCoordinator()
        await cluster.add_coordinator("late", coordinator)
        with trio.fail_after(5):
            error = 15
            while error == 15:
                error = (await join(client, 9)).error_code
        assert list(coordinator.groups) == ["g"]


@pytest.mark.parametrize("error", [Unavailable("no answer"), Refused("another service")])
async def test_a_join_of_unknown_outcome_is_not_repeated(error: Exception) -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        harness.coordinator.fails = error
        assert (await join(client, 3)).error_code == 15
        assert len(harness.coordinator.requests) == 1


async def test_a_join_waits_for_other_members_beyond_the_gateways_timeout() -> None:
    async with running_gateway(coordinator_timeout_ms=100) as harness:
        client, other = await harness.connect(), await harness.connect()
        member_id, generation = await stable(client)
        newcomer = await parked_join(harness, other)
        await trio.sleep(0.4)
        assert harness.coordinator.cancelled == []
        assert await heartbeat(client, 4, generation, member_id) == 27
        assert (await join(client, JOIN_VERSION, member_id)).error_code == 0
        _, body = await other.receive()
        joined = read_response(asking.JOIN, JOIN_VERSION, body)
        assert (joined.error_code, joined.member_id, joined.generation_id) == (0, newcomer, generation + 1)
        # SyncGroup waits for the leader in the same way.
        values: dict[str, Any] = {"group_id": "g", "generation_id": generation + 1, "member_id": newcomer}
        await other.send(asking.SYNC, 3, request(asking.SYNC, 3, assignments=(), **values))
        await trio.sleep(0.4)
        assignments = {newcomer: b"half", member_id: b"other half"}
        assert (await asking.sync(client, 3, generation + 1, member_id, assignments)).assignment == b"other half"
        _, body = await other.receive()
        assert read_response(asking.SYNC, 3, body).assignment == b"half"


async def test_a_waiting_join_blocks_only_its_own_connection() -> None:
    async with running_gateway() as harness:
        client, other, third = [await harness.connect() for _ in range(3)]
        member_id, _ = await stable(client)
        await parked_join(harness, other)
        behind = await other.send(18, 0, b"")
        assert (await third.ask(18, 0)).error_code == 0
        assert (await join(client, JOIN_VERSION, member_id)).error_code == 0
        first, _ = await other.receive()
        second, _ = await other.receive()
        assert first == second - 1
        assert second == behind


async def test_a_join_whose_connection_closes_is_cancelled_at_the_coordinator() -> None:
    async with running_gateway() as harness:
        client, other = await harness.connect(), await harness.connect()
        await stable(client)
        await parked_join(harness, other)
        await trio.aclose_forcefully(other.stream)
        await harness.coordinator.wait_until(lambda: len(harness.coordinator.cancelled) == 1)


async def test_a_waiting_join_fails_at_once_when_its_coordinator_goes_away() -> None:
    async with running_gateway() as harness:
        client, other = await harness.connect(), await harness.connect()
        await stable(client)
        await parked_join(harness, other)
        await harness.cluster.remove("coordinator")
        _, body = await other.receive()
        assert read_response(asking.JOIN, JOIN_VERSION, body).error_code == 15
        assert len(harness.coordinator.cancelled) == 1


async def test_requests_to_a_silent_coordinator_time_out() -> None:
    async with running_gateway(coordinator_timeout_ms=200) as harness:
        await harness.topic("t")
        client = await harness.connect()
        harness.coordinator.gate = trio.Event()
        with trio.fail_after(3):
            assert await heartbeat(client, 4, 1, "m") == 15
            assert await commit(client, {"t": {0: (1, "")}}) == [[15]]
            assert (await client.ask(16, 4, states_filter=())).error_code == 15
            (fetched,) = await asking.fetch(client, 7, {"g": None})
            assert fetched.error_code == 14


async def test_concurrent_heartbeats_share_calls() -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        member_id, generation = await stable(client)
        harness.coordinator.gate = trio.Event()
        clients = [await harness.connect() for _ in range(40)]
        errors: dict[int, int] = {}

        async def beat(number: int) -> None:
            # Every second one is of an unknown member.
            who = member_id if number % 2 else f"nobody-{number}"
            errors[number] = await heartbeat(clients[number], 4, generation, who)

        async with trio.open_nursery() as nursery:
            for number in range(len(clients)):
                nursery.start_soon(beat, number)
            await trio.sleep(0.3)
            harness.coordinator.gate.set()
        assert errors == {number: 0 if number % 2 else 25 for number in range(len(clients))}
        calls = [request for request in harness.coordinator.requests if isinstance(request, HeartbeatRequest)]
        assert sum(len(call.heartbeats) for call in calls) == len(clients)
        assert len(calls) <= 6


async def test_several_groups_take_one_call_per_coordinator_and_fail_independently() -> None:
    cluster = await two_coordinators()
    async with running_gateway(cluster=cluster) as harness:
        client = await harness.connect()
        of_a, of_b = groups_of("a", 2), groups_of("b", 2)
        for group in (*of_a, *of_b):
            await stable(client, group=group)
        names = (of_a[0], of_b[0], of_a[1], of_b[1])
        values = known_in(15, 6, groups=names, include_authorized_operations=False)
        reply = await client.ask(15, 6, **values)
        assert [(each.group_id, each.group_state) for each in reply.groups] == [(name, "Stable") for name in names]
        for coordinator in cluster.coordinators.values():
            assert len(coordinator.requests_of(DescribeGroupsRequest)) == 1
        listed = await client.ask(16, 4, states_filter=())
        assert [each.group_id for each in listed.groups] == sorted(names)
        cluster.coordinators["b"].fails = Unavailable("a test")
        reply = await client.ask(15, 6, **values)
        assert [each.error_code for each in reply.groups] == [0, 15, 0, 15]


async def test_commits_of_one_connection_are_stored_in_order() -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        client = await harness.connect()
        coordinator = harness.coordinator
        coordinator.gate = trio.Event()
        for offset in (100, 200):
            await client.send(8, 8, request(8, 8, **asking.commit_values(8, {"t": {0: (offset, "")}})))
        await coordinator.wait_until(lambda: bool(coordinator.requests))
        await trio.sleep(0.1)
        assert len(coordinator.requests_of(OffsetCommitRequest)) == 1
        coordinator.gate.set()
        for _ in range(2):
            await client.receive()
        assert coordinator.groups["g"].offsets["t", 0].offset == 200


async def test_heartbeats_succeed_and_syncs_rejoin_while_a_group_loads() -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        harness.coordinator.refuses = GroupError.COORDINATOR_LOAD_IN_PROGRESS
        assert await heartbeat(client, 4, 1, "m") == 0
        assert (await asking.sync(client, 5, 1, "m")).error_code == 27
        assert (await join(client, 9)).error_code == 14


async def test_a_commit_to_a_loading_group_gets_an_error_on_which_librdkafka_waits() -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        await harness.topic("t")
        harness.coordinator.refuses = GroupError.COORDINATOR_LOAD_IN_PROGRESS
        assert await commit(client, {"t": {0: (1, "")}}) == [[15]]


async def test_an_error_of_a_newer_release_becomes_an_unknown_error() -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        harness.coordinator.refuses = 9999  # type: ignore[assignment]
        assert (await join(client, 9)).error_code == -1
        assert not harness.parts.counters.broken, "this is not counted as a defect of the gateway"


async def test_gateways_agree_on_the_coordinators_and_list_each_group_once() -> None:
    cluster = Cluster()
    await cluster.add("storage", FakeStorage())
    await cluster.add_coordinator("coordinator", FakeCoordinator())
    groups = [f"group-{number}" for number in range(30)]
    async with AsyncExitStack() as stack:
        gateways = [await stack.enter_async_context(running_gateway(cluster=cluster)) for _ in range(3)]
        clients = [await gateway.connect() for gateway in gateways]
        for gateway in gateways:
            while len(list(gateway.gateways.view)) < len(gateways):
                await gateway.gateways.wait_change(gateway.gateways.view)
        found = []
        for client in clients:
            reply = await client.ask(10, 4, key_type=0, coordinator_keys=tuple(groups))
            found.append({each.key: (each.node_id, each.port) for each in reply.coordinators})
        assert found[0] == found[1] == found[2]
        ports = {number: gateway.listeners[0].port for number, gateway in enumerate(gateways)}
        assert {node for node, _ in found[0].values()} == set(ports)
        assert all(ports[node] == port for node, port in found[0].values())
        # Any gateway serves any group. Each lists the groups that it is the coordinator of.
        for group in groups:
            await stable(clients[0], group=group)
        listed = [[each.group_id for each in (await client.ask(16, 2)).groups] for client in clients]
        assert sorted(group for part in listed for group in part) == sorted(groups)
        for node, part in enumerate(listed):
            assert all(found[0][group][0] == node for group in part)


async def test_groups_are_listed_only_if_each_shard_has_one_coordinator() -> None:
    async with running_gateway(cluster=await two_coordinators()) as harness:
        client = await harness.connect()
        groups = [*groups_of("a", 2), *groups_of("b", 2)]
        for group in groups:
            await stable(client, group=group)

        async def listed() -> tuple[int, list[str]]:
            reply = await client.ask(asking.LIST, 4)
            return reply.error_code, [each.group_id for each in reply.groups]

        assert await listed() == (0, sorted(groups))
        of_a, of_b = (harness.cluster.coordinators[name].shards for name in ("a", "b"))
        # The shard has no owner for a while, so its groups are unknown.
        shard = of_b.pop()
        assert await listed() == (15, [])
        # The shard is being handed over, and one coordinator's view of it is outdated.
        of_b.extend((shard, of_a[0]))
        assert await listed() == (15, [])
        of_b.pop()
        assert await listed() == (0, sorted(groups))
        await harness.cluster.remove("b")
        while len(list(harness.parts.coordinators.view)) > 1:
            await harness.parts.coordinators.wait_change(harness.parts.coordinators.view)
        # No coordinator has loaded b's shards yet.
        assert await listed() == (15, [])


async def test_sync_requests_have_their_own_size_limit() -> None:
    async with running_gateway(max_control_request_bytes=10_000, max_group_request_bytes=40_000) as harness:
        client = await harness.connect()
        await stable(client, assignment=b"x" * 30_000)
        (sync,) = harness.coordinator.requests_of(SyncGroupRequest)
        assert isinstance(sync, SyncGroupRequest)
        assert len(sync.assignments[0].assignment) == 30_000
        big = known_in(14, 3, group_id="g", generation_id=1, member_id="m" * 30_000, assignments=())
        big["assignments"] = (nested(14, 3, "SyncGroupRequestAssignment")(member_id="m", assignment=b"x" * 15_000),)
        await client.send(14, 3, request(14, 3, **big))
        assert await client.closed()


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("2001:db8::ab", "/2001:db8:0:0:0:0:0:ab"),
        ("::ffff:10.0.0.7", "/10.0.0.7"),
    ],
)
def test_hosts_have_kafkas_format(address: str, host: str) -> None:
    assert kafka_host(address) == host
