"""Rebalances: how they begin, when their first phase ends, and what their timers do."""

from kafscale.v1.coordinator_pb2 import GroupError as E
from kafscale.v1.coordinator_pb2 import JoinedMember, JoinGroupReply
from services.coordinator.effects import Timer, TimerKind
from services.coordinator.group import Group
from services.coordinator.stored import discard_assignments, write_header
from services.coordinator.table import EXITS, Cause, State
from services.coordinator.turn import Turn

_JOIN = Timer(TimerKind.JOIN)
_SYNC = Timer(TimerKind.SYNC)


def begin_or_continue(turn: Turn, cause: Cause) -> None:
    """Begin a rebalance, or complete its first phase if one is under way and all members have joined."""
    if cause in EXITS[turn.group.state]:
        begin(turn, cause)
    else:
        complete_when_joined(turn)


def begin(turn: Turn, cause: Cause) -> None:
    """Begin a rebalance. Members that wait for an assignment are asked to join again."""
    group = turn.group
    if group.state is State.COMPLETING:
        for member_id in list(group.syncing):
            turn.end_waits(member_id, E.REBALANCE_IN_PROGRESS)
            turn.keep_session(group.members[member_id])
    group.unsynced.clear()
    turn.cancel_timer(_SYNC)
    group.initial = group.state is State.EMPTY
    turn.move(cause)
    if group.initial:
        group.newcomers = False
        group.initial_step_ms = turn.limits.initial_rebalance_delay_ms
        group.initial_left_ms = max(group.rebalance_timeout_ms - group.initial_step_ms, 0)
        turn.set_timer(_JOIN, group.initial_step_ms)
    elif group.all_joined:
        complete(turn)
    else:
        turn.set_timer(_JOIN, group.rebalance_timeout_ms)


def complete_when_joined(turn: Turn) -> None:
    """End the first phase if all members have joined. An initial rebalance always waits for more members instead."""
    group = turn.group
    if group.state is State.PREPARING and not group.initial and group.all_joined:
        complete(turn)


def complete(turn: Turn) -> None:
    """Create the next generation from the members that have joined. It is persisted before they are answered."""
    group = turn.group
    turn.cancel_timer(_JOIN)
    for member_id in [m.member_id for m in group.members.values() if m.instance_id is None]:
        if member_id not in group.joining:
            turn.drop_member(member_id)
    if group.members and not group.elect():
        # Only static members are left and none has joined again. Their session timeouts end this.
        turn.set_timer(_JOIN, group.rebalance_timeout_ms)
        return
    group.initial = False
    group.generation += 1
    turn.effects.generations += 1
    discard_assignments(group)
    for member in group.members.values():
        member.assignment = b""
    if group.members:
        group.protocol = group.chosen_protocol()
        turn.move(Cause.JOINED)
    else:
        group.protocol = group.leader = ""
        turn.move(Cause.NONE_LEFT)
    group.topics = group.known_topics()
    write_header(turn)
    if group.members:
        _announce_generation(turn)


def _announce_generation(turn: Turn) -> None:
    group = turn.group
    for member in group.members.values():
        ticket = group.joining.pop(member.member_id, None)
        if ticket is not None:
            turn.reply(ticket, joined(group, member.member_id, with_members=member.member_id == group.leader))
        member.is_new = False
        turn.keep_session(member)
    group.unsynced.update(group.members)
    turn.set_timer(_SYNC, group.rebalance_timeout_ms)


def joined(group: Group, member_id: str, *, with_members: bool) -> JoinGroupReply:
    """Return the current generation as a member's JoinGroup reply; ``with_members`` for the leader."""
    reply = JoinGroupReply(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        member_id=member_id,
    )
    if with_members:
        reply.members.extend(
            JoinedMember(member_id=m.member_id, instance_id=m.instance_id, metadata=m.metadata(group.protocol))
            for m in group.members.values()
        )
    return reply


def has_synced(turn: Turn, member_id: str) -> None:
    """Record that a member has sent SyncGroup for this generation."""
    turn.group.unsynced.discard(member_id)
    if not turn.group.unsynced:
        turn.cancel_timer(_SYNC)


def expire(turn: Turn, timer: Timer) -> None:
    """Handle a timer that went off. Does nothing if it has been moved or cancelled since."""
    deadline = turn.group.deadlines.get(timer)
    if deadline is None or deadline > turn.now.timer_ms:
        return
    del turn.group.deadlines[timer]
    if timer.kind is TimerKind.JOIN:
        _expire_join(turn)
    elif timer.kind is TimerKind.SYNC:
        _expire_sync(turn)
    else:
        _expire_session(turn, timer.member_id)


def _expire_join(turn: Turn) -> None:
    group = turn.group
    if not (group.initial and group.newcomers and group.initial_left_ms):
        complete(turn)
        return
    group.newcomers = False
    step = min(turn.limits.initial_rebalance_delay_ms, group.initial_left_ms)
    group.initial_left_ms = max(group.initial_left_ms - group.initial_step_ms, 0)
    group.initial_step_ms = step
    turn.set_timer(_JOIN, step)


def _expire_sync(turn: Turn) -> None:
    for member_id in list(turn.group.unsynced):
        turn.drop_member(member_id)
    begin(turn, Cause.SYNC_OVER)


def _expire_session(turn: Turn, member_id: str) -> None:
    group = turn.group
    if member_id in group.pending:
        turn.drop_pending(member_id)
        after_removal(turn, Cause.SESSION_OVER, pending=True)
        return
    # A waiting member cannot send heartbeats. A new member does not know its id yet, so its client may have given up.
    if not group.members[member_id].is_new and (member_id in group.joining or member_id in group.syncing):
        return
    turn.drop_member(member_id)
    after_removal(turn, Cause.SESSION_OVER)


def after_removal(turn: Turn, cause: Cause, *, pending: bool = False) -> None:
    """Continue after a removal. Removing an assigned id that was not used yet (``pending``) causes no rebalance."""
    group = turn.group
    if group.state is State.PREPARING:
        if group.all_joined:
            complete(turn)
    elif not pending:
        begin(turn, cause)
