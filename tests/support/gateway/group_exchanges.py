"""For every API of consumer groups and each version: requests of that version, and checks of the replies."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from kafscale.errors import Unavailable
from kafscale.v1.coordinator_pb2 import GroupError, JoinGroupRequest, OffsetCommitRequest, OffsetFetchRequest
from tests.support.gateway import group_asking as asking
from tests.support.gateway.exchanges import UNKNOWN_ID, Exchange, nested
from tests.support.gateway.group_asking import (
    commit,
    heartbeat,
    join,
    joined,
    known_in,
    offsets_of,
    stable,
    subscription,
)
from tests.support.gateway.harness import Client, Harness

NO_TIME = timedelta(0)


async def find_coordinator(harness: Harness, client: Client, version: int) -> None:
    here = (0, "127.0.0.1", harness.listeners[0].port)
    if version < 4:
        reply = await client.ask(10, version, key="g")
        assert (reply.error_code, reply.node_id, reply.host, reply.port) == (0, *here)
        assert version < 1 or (reply.throttle_time, reply.error_message) == (NO_TIME, None)
    else:
        reply = await client.ask(10, version, key_type=0, coordinator_keys=("g", "other"))
        assert reply.throttle_time == NO_TIME
        found = [(each.key, each.error_code, each.node_id, each.host, each.port) for each in reply.coordinators]
        assert found == [("g", 0, *here), ("other", 0, *here)]
    if version < 1:
        return
    # Transactions, share groups, and an invalid type.
    for key_type, error in ((1, 31), (2, 42), (7, 42)):
        key: dict[str, Any] = {"coordinator_keys": ("x",)} if version >= 4 else {"key": "x"}
        reply = await client.ask(10, version, key_type=key_type, **key)
        refused = reply.coordinators[0] if version >= 4 else reply
        assert (refused.error_code, refused.node_id, refused.host, refused.port) == (error, -1, "", -1)
        assert "consumer groups" in refused.error_message


async def join_group(harness: Harness, client: Client, version: int) -> None:
    reply = await join(client, version, reason="new")
    assert version < 2 or reply.throttle_time == NO_TIME
    if version >= 4:
        assert (reply.error_code, reply.generation_id, reply.members) == (79, -1, ())
        assert reply.protocol_name == ("" if version < 7 else None)
        reply = await join(client, version, reply.member_id, reason="new")
    assert (reply.error_code, reply.generation_id, reply.protocol_name) == (0, 1, "range")
    assert reply.member_id.startswith("test-")
    assert reply.leader == reply.member_id
    (member,) = reply.members
    assert (member.member_id, member.metadata) == (reply.member_id, subscription("t"))
    if version >= 5:
        assert member.group_instance_id is None
    if version >= 7:
        assert reply.protocol_type == "consumer"
    if version >= 9:
        assert reply.skip_assignment is False
    last = harness.coordinator.requests_of(JoinGroupRequest)[-1]
    assert isinstance(last, JoinGroupRequest)
    assert (last.client_id, last.client_host, last.reason) == ("test", "/127.0.0.1", "new" if version >= 8 else "")
    assert (last.session_timeout_ms, last.rebalance_timeout_ms) == (10_000, 60_000 if version else 0)
    assert (last.member_id_required, last.skips_assignment) == (version >= 4, version >= 9)
    if version >= 5:
        static = await join(client, version, group="static", instance="i")
        assert (static.error_code, static.members[0].group_instance_id) == (0, "i")
        fenced = await join(client, version, "another", group="static", instance="i")
        assert fenced.error_code == 82
    for error, options in ((26, {"session_ms": 1}), (23, {"protocols": {}}), (24, {"group": ""})):
        refused = await join(client, version, **options)
        assert (refused.error_code, refused.generation_id, refused.leader, refused.members) == (error, -1, "", ())
        assert refused.protocol_name == ("" if version < 7 else None)
        assert version < 7 or refused.protocol_type is None
    assert (await join(client, version, "nobody")).error_code == 25


async def sync_group(harness: Harness, client: Client, version: int) -> None:
    options: dict[str, Any] = {"instance": "i"} if version >= 3 else {}
    member = await joined(client, 5, **options)
    assignments = {member.member_id: b"\x00any bytes\xff"}
    reply = await asking.sync(client, version, 1, member.member_id, assignments, **options)
    assert (reply.error_code, reply.assignment) == (0, assignments[member.member_id])
    assert version < 1 or reply.throttle_time == NO_TIME
    assert version < 5 or (reply.protocol_type, reply.protocol_name) == ("consumer", "range")
    refused = await asking.sync(client, version, 9, member.member_id, **options)
    assert (refused.error_code, refused.assignment) == (22, b"")
    assert version < 5 or (refused.protocol_type, refused.protocol_name) == (None, None)
    assert (await asking.sync(client, version, 1, "nobody")).error_code == 25
    assert (await asking.sync(client, version, 1, "nobody", group="unknown")).error_code == 25
    if version >= 3:
        assert (await asking.sync(client, version, 1, "another", instance="i")).error_code == 82
    others: tuple[dict[str, Any], ...] = (
        {"protocol": "other"},
        {"protocol_type": "other"},
        {"protocol": None},
        {"protocol_type": None},
    )
    for other in others:
        checked = await asking.sync(client, version, 1, member.member_id, **options, **other)
        assert checked.error_code == (23 if version >= 5 else 0)


async def beat(harness: Harness, client: Client, version: int) -> None:
    options: dict[str, Any] = {"instance": "i"} if version >= 3 else {}
    member_id, generation = await stable(client, **options)
    assert await heartbeat(client, version, generation, member_id, **options) == 0
    assert await heartbeat(client, version, generation + 1, member_id, **options) == 22
    assert await heartbeat(client, version, generation, "nobody") == 25
    assert await heartbeat(client, version, generation, member_id, group="unknown") == 25
    if version >= 3:
        assert await heartbeat(client, version, generation, "another", instance="i") == 82


async def leave_group(harness: Harness, client: Client, version: int) -> None:
    first, _ = await stable(client)
    await stable(client, group="static", instance="i")
    if version < 3:
        for error in (0, 25):
            reply = await client.ask(13, version, group_id="g", member_id=first)
            assert reply.error_code == error
            assert version < 1 or reply.throttle_time == NO_TIME
    else:
        identity = nested(13, version, "MemberIdentity")
        reason = {"reason": "the end"} if version >= 5 else {}
        members = (identity(member_id=first, **reason), identity(member_id="nobody", **reason))
        reply = await client.ask(13, version, group_id="g", members=members)
        assert (reply.error_code, reply.throttle_time) == (0, NO_TIME)
        results = [(each.member_id, each.group_instance_id, each.error_code) for each in reply.members]
        assert results == [(first, None, 0), ("nobody", None, 25)]
        members = (identity(member_id="", group_instance_id="i"), identity(member_id="x", group_instance_id="y"))
        reply = await client.ask(13, version, group_id="static", members=members)
        assert [(each.group_instance_id, each.error_code) for each in reply.members] == [("i", 0), ("y", 25)]
        assert asking.members_of(harness, "static") == []
    assert asking.members_of(harness) == []
    nobody: dict[str, Any] = {"members": ()} if version >= 3 else {"member_id": "m"}
    assert (await client.ask(13, version, group_id="", **nobody)).error_code == 24


async def offset_commit(harness: Harness, client: Client, version: int) -> None:
    topic = await harness.topic("t", 2)
    by_id = version >= 10
    known: Any = UUID(bytes=topic.id) if by_id else "t"
    unknown: Any = UNKNOWN_ID if by_id else "unknown"
    offsets: dict[Any, Any] = {known: {0: (5, None), 7: (1, ""), 1: (6, "x" * 5000)}, unknown: {0: (1, "")}}
    values = asking.commit_values(version, offsets, retention_ms=1000, leader_epoch=3)
    reply = await client.ask(8, version, **values)
    assert version < 3 or reply.throttle_time == NO_TIME
    assert [each.topic_id if by_id else each.name for each in reply.topics] == [known, unknown]
    errors = [[(each.partition_index, each.error_code) for each in part.partitions] for part in reply.topics]
    assert errors == [[(0, 0), (7, 3), (1, 12)], [(0, 100 if by_id else 3)]]
    stored = harness.coordinator.groups["g"].offsets
    assert list(stored) == [("t", 0)]
    committed = stored["t", 0]
    assert (committed.offset, committed.metadata, committed.leader_epoch) == (5, "", 3 if version >= 6 else -1)
    assert (committed.expires_ms is None) == (version >= 5)
    nothing = await commit(client, {unknown: {0: (1, "")}}, version=version, group="nothing")
    assert nothing == [[100 if by_id else 3]]
    # Members identify themselves.
    instance: dict[str, Any] = {"instance": "i"} if version >= 7 else {}
    member_id, generation = await stable(client, group="live", **instance)
    who: dict[str, Any] = {"version": version, "group": "live", **instance}
    good = {known: {0: (1, "")}}
    assert await commit(client, good, generation=generation, member_id=member_id, **who) == [[0]]
    assert await commit(client, good, generation=9, member_id=member_id, **who) == [[22]]
    assert await commit(client, good, version=version, group="live") == [[25]]
    if version >= 7:
        assert await commit(client, good, generation=generation, member_id="another", **who) == [[82]]
    gone: dict[str, Any] = {"version": version, "group": "gone", "generation": 1, "member_id": "m"}
    assert await commit(client, good, **gone) == [[69 if version >= 9 else 22]]
    request = harness.coordinator.requests_of(OffsetCommitRequest)[0]
    assert isinstance(request, OffsetCommitRequest)
    assert request.retention_ms == (1000 if version < 5 else -1)


async def offset_fetch(harness: Harness, client: Client, version: int) -> None:
    topic = await harness.topic("two", 2)
    by_id = version >= 10
    known: Any = UUID(bytes=topic.id) if by_id else "two"
    assert await commit(client, {"two": {1: (5, "note")}}, leader_epoch=4) == [[0]]
    (group,) = await asking.fetch(client, version, {"g": {known: (0, 1)}}, require_stable=True)
    assert offsets_of(group) == [(0, -1, "", 0), (1, 5, "note", 0)]
    (part,) = group.topics
    assert (part.topic_id if by_id else part.name) == known
    if version >= 5:
        assert [each.committed_leader_epoch for each in part.partitions] == [-1, 4]
    assert version < 2 or group.error_code == 0
    (other,) = await asking.fetch(client, version, {"unknown": {known: (0,)}})
    assert offsets_of(other) == [(0, -1, "", 0)]
    if version >= 2:
        (everything,) = await asking.fetch(client, version, {"g": None})
        assert offsets_of(everything) == [(1, 5, "note", 0)]
        (nothing,) = await asking.fetch(client, version, {"unknown": None})
        assert (nothing.topics, nothing.error_code) == ((), 0)
    if version >= 7:
        first, second = harness.coordinator.requests_of(OffsetFetchRequest)[:2]
        assert isinstance(first, OffsetFetchRequest)
        assert isinstance(second, OffsetFetchRequest)
        assert (first.require_stable, second.require_stable) == (True, False)
    if version >= 8:
        groups = await asking.fetch(client, version, {"g": {known: (1,)}, "unknown": None, "h": {known: (1,)}})
        assert [each.group_id for each in groups] == ["g", "unknown", "h"]
        assert list(map(offsets_of, groups)) == [[(1, 5, "note", 0)], [], [(1, -1, "", 0)]]
    if by_id:
        (unknown,) = await asking.fetch(client, version, {"g": {UNKNOWN_ID: (0,), known: (1,)}})
        assert offsets_of(unknown) == [(0, -1, "", 100), (1, 5, "note", 0)]
    harness.coordinator.refuses = GroupError.COORDINATOR_LOAD_IN_PROGRESS
    (refused,) = await asking.fetch(client, version, {"g": {known: (0, 1)}})
    if version < 2:
        assert offsets_of(refused) == [(0, -1, "", 14), (1, -1, "", 14)]
    else:
        assert (refused.error_code, refused.topics) == (14, ())


async def describe_groups(harness: Harness, client: Client, version: int) -> None:
    instance: dict[str, Any] = {"instance": "i"} if version >= 4 else {}
    member_id, _ = await stable(client, assignment=b"assigned", **instance)
    asked_for = known_in(15, version, include_authorized_operations=True)
    reply = await client.ask(15, version, groups=("g", "unknown"), **asked_for)
    assert version < 1 or reply.throttle_time == NO_TIME
    group, unknown = reply.groups
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "test", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"assigned")
    assert version < 4 or member.group_instance_id == "i"
    if version >= 3:
        assert group.authorized_operations == sum(1 << operation for operation in (3, 6, 8, 10, 11))
        plain = await client.ask(15, version, groups=("g",), include_authorized_operations=False)
        assert plain.groups[0].authorized_operations == -(1 << 31)
    assert (unknown.group_id, unknown.group_state, unknown.members) == ("unknown", "Dead", ())
    assert unknown.error_code == (69 if version >= 6 else 0)
    assert version < 6 or (group.error_message, unknown.error_message) == (None, "Group unknown not found.")
    harness.coordinator.refuses = GroupError.COORDINATOR_LOAD_IN_PROGRESS
    reply = await client.ask(15, version, groups=("g",), **asked_for)
    assert [each.error_code for each in reply.groups] == [14]


async def list_groups(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t")
    await stable(client, group="live")
    await commit(client, {"t": {0: (1, "")}}, group="simple")

    async def listed(**filters: Any) -> list[Any]:
        reply = await client.ask(16, version, **filters)
        assert reply.error_code == 0
        assert version < 1 or reply.throttle_time == NO_TIME
        return list(reply.groups)

    groups = await listed()
    assert [(each.group_id, each.protocol_type) for each in groups] == [("live", "consumer"), ("simple", "")]
    if version >= 4:
        assert [each.group_state for each in groups] == ["Stable", "Empty"]
        assert [each.group_id for each in await listed(states_filter=("stable", "Dead"))] == ["live"]
    if version >= 5:
        assert [each.group_type for each in groups] == ["classic", "classic"]
        assert await listed(types_filter=("consumer",)) == []
        assert len(await listed(types_filter=("Classic",))) == 2
    harness.coordinator.fails = Unavailable("a test")
    reply = await client.ask(16, version)
    assert (reply.error_code, reply.groups) == (15, ())


async def delete_groups(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t")
    await stable(client, group="live")
    await commit(client, {"t": {0: (1, "")}}, group="empty")
    reply = await client.ask(42, version, groups_names=("live", "empty", "unknown", "empty"))
    assert reply.throttle_time == NO_TIME
    results = [(each.group_id, each.error_code) for each in reply.results]
    assert results == [("live", 68), ("empty", 0), ("unknown", 69)]
    assert list(harness.coordinator.groups) == ["live"]


async def offset_delete(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("two", 2)
    await harness.topic("left")
    topic, partition = (
        nested(47, version, "OffsetDeleteRequestTopic"),
        nested(47, version, "OffsetDeleteRequestPartition"),
    )

    async def delete(group: str, **topics: tuple[int, ...]) -> Any:
        named = tuple(
            topic(name=name, partitions=tuple(partition(partition_index=index) for index in indexes))
            for name, indexes in topics.items()
        )
        reply = await client.ask(47, version, group_id=group, topics=named)
        assert reply.throttle_time == NO_TIME
        return reply.error_code, [[int(each.error_code) for each in part.partitions] for part in reply.topics]

    offsets = {"two": {0: (1, ""), 1: (1, "")}, "left": {0: (1, "")}}
    assert await commit(client, offsets) == [[0, 0], [0]]
    assert await delete("g", two=(0, 9), unknown=(0,)) == (0, [[0, 3], [3]])
    assert list(harness.coordinator.groups["g"].offsets) == [("two", 1), ("left", 0)]
    await stable(client, protocols={"range": subscription("two")})
    assert await delete("g", two=(1,), left=(0,)) == (0, [[86], [0]])
    assert await delete("unknown", two=(0,)) == (69, [])
    assert await delete("g", unknown=(0,)) == (0, [[3]])


GROUP_EXCHANGES: dict[int, Exchange] = {
    8: offset_commit,
    9: offset_fetch,
    10: find_coordinator,
    11: join_group,
    12: beat,
    13: leave_group,
    14: sync_group,
    15: describe_groups,
    16: list_groups,
    42: delete_groups,
    47: offset_delete,
}
