"""Consumer groups as clients see them through the gateway."""

from datetime import timedelta
from struct import pack
from uuid import UUID

import pytest

from kafscale.errors import Unavailable
from kafscale.metadata.memory import Fault
from kafscale.metadata.topic_values import TopicInfo
from kafscale.metadata.topics import TopicCatalog
from kafscale.paths import member_key
from kafscale.v1 import coordinator_pb2 as pb
from services.gateway.coordinators.errors import NO_COORDINATOR_FOR_FETCH
from tests.support.gateway import group_asking as asking
from tests.support.gateway.exchanges import nested
from tests.support.gateway.group_asking import commit, heartbeat, join, joined, offsets_of, stable, subscription
from tests.support.gateway.harness import NAMESPACE, Client, read_response, request, running_gateway


async def test_each_member_gets_the_leaders_assignment_unchanged() -> None:
    async with running_gateway() as harness:
        client, other = await harness.connect(), await harness.connect()
        protocols = {"sticky": b"\x00 not a subscription \xff", "range": subscription("t")}
        first, _ = await stable(client, protocols=protocols)
        second = (await join(other, 5, protocols=protocols)).member_id
        await other.send(11, 5, request(11, 5, **asking.join_values(5, second, protocols=protocols)))
        await harness.coordinator.wait_until(lambda: len(asking.members_of(harness)) == 2)
        led = await join(client, 5, first, protocols=protocols)
        assert (led.leader, led.protocol_name) == (first, "sticky")
        assert {each.member_id: each.metadata for each in led.members} == dict.fromkeys(
            (first, second), protocols["sticky"]
        )
        _, body = await other.receive()
        follower = read_response(11, 5, body)
        assert (follower.leader, follower.members) == (first, ())
        assignments = {first: bytes(range(256)), second: b"\x00\x01 anything \xfe"}
        lead = await asking.sync(client, 3, led.generation_id, first, assignments)
        follow = await asking.sync(other, 3, led.generation_id, second)
        assert {first: lead.assignment, second: follow.assignment} == assignments


@pytest.mark.parametrize("version", [1, 7, 8])
async def test_a_missing_offset_is_minus_one_in_any_group(version: int) -> None:
    async with running_gateway() as harness:
        await harness.topic("t", 2)
        client = await harness.connect()
        (unknown,) = await asking.fetch(client, version, {"unknown": {"t": (0, 1)}})
        assert offsets_of(unknown) == [(0, -1, "", 0), (1, -1, "", 0)]
        await commit(client, {"t": {0: (0, None)}})
        (known,) = await asking.fetch(client, version, {"g": {"t": (0, 1)}})
        assert offsets_of(known) == [(0, 0, "", 0), (1, -1, "", 0)]


async def test_clients_without_membership_commit_and_fetch_all_offsets() -> None:
    async with running_gateway() as harness:
        await harness.topic("a", 2)
        await harness.topic("b")
        client = await harness.connect()
        offsets = {"a": {0: (3, "kept"), 1: (4, "")}, "b": {0: (5, "\N{SNOWMAN}")}}
        assert await commit(client, offsets, version=2) == [[0, 0], [0]]
        for version in (2, 5, 8, 9):
            (everything,) = await asking.fetch(client, version, {"g": None})
            assert [topic.name for topic in everything.topics] == ["a", "b"]
            assert offsets_of(everything) == [(0, 3, "kept", 0), (1, 4, "", 0), (0, 5, "\N{SNOWMAN}", 0)]


async def test_only_groups_without_members_can_be_deleted_with_their_offsets() -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        client = await harness.connect()
        member_id, generation = await stable(client)
        who = {"generation": generation, "member_id": member_id}
        assert await commit(client, {"t": {0: (7, "")}}, **who) == [[0]]  # type: ignore[arg-type]
        (refused,) = (await client.ask(42, 2, groups_names=("g",))).results
        assert refused.error_code == 68
        assert (await client.ask(13, 1, group_id="g", member_id=member_id)).error_code == 0
        assert [each.group_state for each in (await client.ask(16, 4, states_filter=())).groups] == ["Empty"]
        (deleted,) = (await client.ask(42, 2, groups_names=("g",))).results
        assert deleted.error_code == 0
        (nothing,) = await asking.fetch(client, 7, {"g": {"t": (0,)}})
        assert offsets_of(nothing) == [(0, -1, "", 0)]


async def test_a_rebalance_timeout_of_0_evicts_no_member() -> None:
    async with running_gateway() as harness:
        client, other = await harness.connect(), await harness.connect()
        member = await joined(client, 5, rebalance_ms=0, session_ms=10_000)
        assignments = {member.member_id: b"all"}
        assert (await asking.sync(client, 3, 1, member.member_id, assignments)).error_code == 0
        newcomer = (await join(other, 5)).member_id
        await other.send(11, 5, request(11, 5, **asking.join_values(5, newcomer)))
        await harness.coordinator.wait_until(lambda: len(asking.members_of(harness)) == 2)
        harness.coordinator.pass_time(5_000)
        assert asking.members_of(harness) == [member.member_id, newcomer]
        assert (await join(client, 5, member.member_id, rebalance_ms=0)).error_code == 0


@pytest.mark.parametrize("version", [0, 3])
async def test_members_of_an_unknown_group_are_unknown(version: int) -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        assert (await asking.sync(client, version, 1, "m")).error_code == 25
        assert await heartbeat(client, version, 1, "m") == 25
        if version < 3:
            assert (await client.ask(13, version, group_id="g", member_id="m")).error_code == 25
        else:
            member = nested(13, version, "MemberIdentity")(member_id="m")
            reply = await client.ask(13, version, group_id="g", members=(member,))
            assert (reply.error_code, [each.error_code for each in reply.members]) == (0, [25])


