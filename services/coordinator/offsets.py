"""Committed offsets: who may commit them, who may delete them, and when they expire."""

from collections.abc import Set as AbstractSet

from kafscale.v1.coordinator_pb2 import (
    DeletedGroup,
    FetchedOffset,
    GroupOffsets,
    GroupOffsetsQuery,
    OffsetCommitReply,
    OffsetCommitRequest,
    OffsetDeleteReply,
    OffsetDeleteRequest,
    OffsetToCommit,
)
from kafscale.v1.coordinator_pb2 import GroupError as E
from services.coordinator.effects import Record
from services.coordinator.group import CONSUMER, Group, Offset
from services.coordinator.stored import bury, offset_record, write_header
from services.coordinator.table import Act, Ask, Cause, State
from services.coordinator.turn import Turn

_NOTHING_COMMITTED = -1


def without_membership(request: OffsetCommitRequest) -> bool:
    """Commits of consumers that assign by themselves, and of administrators."""
    return request.generation < 0 and not request.member_id and not request.HasField("instance_id")


def commit(turn: Turn, request: OffsetCommitRequest, ticket: int) -> None:
    group = turn.group
    error = _commit_refusal(turn, request)
    if error != E.NONE:
        turn.reply(ticket, OffsetCommitReply(error=error))
        return
    member = group.members.get(request.member_id)
    if member is not None:
        turn.keep_session(member)
    errors = [_metadata_error(turn, item) for item in request.offsets]
    stored = [item for item, wrong in zip(request.offsets, errors, strict=True) if wrong == E.NONE]
    if stored and not group.has_header:
        write_header(turn)
    committed_ms = turn.now.wall_ms
    expires_ms = committed_ms + request.retention_ms if request.retention_ms >= 0 else None
    for item in stored:
        partition = (item.topic, item.partition)
        offset = Offset(item.offset, item.leader_epoch, item.metadata, committed_ms, expires_ms, item.topic_id)
        group.offsets[partition] = offset
        turn.effects.commit.append(offset_record(group.keys, partition, offset))
    turn.reply(ticket, OffsetCommitReply(errors=errors))


def _commit_refusal(turn: Turn, request: OffsetCommitRequest) -> "E.Code":
    if without_membership(request) or (request.generation < 0 and turn.group.state is State.EMPTY):
        return turn.answer_to(Ask.COMMIT_SIMPLE).error
    instance_id = request.instance_id if request.HasField("instance_id") else None
    return turn.refusal(Ask.COMMIT, request.member_id, instance_id, request.generation)


def _metadata_error(turn: Turn, item: OffsetToCommit) -> "E.Code":
    # Kafka counts UTF-16 units.
    size = len(item.metadata.encode("utf-16-le")) // 2
    return E.OFFSET_METADATA_TOO_LARGE if size > turn.limits.offset_metadata_max_bytes else E.NONE


def fetched(group: Group | None, query: GroupOffsetsQuery) -> GroupOffsets:
    """What is committed; -1 where nothing is, also of a group that does not exist."""
    offsets = {} if group is None or group.state is State.DEAD else group.offsets
    wanted = sorted(offsets) if query.all else [(p.topic, p.partition) for p in query.partitions]
    reply = GroupOffsets(group=query.group)
    for topic, partition in wanted:
        found = offsets.get((topic, partition))
        reply.offsets.append(
            FetchedOffset(topic=topic, partition=partition, offset=_NOTHING_COMMITTED, leader_epoch=-1)
            if found is None
            else FetchedOffset(
                topic=topic,
                partition=partition,
                offset=found.offset,
                leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                topic_id=found.topic_id,
            )
        )
    return reply


def delete_offsets(turn: Turn, request: OffsetDeleteRequest, ticket: int) -> None:
    group = turn.group
    answer = turn.answer_to(Ask.DELETE_OFFSETS)
    if answer.act is Act.DELETE_UNSUBSCRIBED and group.protocol_type != CONSUMER:
        turn.reply(ticket, OffsetDeleteReply(error=E.NON_EMPTY_GROUP))
        return
    reply = OffsetDeleteReply(error=answer.error)
    for named in request.partitions if answer.error == E.NONE else ():
        subscribed = answer.act is Act.DELETE_UNSUBSCRIBED and group.is_subscribed(named.topic)
        reply.errors.append(E.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else E.NONE)
        if not subscribed and (named.topic, named.partition) in group.offsets:
            _forget(turn, (named.topic, named.partition))
    turn.reply(ticket, reply)


def _forget(turn: Turn, partition: tuple[str, int]) -> None:
    del turn.group.offsets[partition]
    turn.effects.commit.append(Record(turn.group.keys.offset(*partition), None))


def delete_group(turn: Turn, ticket: int) -> None:
    answer = turn.answer_to(Ask.DELETE)
    turn.reply(ticket, DeletedGroup(group=turn.group.group_id, error=answer.error))
    if answer.act is Act.BURY:
        bury(turn)
        turn.die(Cause.DELETED, E.COORDINATOR_NOT_AVAILABLE)


def expire_offsets(turn: Turn, gone: AbstractSet[bytes]) -> None:
    """Forget offsets of topics that are ``gone`` or whose retention is over, and an empty group that has none left."""
    group = turn.group
    expired = [
        partition
        for partition, offset in group.offsets.items()
        if offset.topic_id in gone or _is_over(turn, partition[0], offset)
    ]
    if group.state is State.EMPTY and len(expired) == len(group.offsets) and not group.pending:
        bury(turn)
        turn.die(Cause.EXPIRED, E.COORDINATOR_NOT_AVAILABLE)
        return
    for partition in expired:
        _forget(turn, partition)


def _is_over(turn: Turn, topic: str, offset: Offset) -> bool:
    group = turn.group
    since = offset.committed_ms
    if group.protocol_type:
        if group.state is State.EMPTY:
            # What an administrator sets in a group that has long been empty is kept as long as any commit.
            since = max(since, group.changed_ms)
        elif group.state is not State.STABLE or group.topics is None or topic in group.topics:
            return False
    if offset.expires_ms is not None:
        return turn.now.wall_ms >= offset.expires_ms
    return turn.now.wall_ms - since >= turn.limits.offsets_retention_ms
