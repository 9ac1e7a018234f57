"""Groups with a clock that the test moves, an in-memory store, and timers that fire with the clock."""

from dataclasses import dataclass, field, replace
from struct import pack
from typing import Any, TypeVar

from google.protobuf.message import Message

from kafscale.paths import GroupKeys
from kafscale.v1 import coordinator_pb2 as pb
from services.coordinator.effects import Effects, Now, Timer
from services.coordinator.groups import Groups
from services.coordinator.limits import GroupLimits
from services.coordinator.table import State

E = pb.GroupError
M = TypeVar("M", bound=Message)
GROUP = "g"
LIMITS = GroupLimits(initial_rebalance_delay_ms=3000, new_member_join_timeout_ms=300_000)
WALL = 1_700_000_000_000


def topic_id(topic: str) -> bytes:
    return topic.encode().ljust(16, b"-")


def subscription(*topics: str, owned: bytes = b"") -> bytes:
    """Encode a consumer's subscription for the leader."""
    names = b"".join(pack(">h", len(topic)) + topic.encode() for topic in topics)
    return pack(">hi", 0, len(topics)) + names + pack(">i", len(owned)) + owned


@dataclass
class World:
    """``store`` has the persisted values. ``replies`` has the replies by ticket; each ticket gets one reply."""

    limits: GroupLimits = LIMITS
    revision: int = 1
    now_ms: int = 0
    store: dict[str, bytes] = field(default_factory=dict)
    replies: dict[int, Message] = field(default_factory=dict)
    deadlines: dict[tuple[str, Timer], int] = field(default_factory=dict)
    last: Effects = field(default_factory=Effects)
    writes: int = 0
    tickets: int = 0

    def __post_init__(self) -> None:
        self.groups = Groups("ns", self.limits, self.revision)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL + self.now_ms)

    def done(self, group: str, effects: Effects) -> Effects:
        """Apply the effects as a coordinator does."""
        self.last = effects
        self.writes += effects.writes
        for record in [*effects.stage, *effects.commit]:
            if record.value is None:
                del self.store[record.key]
            else:
                self.store[record.key] = record.value.SerializeToString()
        for reply in effects.replies:
            assert reply.ticket not in self.replies
            self.replies[reply.ticket] = reply.message
        for key in effects.sweep:
            del self.store[key]
        for timer, deadline in effects.timers.items():
            if deadline is None:
                del self.deadlines[group, timer]
            else:
                self.deadlines[group, timer] = deadline
        if group in self.groups and self.groups[group].state is State.DEAD:
            self.groups.forget(group)
        return effects

    def ticket(self) -> int:
        self.tickets += 1
        return self.tickets

    def advance(self, ms: int) -> None:
        """Advance the clock and fire due timers in order."""
        end = self.now_ms + ms
        while (due := self.next_timer()) is not None and self.deadlines[due] <= end:
            self.fire(due)
        self.now_ms = end

    def next_timer(self) -> tuple[str, Timer] | None:
        return min(self.deadlines, key=lambda each: self.deadlines[each], default=None)

    def fire(self, due: tuple[str, Timer]) -> None:
        """Advance the clock to the timer's deadline and fire the timer."""
        group, timer = due
        self.now_ms = max(self.now_ms, self.deadlines.pop(due))
        self.done(group, self.groups.expire(group, timer, self.now))

    def reply(self, ticket: int, kind: type[M]) -> M:
        message = self.replies[ticket]
        assert isinstance(message, kind)
        return message

    @property
    def state(self) -> State:
        return self.groups[GROUP].state

    def join(self, member_id: str = "", **fields: Any) -> int:
        """Send JoinGroup with ``metadata`` for all protocols in ``names``."""
        metadata = fields.pop("metadata", subscription("t"))
        names = fields.pop("names", ("range",))
        assert isinstance(names, tuple)
        ticket = self.ticket()
        values: dict[str, Any] = {
            "group": GROUP,
            "member_id": member_id,
            "protocol_type": "consumer",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 30_000,
            "client_id": "c",
            "client_host": "/10.0.0.1",
            "protocols": [{"name": name, "metadata": metadata} for name in names],
            **fields,
        }
        request = pb.JoinGroupRequest(**values)
        self.done(request.group, self.groups.join(request, ticket, self.now, fresh_id=str(ticket)))
        return ticket

    def joined(self, ticket: int) -> pb.JoinGroupReply:
        return self.reply(ticket, pb.JoinGroupReply)

    def sync(self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **fields: Any) -> int:
        ticket = self.ticket()
        parts = [pb.MemberAssignment(member_id=key, assignment=value) for key, value in (assignments or {}).items()]
        request = pb.SyncGroupRequest(
            group=GROUP,
            member_id=member_id,
            generation=generation,
            assignments=parts,
            **fields,
        )
        self.done(GROUP, self.groups.sync(request, ticket, self.now))
        return ticket

    def synced(self, ticket: int) -> pb.SyncGroupReply:
        return self.reply(ticket, pb.SyncGroupReply)

    def beat(self, member_id: str, generation: int, instance_id: str | None = None, group: str = GROUP) -> "E.Code":
        ticket = self.ticket()
        beat = pb.MemberHeartbeat(group=group, member_id=member_id, generation=generation, instance_id=instance_id)
        effects = self.done(group, self.groups.heartbeat(beat, ticket, self.now))
        assert not effects.writes
        return self.reply(ticket, pb.HeartbeatResult).error

    def leave(self, *members: str | tuple[str, str], group: str = GROUP) -> pb.LeaveGroupReply:
        """Send LeaveGroup for member ids, or pairs of member id and group.instance.id."""
        ticket = self.ticket()
        request = pb.LeaveGroupRequest(group=group)
        for member in members:
            if isinstance(member, str):
                request.members.add(member_id=member, reason="test")
            else:
                request.members.add(member_id=member[0], instance_id=member[1])
        self.done(group, self.groups.leave(request, ticket, self.now))
        return self.reply(ticket, pb.LeaveGroupReply)

    def commit(
        self, offsets: dict[tuple[str, int], int], member_id: str = "", generation: int = -1, **fields: Any
    ) -> pb.OffsetCommitReply:
        ticket = self.ticket()
        metadata = str(fields.pop("metadata", ""))
        values: dict[str, Any] = {"group": GROUP, "retention_ms": -1, **fields}
        request = pb.OffsetCommitRequest(member_id=member_id, generation=generation, **values)
        for (topic, partition), offset in offsets.items():
            request.offsets.add(
                topic=topic,
                topic_id=topic_id(topic),
                partition=partition,
                offset=offset,
                leader_epoch=3,
                metadata=metadata,
            )
        self.done(request.group, self.groups.commit(request, ticket, self.now))
        return self.reply(ticket, pb.OffsetCommitReply)

    def fetch(self, *partitions: tuple[str, int], group: str = GROUP) -> pb.GroupOffsets:
        """Fetch the offsets of these partitions, or all offsets."""
        ticket = self.ticket()
        query = pb.GroupOffsetsQuery(group=group, all=not partitions)
        for topic, partition in partitions:
            query.partitions.add(topic=topic, partition=partition)
        self.done(group, self.groups.fetch(query, ticket))
        return self.reply(ticket, pb.GroupOffsets)

    def committed(self) -> dict[tuple[str, int], int]:
        return {(each.topic, each.partition): each.offset for each in self.fetch().offsets}

    def delete_offsets(self, *partitions: tuple[str, int]) -> pb.OffsetDeleteReply:
        ticket = self.ticket()
        request = pb.OffsetDeleteRequest(group=GROUP)
        for topic, partition in partitions:
            request.partitions.add(topic=topic, partition=partition)
        self.done(GROUP, self.groups.delete_offsets(request, ticket, self.now))
        return self.reply(ticket, pb.OffsetDeleteReply)

    def delete(self, group: str = GROUP) -> "E.Code":
        ticket = self.ticket()
        self.done(group, self.groups.delete(group, ticket, self.now))
        return self.reply(ticket, pb.DeletedGroup).error

    def describe(self, group: str = GROUP) -> pb.DescribedGroup:
        ticket = self.ticket()
        self.done(group, self.groups.describe(group, ticket))
        return self.reply(ticket, pb.DescribedGroup)

    def expire_offsets(self, *gone: str) -> None:
        """Expire offsets, with the topics ``gone`` deleted."""
        for group in list(self.groups):
            self.done(group, self.groups.expire_offsets(group, self.now, gone=set(map(topic_id, gone))))

    def successor(self, **limits: int) -> "World":
        """Return another coordinator that has loaded everything, some seconds later."""
        other = World(replace(self.limits, **limits), self.revision + 1000, self.now_ms + 5000, dict(self.store))
        for group in self.groups:
            prefix = GroupKeys("ns", group).prefix
            items = [(key, value) for key, value in self.store.items() if key.startswith(prefix)]
            other.done(group, other.groups.load(group, items, other.revision, other.now))
        return other

    def stable(self, count: int = 2, **fields: Any) -> list[str]:
        """Form a group in generation 1 whose members are assigned ``p`` and their number. Return their ids."""
        tickets = [self.join(client_id=f"c{number}", **fields) for number in range(count)]
        while not all(ticket in self.replies for ticket in tickets):
            self.advance(self.limits.initial_rebalance_delay_ms)
        members = [self.joined(ticket).member_id for ticket in tickets]
        generation = self.joined(tickets[0]).generation
        self.finish(members, generation)
        return members

    def finish(self, members: list[str], generation: int) -> None:
        """Sync all members."""
        assignments = {member: b"p%d" % number for number, member in enumerate(members)}
        for member in members:
            self.sync(member, generation, assignments)
        assert self.state is State.STABLE
