"""JoinGroup of new members, of members that rejoin, and of static members that return."""

from kafscale.errors import CorruptData
from kafscale.v1.coordinator_pb2 import GroupError as E
from kafscale.v1.coordinator_pb2 import JoinGroupReply, JoinGroupRequest
from services.coordinator import rebalance
from services.coordinator.effects import Timer, TimerKind
from services.coordinator.group import CONSUMER, Group, reference_bytes
from services.coordinator.limits import MAX_PROTOCOLS, is_too_long
from services.coordinator.member import Member, protocols_of
from services.coordinator.stored import write_header
from services.coordinator.subscription import subscribed_topics
from services.coordinator.table import Act, Ask, Cause, State
from services.coordinator.turn import Turn


def join(turn: Turn, request: JoinGroupRequest, ticket: int, fresh_id: str) -> None:
    """Handle a JoinGroup. ``fresh_id`` is a unique suffix for the id of a new member."""
    ask = _ask(turn.group, request)
    instance_id = _instance(request)
    new_id = f"{request.client_id if instance_id is None else instance_id}-{fresh_id}"
    error = _refusal(turn, request, ask, new_id)
    if error != E.NONE:
        turn.reply(ticket, refused(request, error))
    elif ask is Ask.JOIN_NEW:
        _join_new(turn, request, ticket, request.member_id or new_id)
    elif ask is Ask.JOIN_STATIC:
        _join_static(turn, request, ticket, new_id)
    else:
        _join_known(turn, request, ticket)


def refused(request: JoinGroupRequest, error: "E.Code") -> JoinGroupReply:
    # To a client, a group without a free place also means that it has no member id.
    member_id = "" if error == E.GROUP_MAX_SIZE_REACHED else request.member_id
    return JoinGroupReply(error=error, generation=-1, member_id=member_id)


def _ask(group: Group, request: JoinGroupRequest) -> Ask:
    if request.member_id:
        return Ask.JOIN_NEW if request.member_id in group.pending else Ask.JOIN_KNOWN
    return Ask.JOIN_STATIC if _instance(request) in group.static else Ask.JOIN_NEW


def _instance(request: JoinGroupRequest) -> str | None:
    return request.instance_id if request.HasField("instance_id") else None


def _gets_id_first(request: JoinGroupRequest) -> bool:
    return request.member_id_required and not request.member_id and _instance(request) is None


def _refusal(turn: Turn, request: JoinGroupRequest, ask: Ask, new_id: str) -> "E.Code":
    group, limits = turn.group, turn.limits
    answer = turn.answer_to(ask)
    if group.state is State.DEAD:
        return answer.error
    if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
        return E.INVALID_SESSION_TIMEOUT
    if _too_large(request, limits.max_member_bytes):
        return E.INVALID_REQUEST
    if _exceeds_header(turn, request, ask, new_id) or _too_many(turn, request, ask):
        return E.GROUP_MAX_SIZE_REACHED
    if not group.supports(request.protocol_type, protocols_of(request.protocols)):
        return E.INCONSISTENT_GROUP_PROTOCOL
    if ask is Ask.JOIN_KNOWN:
        return group.membership_error(request.member_id, _instance(request)) or answer.error
    if ask is Ask.JOIN_NEW and request.member_id and _instance(request) is not None:
        return E.UNKNOWN_MEMBER_ID
    return answer.error


def _too_large(request: JoinGroupRequest, most: int) -> bool:
    """Return whether the member's names, protocols or metadata exceed the limits of its stored values."""
    if len(request.protocols) > MAX_PROTOCOLS or request.ByteSize() > most:
        return True
    names = (protocol.name for protocol in request.protocols)
    return any(map(is_too_long, (request.client_id, request.instance_id, request.protocol_type, *names)))


def _exceeds_header(turn: Turn, request: JoinGroupRequest, ask: Ask, new_id: str) -> bool:
    """Return whether the header has no room for another member."""
    if ask is not Ask.JOIN_NEW or _gets_id_first(request):
        return False
    return turn.group.named_bytes + reference_bytes(request.member_id or new_id) > turn.limits.max_header_bytes


