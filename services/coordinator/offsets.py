"""Commit, fetch, deletion and expiry of offsets."""

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

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
from services.coordinator.stored import delete_stored, offset_record, write_header
from services.coordinator.table import Act, Ask, Cause, State
from services.coordinator.turn import Turn

_NOTHING_COMMITTED = -1
_LATEST_MS = 2**63 - 1
_MOST_LATE_MS = 600_000


def without_membership(request: OffsetCommitRequest) -> bool:
    """Return whether a commit comes from a consumer with manual assignment, or from an admin client."""
    return request.generation < 0 and not request.member_id and not request.HasField("instance_id")


class Replaced(NamedTuple):
    """A committed offset that a commit would replace and that has another topic id."""

    topic: str
    partition: int
    topic_id: bytes


def replaced(group: Group, request: OffsetCommitRequest) -> AbstractSet[Replaced]:
    """Return the committed offsets that a commit would replace and that have another topic id."""
    present = ((item, group.offsets.get((item.topic, item.partition))) for item in request.offsets)
    return {
        Replaced(item.topic, item.partition, offset.topic_id)
        for item, offset in present
        if offset is not None and offset.topic_id != item.topic_id
    }


def commit(turn: Turn, request: OffsetCommitRequest, ticket: int, gone: AbstractSet[bytes]) -> None:
    group = turn.group
    error = _commit_refusal(turn, request)
    if error != E.NONE:
        turn.reply(ticket, OffsetCommitReply(error=error))
        return
    member = group.members.get(request.member_id)
    if member is not None:
        turn.keep_session(member)
    quota = _MetadataQuota(turn)
    errors = [_offset_error(quota, item, gone) for item in request.offsets]
    accepted = [item for item, code in zip(request.offsets, errors, strict=True) if code == E.NONE]
    if accepted and not group.has_header:
        write_header(turn)
    committed_ms = turn.now.wall_ms
    expires_ms = min(committed_ms + request.retention_ms, _LATEST_MS) if request.retention_ms >= 0 else None
    for item in accepted:
        partition = (item.topic, item.partition)
        offset = Offset(item.offset, item.leader_epoch, item.metadata, committed_ms, expires_ms, item.topic_id)
        if _is_unchanged(turn, group.offsets.get(partition), offset):
            continue
        group.offsets[partition] = offset
        turn.effects.commit.append(offset_record(group.keys, partition, offset))
    turn.reply(ticket, OffsetCommitReply(errors=errors))


def _commit_refusal(turn: Turn, request: OffsetCommitRequest) -> "E.Code":
    if without_membership(request) or (request.generation < 0 and turn.group.state is State.EMPTY):
        return turn.answer_to(Ask.COMMIT_SIMPLE).error
    instance_id = request.instance_id if request.HasField("instance_id") else None
    return turn.refusal(Ask.COMMIT, request.member_id, instance_id, request.generation)


def _offset_error(quota: "_MetadataQuota", item: OffsetToCommit, gone: AbstractSet[bytes]) -> "E.Code":
    if item.topic_id in gone:
        return E.UNKNOWN_TOPIC_OR_PARTITION
    return E.NONE if quota.accepts(item) else E.OFFSET_METADATA_TOO_LARGE


class _MetadataQuota:
    """The limits on offset metadata: for each offset, and for all offsets of the group together."""

    def __init__(self, turn: Turn) -> None:
        self._longest = turn.limits.offset_metadata_max_bytes
        self._offsets = turn.group.offsets
        # Metadata sizes of the accepted items of this request.
        self._changed: dict[tuple[str, int], int] = {}
        self._free = turn.limits.metadata_total_bytes - self._offsets.metadata_bytes

    def accepts(self, item: OffsetToCommit) -> bool:
        # Kafka counts UTF-16 units.
        if len(item.metadata.encode("utf-16-le")) // 2 > self._longest:
            return False
        partition, size = (item.topic, item.partition), len(item.metadata.encode())
        before = self._changed.get(partition)
        more = size - (self._offsets.metadata_bytes_of(partition) if before is None else before)
        if more > max(self._free, 0):
            return False
        self._changed[partition] = size
        self._free -= more
        return True


def _is_unchanged(turn: Turn, stored: Offset | None, offset: Offset) -> bool:
    """Return whether storing ``offset`` would only change the commit time slightly.

    Consumers commit all their partitions at each interval, even those without new records.
    """
    if stored is None or stored.expires_ms is not None or offset.expires_ms is not None:
        return False
    late_ms = min(_MOST_LATE_MS, turn.limits.offsets_retention_ms // 10)
    return (
        0 <= offset.committed_ms - stored.committed_ms < late_ms
        and replace(stored, committed_ms=offset.committed_ms) == offset
    )


def fetched(group: Group | None, query: GroupOffsetsQuery) -> GroupOffsets:
    """Return the committed offsets; -1 if there is none, also for a group that does not exist."""
    offsets = {} if group is None or group.state is State.DEAD else group.offsets
    requested = sorted(offsets) if query.all else [(p.topic, p.partition) for p in query.partitions]
    reply = GroupOffsets(group=query.group)
    for topic, partition in requested:
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
    if answer.act is Act.DELETE_GROUP:
        delete_stored(turn)
        turn.die(Cause.DELETED, E.COORDINATOR_NOT_AVAILABLE)


def expire_offsets(turn: Turn, gone: AbstractSet[bytes]) -> None:
    """Remove offsets of ``gone`` topics or past their retention, and then a group that is empty and has none left."""
    group = turn.group
    expired = [
        partition
        for partition, offset in group.offsets.items()
        if offset.topic_id in gone or _is_over(turn, partition[0], offset)
    ]
    if group.state is State.EMPTY and len(expired) == len(group.offsets) and not group.pending:
        delete_stored(turn)
        turn.die(Cause.EXPIRED, E.COORDINATOR_NOT_AVAILABLE)
        return
    for partition in expired:
        _forget(turn, partition)


def _is_over(turn: Turn, topic: str, offset: Offset) -> bool:
    group = turn.group
    since = offset.committed_ms
    if group.protocol_type:
        if group.state is State.EMPTY:
            # Offsets that an administrator sets in a group that has long been empty get the full retention.
            since = max(since, group.changed_ms)
        elif group.state is not State.STABLE or group.topics is None or topic in group.topics:
            return False
    if offset.expires_ms is not None:
        return turn.now.wall_ms >= offset.expires_ms
    return turn.now.wall_ms - since >= turn.limits.offsets_retention_ms
