"""The groups of one shard and the operations on them. This module does no IO: methods return the effects to apply."""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from google.protobuf.message import Message

from kafscale.paths import GroupKeys
from kafscale.v1 import coordinator_pb2 as pb
from kafscale.v1.coordinator_pb2 import GroupError as E
from services.coordinator import offsets, rebalance
from services.coordinator.effects import Effects, Now, Reply, Timer, TimerKind
from services.coordinator.group import Group
from services.coordinator.joining import join, refused
from services.coordinator.limits import GroupLimits, is_too_long
from services.coordinator.stored import read_group
from services.coordinator.syncing import heartbeat, leave, left_member, sync
from services.coordinator.table import NO_GROUP, Ask, Cause, State
from services.coordinator.turn import Turn

_CLASSIC = "classic"


class Groups:
    """The groups of one shard, by group id.

    ``revision`` is the metadata store's revision when the shard was read, after its epoch was raised. Each reply
    carries the ticket of its request. The caller splits requests for several groups.
    """

    def __init__(self, namespace: str, limits: GroupLimits, revision: int) -> None:
        self._namespace = namespace
        self._limits = limits
        self._revision = revision
        self._groups: dict[str, Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def __getitem__(self, group_id: str) -> Group:
        return self._groups[group_id]

    def load(self, group_id: str, items: Iterable[tuple[str, bytes]], revision: int, now: Now) -> Effects:
        """Load a group from all keys below its prefix. The session timeouts of its members start now.

        Raises CorruptData if something is missing or damaged; the group is not loaded then.
        """
        effects = Effects()
        group, unused = read_group(GroupKeys(self._namespace, group_id), items, revision)
        effects.sweep += unused
        if group is None:
            return effects
        self._groups[group_id] = group
        turn = Turn(group, self._limits, now, effects)
        for member in group.members.values():
            turn.keep_session(member)
        if group.state is State.COMPLETING:
            group.unsynced.update(group.members)
            turn.set_timer(Timer(TimerKind.SYNC), group.rebalance_timeout_ms)
        if len(group.members) > self._limits.max_size:
            rebalance.begin(turn, Cause.TOO_MANY)
        return effects

    def unload(self, group_id: str, now: Now) -> Effects:
        """Drop a group without writing anything, because it moved to another coordinator or must be loaded again."""
        group = self._groups.pop(group_id)
        turn = self._turn(group, now)
        if group.state is not State.DEAD:
            turn.die(Cause.UNLOADED, E.NOT_COORDINATOR)
        return turn.effects

    def forget(self, group_id: str) -> None:
        """Remove a dead group whose deletion is stored, so that its name can be used again."""
        if self._groups[group_id].state is not State.DEAD:
            raise ValueError(f"group {group_id} is not dead")
        del self._groups[group_id]
        # A new group of this name must not reuse versions of this one. Its deletion raised the store's revision too.
        self._revision += 1

    def join(self, request: pb.JoinGroupRequest, ticket: int, now: Now, *, fresh_id: str) -> Effects:
        if not request.group or is_too_long(request.group):
            return _reply(ticket, refused(request, E.INVALID_GROUP_ID))
        group = self._groups.get(request.group)
        if group is None and request.member_id:
            return _reply(ticket, refused(request, NO_GROUP[Ask.JOIN_KNOWN].error))
        turn = self._turn(group or self._new(request.group, now), now)
        join(turn, request, ticket, fresh_id)
        if group is None and (turn.group.members or turn.group.pending):
            self._groups[request.group] = turn.group
        return turn.effects

    def sync(self, request: pb.SyncGroupRequest, ticket: int, now: Now) -> Effects:
        turn = self._found(request.group, now)
        if turn is None:
            return _reply(ticket, pb.SyncGroupReply(error=_missing(request.group, Ask.SYNC)))
        sync(turn, request, ticket)
        return turn.effects

    def heartbeat(self, beat: pb.MemberHeartbeat, ticket: int, now: Now) -> Effects:
        turn = self._found(beat.group, now)
        if turn is None:
            return _reply(ticket, pb.HeartbeatResult(error=_missing(beat.group, Ask.HEARTBEAT)))
        heartbeat(turn, beat, ticket)
        return turn.effects

    def leave(self, request: pb.LeaveGroupRequest, ticket: int, now: Now) -> Effects:
        if not request.group:
            return _reply(ticket, pb.LeaveGroupReply(error=E.INVALID_GROUP_ID))
        turn = self._found(request.group, now)
        if turn is None:
            members = [left_member(leaving, NO_GROUP[Ask.LEAVE].error) for leaving in request.members]
            return _reply(ticket, pb.LeaveGroupReply(members=members))
        leave(turn, request, ticket)
        return turn.effects

    def replaced(self, request: pb.OffsetCommitRequest) -> AbstractSet[offsets.Replaced]:
        """Return the committed offsets that a commit would replace and that have another topic id."""
        group = self._groups.get(request.group)
        return frozenset() if group is None else offsets.replaced(group, request)

    def commit(
        self, request: pb.OffsetCommitRequest, ticket: int, now: Now, *, gone: AbstractSet[bytes] = frozenset()
    ) -> Effects:
        """Commit offsets. As in Kafka, clients that are not members may commit to the group with the empty name.

        ``gone``: ids of deleted topics.
        """
        if is_too_long(request.group):
            return _reply(ticket, pb.OffsetCommitReply(error=E.INVALID_GROUP_ID))
        group = self._groups.get(request.group)
        if group is None and request.generation >= 0:
            return _reply(ticket, pb.OffsetCommitReply(error=NO_GROUP[Ask.COMMIT].error))
        turn = self._turn(group or self._new(request.group, now), now)
        offsets.commit(turn, request, ticket, gone)
        if turn.effects.writes:
            self._groups[request.group] = turn.group
        return turn.effects

    def fetch(self, query: pb.GroupOffsetsQuery, ticket: int) -> Effects:
        return _reply(ticket, offsets.fetched(self._groups.get(query.group), query))

    def delete_offsets(self, request: pb.OffsetDeleteRequest, ticket: int, now: Now) -> Effects:
        turn = self._found(request.group, now)
        if turn is None:
            return _reply(ticket, pb.OffsetDeleteReply(error=_missing(request.group, Ask.DELETE_OFFSETS)))
        offsets.delete_offsets(turn, request, ticket)
        return turn.effects

    def delete(self, group_id: str, ticket: int, now: Now) -> Effects:
        turn = self._found(group_id, now)
        if turn is None:
            return _reply(ticket, pb.DeletedGroup(group=group_id, error=_missing(group_id, Ask.DELETE)))
        offsets.delete_group(turn, ticket)
        return turn.effects

    def expire(self, group_id: str, timer: Timer, now: Now) -> Effects:
        """Handle a timer that went off. Does nothing if the group no longer exists."""
        turn = self._found(group_id, now)
        if turn is None:
            return Effects()
        rebalance.expire(turn, timer)
        return turn.effects

    def topic_ids(self) -> set[bytes]:
        """Return the ids of all topics with committed offsets."""
        return {offset.topic_id for group in self._groups.values() for offset in group.offsets.values()}

    def expire_offsets(self, group_id: str, now: Now, *, gone: AbstractSet[bytes]) -> Effects:
        """Expire offsets; the caller does so for each group periodically, and must `forget` the group if it dies.

        ``gone``: ids of deleted topics.
        """
        turn = self._turn(self._groups[group_id], now)
        if turn.group.state is not State.DEAD:
            offsets.expire_offsets(turn, gone)
        return turn.effects

    def describe(self, group_id: str, ticket: int) -> Effects:
        group = self._groups.get(group_id)
        if group is None or group.state is State.DEAD:
            error = NO_GROUP[Ask.DESCRIBE].error
            return _reply(ticket, pb.DescribedGroup(group=group_id, state=State.DEAD.value, error=error))
        stable = group.state is State.STABLE
        described = pb.DescribedGroup(
            group=group_id,
            state=group.state.value,
            protocol_type=group.protocol_type,
            protocol=group.protocol if stable else "",
        )
        for member in group.members.values():
            described.members.add(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(group.protocol) if stable else b"",
                assignment=member.assignment,
            )
        return _reply(ticket, described)

    def list(self, request: pb.ListGroupsRequest) -> pb.ListGroupsReply:
        """List groups ordered by name, without waiting for pending writes."""
        states = {state.strip().lower() for state in request.states}
        reply = pb.ListGroupsReply()
        if request.types and _CLASSIC not in {kind.strip().lower() for kind in request.types}:
            return reply
        for group_id, group in sorted(self._groups.items()):
            state = group.state.value
            if group.state is not State.DEAD and (not states or state.lower() in states):
                reply.groups.add(group=group_id, protocol_type=group.protocol_type, state=state, type=_CLASSIC)
        return reply

    def _new(self, group_id: str, now: Now) -> Group:
        return Group(GroupKeys(self._namespace, group_id), self._revision, changed_ms=now.wall_ms)

    def _turn(self, group: Group, now: Now) -> Turn:
        return Turn(group, self._limits, now, Effects())

    def _found(self, group_id: str, now: Now) -> Turn | None:
        group = self._groups.get(group_id)
        return None if group is None else self._turn(group, now)


def _missing(group_id: str, ask: Ask) -> "E.Code":
    return NO_GROUP[ask].error if group_id else E.INVALID_GROUP_ID


def _reply(ticket: int, message: Message) -> Effects:
    return Effects(replies=[Reply(ticket, message)])