async def test_old_clients_join_with_one_request_and_new_ones_with_a_returned_id() -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        for version in range(10):
            group = f"group-{version}"
            first = await join(client, version, group=group)
            assert first.error_code == (79 if version >= 4 else 0)
            assert asking.members_of(harness, group) == ([] if version >= 4 else [first.member_id])
            if version >= 4:
                second = await join(client, version, first.member_id, group=group)
                assert (second.error_code, asking.members_of(harness, group)) == (0, [first.member_id])


async def test_a_returning_static_member_takes_its_place_and_fences_the_former_one() -> None:
    async with running_gateway() as harness:
        client, again = await harness.connect(), await harness.connect()
        former, generation = await stable(client, instance="i")
        reply = await join(again, 9, instance="i")
        assert (reply.error_code, reply.generation_id, reply.skip_assignment) == (0, generation, True)
        assert reply.member_id != former
        assert await heartbeat(client, 3, generation, former, instance="i") == 82
        synced = await asking.sync(again, 5, generation, reply.member_id, instance="i")
        assert synced.assignment == b"all"


async def test_a_client_without_a_name_joins() -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        body = request(11, 3, **asking.join_values(3))
        header = b"\x00\x0b\x00\x03\x00\x00\x00\x63\xff\xff"
        await client.stream.send_all((len(header) + len(body)).to_bytes(4, "big") + header + body)
        client.expect(99, 11, 3)
        _, answer = await client.receive()
        reply = read_response(11, 3, answer)
        assert (reply.error_code, reply.throttle_time) == (0, timedelta(0))
        (requested,) = harness.coordinator.requests_of(pb.JoinGroupRequest)
        assert isinstance(requested, pb.JoinGroupRequest)
        assert requested.client_id == ""


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 86_400_000_000_000_000, -(2**63), -2])
async def test_offsets_are_committed_with_any_retention_time(retention_ms: int) -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        client = await harness.connect()
        marker = 0x112233445566
        body = request(8, 2, **asking.commit_values(2, {"t": {0: (7, "")}}, retention_ms=marker))
        assert body.count(pack(">q", marker)) == 1
        await client.send(8, 2, body.replace(pack(">q", marker), pack(">q", retention_ms)))
        _, reply = await client.receive()
        assert [each.error_code for topic in read_response(8, 2, reply).topics for each in topic.partitions] == [0]
        (group,) = await asking.fetch(client, 5, {"g": {"t": (0,)}})
        assert offsets_of(group) == [(0, 7, "", 0)]
        [(_, offset)] = harness.coordinator.groups["g"].offsets.items()
        assert offset.expires_ms is None or offset.expires_ms < 1 << 63
        assert (offset.expires_ms is not None) == (retention_ms > 0)


@pytest.mark.parametrize("version", [2, 8, 10])
async def test_a_recreated_topic_does_not_inherit_committed_offsets(version: int) -> None:
    async with running_gateway() as harness:
        old, other = await harness.topic("t"), await harness.topic("other")
        client = await harness.connect()
        offsets = {"t": {0: (1000, "old")}, "other": {0: (7, "")}}
        assert await commit(client, offsets) == [[0], [0]]
        deleter = member_key(NAMESPACE, "storage", "storage")
        await harness.catalog.mark_deleting("t")
        await _no_offsets_of_t(client, version, other)
        assert await commit(client, offsets) == [[3], [0]]
        await harness.catalog.finish_delete("t", old.id, 5, deleter=deleter)
        new = await harness.catalog.create("t", 1, {}, now_ms=1, topic_id=b"N" * 16)
        await _no_offsets_of_t(client, version, other)
        name = UUID(bytes=new.id) if version >= 10 else "t"
        (named,) = await asking.fetch(client, version, {"g": {name: (0,)}})
        assert offsets_of(named) == [(0, -1, "", 0)]
        assert await commit(client, {"t": {0: (5, "new")}}) == [[0]]
        (named,) = await asking.fetch(client, version, {"g": {name: (0,)}})
        assert offsets_of(named) == [(0, 5, "new", 0)]


async def test_a_gateway_with_an_outdated_catalog_does_not_reset_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        # From here on this gateway's view is outdated. Others have created the topic, written, read and committed.
        monkeypatch.setattr(harness.catalog, "_show", lambda view: None)
        others = TopicCatalog(harness.metadata, NAMESPACE)
        await harness.nursery.start(others.run)
        topic = await others.create("t", 1, {}, now_ms=1, topic_id=b"N" * 16)
        offset = pb.OffsetToCommit(topic="t", topic_id=topic.id, partition=0, offset=9)
        await harness.coordinator.offset_commit(
            pb.OffsetCommitRequest(group="g", generation=-1, offsets=[offset]), timeout=5
        )
        for topics in (None, {"t": (0,)}):
            (group,) = await asking.fetch(client, 8, {"g": topics})
            assert offsets_of(group) == [(0, 9, "", 0)]
        harness.metadata.faults.append(Fault(method="read_prefix", before=Unavailable("no etcd")))
        (group,) = await asking.fetch(client, 8, {"g": {"t": (0,)}})
        assert group.error_code == NO_COORDINATOR_FOR_FETCH


async def _no_offsets_of_t(client: Client, version: int, other: TopicInfo) -> None:
    """Check that only the other topic has offsets."""
    (everything,) = await asking.fetch(client, version, {"g": None})
    assert offsets_of(everything) == [(0, 7, "", 0)]
    (topic,) = everything.topics
    assert (topic.topic_id.bytes == other.id) if version >= 10 else (topic.name == "other")
    if version < 10:
        (named,) = await asking.fetch(client, version, {"g": {"t": (0,)}})
        assert offsets_of(named) == [(0, -1, "", 0)]
