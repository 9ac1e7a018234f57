"""Helpers for requests about consumer groups, in any version."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from struct import pack
from typing import Any
from uuid import UUID

from kio.index import load_request_schema

from tests.support.gateway.exchanges import nested
from tests.support.gateway.harness import Client, Harness

(
    OFFSET_COMMIT,
    OFFSET_FETCH,
    FIND_COORDINATOR,
    JOIN,
    HEARTBEAT,
    LEAVE,
    SYNC,
    DESCRIBE,
    LIST,
    DELETE_GROUPS,
    OFFSET_DELETE,
) = 8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47


def subscription(*topics: str) -> bytes:
    """Encode a consumer's subscription for the leader of its group."""
    names = b"".join(pack(">h", len(topic)) + topic.encode() for topic in topics)
    return pack(">hi", 0, len(topics)) + names + pack(">i", 0)


def known_in(api_key: int, version: int, **values: Any) -> dict[str, Any]:
    """Return the values that the request has in this version."""
    return {name: value for name, value in values.items() if name in _fields(api_key, version)}


def _fields(api_key: int, version: int) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = load_request_schema(api_key, version).__dataclass_fields__
    return fields


def join_values(
    version: int,
    member_id: str = "",
    *,
    group: str = "g",
    instance: str | None = None,
    protocol_type: str = "consumer",
    protocols: Mapping[str, bytes] | None = None,
    session_ms: int = 10_000,
    rebalance_ms: int = 60_000,
    reason: str | None = None,
) -> dict[str, Any]:
    protocol = nested(JOIN, version, "JoinGroupRequestProtocol")
    named = {"range": subscription("t")} if protocols is None else protocols
    return known_in(
        JOIN,
        version,
        group_id=group,
        session_timeout=timedelta(milliseconds=session_ms),
        rebalance_timeout=timedelta(milliseconds=rebalance_ms),
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=tuple(protocol(name=name, metadata=metadata) for name, metadata in named.items()),
        reason=reason,
    )


async def join(client: Client, version: int = 5, member_id: str = "", **options: Any) -> Any:
    """Send one JoinGroup. `joined` completes the join."""
    return await client.ask(JOIN, version, **join_values(version, member_id, **options))


async def joined(client: Client, version: int = 5, **options: Any) -> Any:
    """Join as a new member, with a second request if the first one only returns the member id."""
    reply = await join(client, version, **options)
    if reply.error_code == 79:
        reply = await join(client, version, reply.member_id, **options)
    assert reply.error_code == 0
    return reply


async def sync(
    client: Client,
    version: int,
    generation: int,
    member_id: str,
    assignments: Mapping[str, bytes] | None = None,
    *,
    group: str = "g",
    instance: str | None = None,
    protocol_type: str | None = "consumer",
    protocol: str | None = "range",
) -> Any:
    assignment = nested(SYNC, version, "SyncGroupRequestAssignment")
    values = known_in(
        SYNC,
        version,
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignments=tuple(assignment(member_id=name, assignment=part) for name, part in (assignments or {}).items()),
    )
    return await client.ask(SYNC, version, **values)


async def stable(client: Client, *, group: str = "g", assignment: bytes = b"all", **options: Any) -> tuple[str, int]:
    """Form a group with one member. Return the member's id and the generation."""
    member = await joined(client, group=group, **options)
    assignments = {member.member_id: assignment}
    instance = options.get("instance")
    reply = await sync(client, 3, member.generation_id, member.member_id, assignments, group=group, instance=instance)
    assert (reply.error_code, reply.assignment) == (0, assignment)
    return member.member_id, member.generation_id


async def heartbeat(
    client: Client, version: int, generation: int, member_id: str, *, group: str = "g", instance: str | None = None
) -> int:
    """Send a heartbeat and return the error code."""
    reply = await client.ask(
        HEARTBEAT,
        version,
        **known_in(
            HEARTBEAT,
            version,
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        ),
    )
    assert version < 1 or reply.throttle_time == timedelta(0)
    return int(reply.error_code)


def commit_values(
    version: int,
    offsets: Mapping[str | UUID, Mapping[int, tuple[int, str | None]]],
    *,
    group: str = "g",
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
    retention_ms: int = -1,
    leader_epoch: int = -1,
) -> dict[str, Any]:
    """Build an OffsetCommit. ``offsets`` has offset and metadata by topic (since version 10: id) and partition."""
    topic = nested(OFFSET_COMMIT, version, "OffsetCommitRequestTopic")
    partition = nested(OFFSET_COMMIT, version, "OffsetCommitRequestPartition")
    epoch = {"committed_leader_epoch": leader_epoch} if version >= 6 else {}
    topics = tuple(
        topic(
            **{"topic_id" if version >= 10 else "name": named},
            partitions=tuple(
                partition(partition_index=index, committed_offset=offset, committed_metadata=metadata, **epoch)
                for index, (offset, metadata) in partitions.items()
            ),
        )
        for named, partitions in offsets.items()
    )
    return known_in(
        OFFSET_COMMIT,
        version,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        retention_time=timedelta(milliseconds=retention_ms),
        topics=topics,
    )


async def commit(client: Client, offsets: Mapping[Any, Any], *, version: int = 8, **options: Any) -> list[list[int]]:
    """Commit and return the error codes by topic and partition."""
    reply = await client.ask(OFFSET_COMMIT, version, **commit_values(version, offsets, **options))
    assert version < 3 or reply.throttle_time == timedelta(0)
    return [[int(partition.error_code) for partition in topic.partitions] for topic in reply.topics]


def fetch_values(
    version: int, groups: Mapping[str, Mapping[str | UUID, Sequence[int]] | None], *, require_stable: bool = False
) -> dict[str, Any]:
    """Build an OffsetFetch: partitions by topic (since version 10: id) and group; None for all. One group before v8."""
    topic_type = nested(OFFSET_FETCH, version, "OffsetFetchRequestTopic" + ("s" if version >= 8 else ""))
    made = {
        group: None
        if topics is None
        else tuple(
            topic_type(**{"topic_id" if version >= 10 else "name": named}, partition_indexes=tuple(partitions))
            for named, partitions in topics.items()
        )
        for group, topics in groups.items()
    }
    stable = known_in(OFFSET_FETCH, version, require_stable=require_stable)
    if version < 8:
        ((group, topics),) = made.items()
        return {"group_id": group, "topics": topics} | stable
    group_type = nested(OFFSET_FETCH, version, "OffsetFetchRequestGroup")
    return {"groups": tuple(group_type(group_id=group, topics=topics) for group, topics in made.items())} | stable


async def fetch(client: Client, version: int, groups: Mapping[str, Any], **options: Any) -> list[Any]:
    """Return the groups of the reply. Before version 8 the reply is the only group."""
    reply = await client.ask(OFFSET_FETCH, version, **fetch_values(version, groups, **options))
    assert version < 3 or reply.throttle_time == timedelta(0)
    return list(reply.groups) if version >= 8 else [reply]


def offsets_of(group: Any) -> list[tuple[int, int, str, int]]:
    """Return partition, offset, metadata and error of each entry in a group's part of an OffsetFetch reply."""
    return [
        (each.partition_index, each.committed_offset, each.metadata, int(each.error_code))
        for topic in group.topics
        for each in topic.partitions
    ]


def members_of(harness: Harness, group: str = "g") -> list[str]:
    """Return the coordinator's members of a group."""
    return list(harness.coordinator.groups[group].members)
