"""Resets the committed offsets of a group without members.

Raises RefusedPart, and the metadata store's Unavailable and Refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.v1 import admin_pb2 as pb
from kafscale.v1 import coordinator_pb2 as coordinator_pb
from kafscale.v1.common_pb2 import PartitionRef
from services.gateway.admin.consumer_groups import committed, described
from services.gateway.admin.logs import UNKNOWN, Ends, ends_of, key_of
from services.gateway.admin.partitions import known_topic, partition_of
from services.gateway.api import Environment
from services.gateway.coordinators.errors import NO_COORDINATOR, group_code
from services.gateway.owners.errors import RefusedPart

_WITHOUT_MEMBERSHIP = -1
_E = coordinator_pb.GroupError


@dataclass(frozen=True, slots=True)
class _Move:
    ref: PartitionRef
    before: int
    after: int


async def reset_offsets(environment: Environment, request: pb.ResetOffsetsRequest) -> pb.ResetOffsetsReply:
    """Set the offsets of all requested partitions, or of none if the ends of one partition are unknown."""
    if not request.group:
        raise RefusedPart(ErrorCode.invalid_group_id, "The group name must not be empty.")
    if request.WhichOneof("to") is None:
        raise RefusedPart(ErrorCode.invalid_request, "The request does not say to which offsets to reset the group.")
    exists = await _check_empty(environment, request.group)
    offsets = await committed(environment, request.group) if exists else ()
    moves = await _planned(environment, request, {(each.topic, each.partition): each.offset for each in offsets})
    if not request.validate_only:
        await _commit(environment, request.group, moves)
    reply = pb.ResetOffsetsReply()
    for move in moves:
        reply.offsets.add(topic=move.ref.topic, partition=move.ref.partition, before=move.before, after=move.after)
    return reply


async def _check_empty(environment: Environment, group: str) -> bool:
    """Return whether the group exists. Raises RefusedPart if it has members.

    The coordinator checks again when the offsets are committed.
    """
    try:
        found = await described(environment, group)
    except RefusedPart as refused:
        if refused.code is ErrorCode.group_id_not_found:
            return False
        raise
    if found.members or found.state not in ("Empty", "Dead"):
        raise _has_members(group, found.state)
    return True


def _has_members(group: str, state: str) -> RefusedPart:
    return RefusedPart(
        ErrorCode.non_empty_group, f"The group {group} has members{f' ({state})' if state else ''}; stop them first."
    )


async def _planned(
    environment: Environment, request: pb.ResetOffsetsRequest, before: Mapping[tuple[str, int], int]
) -> Sequence[_Move]:
    refs = _requested(environment, request, before)
    if request.WhichOneof("to") == "timestamp_ms":
        if request.timestamp_ms < 0:
            message = "The timestamp must not be negative; it is in milliseconds since 1970."
            raise RefusedPart(ErrorCode.invalid_request, message)
        ends = await ends_of(environment, refs, timestamp_ms=request.timestamp_ms)
    else:
        ends = await ends_of(environment, refs)
    moves = []
    for ref in refs:
        found, at = ends[key_of(ref)], before.get((ref.topic, ref.partition), UNKNOWN)
        if found.error:
            raise RefusedPart(
                ErrorCode.leader_not_available, f"{ref.topic}-{ref.partition}: {found.error}; nothing was changed."
            )
        after = min(max(_target(request, found, at, ref), found.log_start), found.high_watermark)
        moves.append(_Move(ref, at, after))
    return moves


def _requested(
    environment: Environment, request: pb.ResetOffsetsRequest, before: Mapping[tuple[str, int], int]
) -> list[PartitionRef]:
    """Return the requested partitions, or those with offsets if no topic is named, sorted and without duplicates."""
    places = {place for place in before if not request.topics}
    for asked in request.topics:
        known = known_topic(environment, asked.topic)
        places.update((asked.topic, partition) for partition in asked.partitions or range(len(known.partitions)))
    if not places:
        message = f"The group {request.group} has no committed offsets. Name the topics to set offsets for."
        raise RefusedPart(ErrorCode.group_id_not_found, message)
    return [partition_of(known_topic(environment, topic), partition) for topic, partition in sorted(places)]


def _target(request: pb.ResetOffsetsRequest, ends: Ends, at: int, ref: PartitionRef) -> int:
    match request.WhichOneof("to"):
        case "earliest":
            return ends.log_start
        case "latest":
            return ends.high_watermark
        case "offset":
            return request.offset
        case "timestamp_ms":
            return ends.high_watermark if ends.found == UNKNOWN else ends.found
        case _:
            if at == UNKNOWN:
                message = f"The group {request.group} has no committed offset for {ref.topic}-{ref.partition} to shift."
                raise RefusedPart(ErrorCode.invalid_request, message)
            return at + request.shift_by


async def _commit(environment: Environment, group: str, moves: Sequence[_Move]) -> None:
    commit = coordinator_pb.OffsetCommitRequest(group=group, generation=_WITHOUT_MEMBERSHIP, retention_ms=-1)
    for move in moves:
        commit.offsets.add(
            topic=move.ref.topic,
            topic_id=move.ref.topic_id,
            partition=move.ref.partition,
            offset=move.after,
            leader_epoch=UNKNOWN,
        )
    reply = await environment.coordinators.ask(
        group, lambda link, timeout: link.client.offset_commit(commit, timeout=timeout)
    )
    if reply is None:
        raise RefusedPart(NO_COORDINATOR, "No coordinator answered. The offsets may have been set.")
    if reply.error == _E.UNKNOWN_MEMBER_ID:
        # A member has joined since the group was checked.
        raise _has_members(group, "")
    refused = next((error for error in (reply.error, *reply.errors) if error != _E.NONE), None)
    if refused is not None:
        raise RefusedPart(group_code(refused), f"The group's coordinator responded with {group_code(refused).name}.")