def _too_many(turn: Turn, request: JoinGroupRequest, ask: Ask) -> bool:
    """Return whether the group is full. Removes an existing member that no longer fits after the limit was lowered."""
    group, most = turn.group, turn.limits.max_size
    member_id = group.static[request.instance_id] if ask is Ask.JOIN_STATIC else request.member_id
    if group.state is not State.PREPARING:
        return group.state is not State.EMPTY and member_id not in group.members and len(group.members) >= most
    if member_id in group.joining or len(group.joining) < most:
        return False
    if member_id in group.pending:
        turn.drop_pending(member_id)
    elif member_id in group.members:
        turn.drop_member(member_id)
    rebalance.complete_when_joined(turn)
    return True


def _join_new(turn: Turn, request: JoinGroupRequest, ticket: int, member_id: str) -> None:
    if not _gets_id_first(request):
        _add(turn, request, ticket, member_id)
        return
    group, limits = turn.group, turn.limits
    while group.pending and (
        len(group.pending) >= limits.max_size
        or group.pending_bytes + reference_bytes(member_id) > limits.max_header_bytes
    ):
        # Unused ids must not keep others out. A client that joins with a forgotten id gets another one.
        turn.drop_pending(next(iter(group.pending)))
    group.assign_id(member_id)
    turn.set_timer(Timer(TimerKind.SESSION, member_id), request.session_timeout_ms)
    turn.reply(ticket, JoinGroupReply(error=E.MEMBER_ID_REQUIRED, generation=-1, member_id=member_id))


def _add(turn: Turn, request: JoinGroupRequest, ticket: int, member_id: str) -> None:
    group = turn.group
    group.newcomers = group.initial
    group.add(Member.joining(member_id, request), request.protocol_type)
    group.joining[member_id] = ticket
    # A waiting member sends no heartbeats, and a client that gave up and retries becomes another member.
    turn.set_timer(Timer(TimerKind.SESSION, member_id), turn.limits.new_member_join_timeout_ms)
    rebalance.begin_or_continue(turn, Cause.NEW_MEMBER)


def _join_known(turn: Turn, request: JoinGroupRequest, ticket: int) -> None:
    group = turn.group
    member = group.members[request.member_id]
    leads = member.member_id == group.leader
    act = turn.answer_to(Ask.JOIN_KNOWN).act
    stays = act is Act.UNLESS_CHANGED or (act is Act.UNLESS_LEADER and not leads)
    if stays and member.protocols == protocols_of(request.protocols):
        turn.reply(ticket, rebalance.joined(group, member.member_id, with_members=leads))
        return
    group.update(member, request)
    _await(turn, member, ticket)
    rebalance.begin_or_continue(turn, Cause.REJOINED)


def _await(turn: Turn, member: Member, ticket: int) -> None:
    # A member that sends a second request has given up on the first one.
    turn.end_waits(member.member_id, E.REBALANCE_IN_PROGRESS)
    turn.group.joining[member.member_id] = ticket


def _join_static(turn: Turn, request: JoinGroupRequest, ticket: int, member_id: str) -> None:
    group = turn.group
    old_id, old_leader = group.static[request.instance_id], group.leader
    before = group.members[old_id].metadata(group.protocol)
    turn.end_waits(old_id, E.FENCED_INSTANCE_ID)
    turn.cancel_timer(Timer(TimerKind.SESSION, old_id))
    member = group.rename(old_id, member_id)
    member.client_id, member.client_host = request.client_id, request.client_host
    group.update(member, request)
    turn.keep_session(member)
    if turn.answer_to(Ask.JOIN_STATIC).act is Act.REPLACE and _can_stay(group, member, before):
        write_header(turn)
        turn.reply(ticket, _in_place(group, request, member_id, old_leader))
        return
    group.joining[member_id] = ticket
    rebalance.begin_or_continue(turn, Cause.REPLACED)


def _can_stay(group: Group, member: Member, before: bytes) -> bool:
    """Return whether the assignment is still valid: the protocol and the subscribed topics have not changed."""
    if group.chosen_protocol() != group.protocol:
        return False
    if group.protocol_type != CONSUMER:
        return True
    try:
        return subscribed_topics(before) == subscribed_topics(member.metadata(group.protocol))
    except CorruptData:
        return True


def _in_place(group: Group, request: JoinGroupRequest, member_id: str, old_leader: str) -> JoinGroupReply:
    leads = member_id == group.leader
    reply = rebalance.joined(group, member_id, with_members=leads and request.skips_assignment)
    if request.skips_assignment:
        # The leader keeps watching for topic changes, but makes no assignment now.
        reply.skip_assignment = leads
    else:
        # An older client would make a new assignment if it saw itself as the leader.
        reply.leader = old_leader
    return reply
