"""SyncGroup, Heartbeat and LeaveGroup, the requests of members between rebalances."""

from kafscale.v1.coordinator_pb2 import GroupError as E
from kafscale.v1.coordinator_pb2 import (
    HeartbeatResult,
    LeaveGroupReply,
    LeaveGroupRequest,
    LeavingMember,
    LeftMember,
    MemberHeartbeat,
    SyncGroupReply,
    SyncGroupRequest,
)
from services.coordinator import rebalance
from services.coordinator.group import Group
from services.coordinator.member import Member
from services.coordinator.stored import stage_assignments, write_header
from services.coordinator.table import Act, Ask, Cause, State
from services.coordinator.turn import Turn


def sync(turn: Turn, request: SyncGroupRequest, ticket: int) -> None:
    group = turn.group
    instance_id = request.instance_id if request.HasField("instance_id") else None
    error = turn.refusal(Ask.SYNC, request.member_id, instance_id, request.generation)
    if error in (E.NONE, E.REBALANCE_IN_PROGRESS) and _other_protocol(group, request):
        error = E.INCONSISTENT_GROUP_PROTOCOL
    if error != E.NONE:
        turn.reply(ticket, SyncGroupReply(error=error))
        return
    rebalance.has_synced(turn, request.member_id)
    member = group.members[request.member_id]
    if turn.answer_to(Ask.SYNC).act is Act.ASSIGNMENT:
        turn.reply(ticket, _assigned(group, member))
        return
    # A member that sends a second request has given up on the first one.
    turn.end_waits(member.member_id, E.REBALANCE_IN_PROGRESS)
    group.syncing[member.member_id] = ticket
    if member.member_id == group.leader:
        _assign(turn, {each.member_id: each.assignment for each in request.assignments})


def _other_protocol(group: Group, request: SyncGroupRequest) -> bool:
    return (request.HasField("protocol_type") and request.protocol_type != group.protocol_type) or (
        request.HasField("protocol") and request.protocol != group.protocol
    )


def _assign(turn: Turn, assignments: dict[str, bytes]) -> None:
    group = turn.group
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    turn.move(Cause.ASSIGNED)
    stage_assignments(turn)
    write_header(turn)
    for member_id, ticket in group.syncing.items():
        member = group.members[member_id]
        turn.reply(ticket, _assigned(group, member))
        turn.keep_session(member)
    group.syncing.clear()


def _assigned(group: Group, member: Member) -> SyncGroupReply:
    return SyncGroupReply(protocol_type=group.protocol_type, protocol=group.protocol, assignment=member.assignment)


def heartbeat(turn: Turn, beat: MemberHeartbeat, ticket: int) -> None:
    """Extend the member's session. Nothing is persisted."""
    instance_id = beat.instance_id if beat.HasField("instance_id") else None
    error = turn.refusal(Ask.HEARTBEAT, beat.member_id, instance_id, beat.generation)
    answer = turn.answer_to(Ask.HEARTBEAT)
    if error == answer.error and answer.act is Act.ALIVE:
        turn.keep_session(turn.group.members[beat.member_id])
    turn.reply(ticket, HeartbeatResult(error=error))


def leave(turn: Turn, request: LeaveGroupRequest, ticket: int) -> None:
    """Remove members, with one rebalance for all. A static member can be named by its group.instance.id alone."""
    if turn.answer_to(Ask.LEAVE).act is not Act.REMOVE:
        turn.reply(ticket, LeaveGroupReply(error=turn.answer_to(Ask.LEAVE).error))
        return
    before = len(turn.group.members)
    reply = LeaveGroupReply()
    any_left = False
    for leaving in request.members:
        error = _remove(turn, leaving)
        any_left = any_left or error == E.NONE
        reply.members.append(left_member(leaving, error))
    turn.reply(ticket, reply)
    if any_left and turn.group.state is State.PREPARING:
        rebalance.complete_when_joined(turn)
    elif len(turn.group.members) < before:
        rebalance.begin(turn, Cause.LEFT)


def left_member(leaving: LeavingMember, error: "E.Code") -> LeftMember:
    instance_id = leaving.instance_id if leaving.HasField("instance_id") else None
    return LeftMember(member_id=leaving.member_id, instance_id=instance_id, error=error)


def _remove(turn: Turn, leaving: LeavingMember) -> "E.Code":
    group = turn.group
    if leaving.member_id in group.pending:
        turn.drop_pending(leaving.member_id)
        return E.NONE
    instance_id = leaving.instance_id if leaving.HasField("instance_id") else None
    member_id = leaving.member_id or group.static.get(instance_id or "", "")
    error = group.membership_error(member_id, instance_id)
    if error == E.NONE:
        turn.drop_member(member_id)
    return error
