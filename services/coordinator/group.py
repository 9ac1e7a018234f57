"""The state of one group and its basic updates. Other modules implement the requests."""

from collections import Counter, UserDict
from collections.abc import ItemsView, ValuesView
from dataclasses import dataclass, field

from kafscale.errors import CorruptData
from kafscale.paths import GroupKeys, group_version
from kafscale.v1.coordinator_pb2 import GroupError as E
from kafscale.v1.coordinator_pb2 import JoinGroupRequest
from services.coordinator.effects import Timer
from services.coordinator.member import Member, Protocols
from services.coordinator.subscription import subscribed_topics
from services.coordinator.table import EXITS, Cause, State

CONSUMER = "consumer"
"""The protocol type whose member metadata contains the subscribed topics."""


_REFERENCE_BYTES = 40  # the maximum size of a member's reference in the header, without its id


def reference_bytes(member_id: str) -> int:
    """Return the maximum size of a member's reference in the header."""
    return _REFERENCE_BYTES + len(member_id.encode())


@dataclass(frozen=True, slots=True)
class Offset:
    """A committed offset. ``expires_ms`` is set if the client chose a retention."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int | None
    topic_id: bytes


class Offsets(UserDict[tuple[str, int], Offset]):
    """Committed offsets by partition, and the total size of their metadata."""

    def __init__(self) -> None:
        self.metadata_bytes = 0
        super().__init__()

    def metadata_bytes_of(self, partition: tuple[str, int]) -> int:
        """Return the size of the partition's metadata, 0 if it has no committed offset."""
        offset = self.data.get(partition)
        return 0 if offset is None else len(offset.metadata.encode())

    def __setitem__(self, partition: tuple[str, int], offset: Offset) -> None:
        self.metadata_bytes += len(offset.metadata.encode()) - self.metadata_bytes_of(partition)
        self.data[partition] = offset

    def __delitem__(self, partition: tuple[str, int]) -> None:
        self.metadata_bytes -= self.metadata_bytes_of(partition)
        del self.data[partition]

    # The methods of UserDict cost a Python call for each offset.

    def clear(self) -> None:
        self.metadata_bytes = 0
        self.data.clear()

    def items(self) -> ItemsView[tuple[str, int], Offset]:
        return self.data.items()

    def values(self) -> ValuesView[Offset]:
        return self.data.values()


@dataclass(slots=True)
class Group:
    """One group. ``revision``, at which it was loaded, distinguishes the values that successive coordinators write."""

    keys: GroupKeys
    revision: int
    state: State = State.EMPTY
    changed_ms: int = 0  # wall clock time of the last state change
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    # Assigned member ids with which no member has joined yet, oldest first, and their size in the header.
    pending: dict[str, None] = field(default_factory=dict)
    pending_bytes: int = 0
    named_bytes: int = 0  # the size of the member references in the header
    joining: dict[str, int] = field(default_factory=dict)  # member id -> ticket of the waiting JoinGroup
    syncing: dict[str, int] = field(default_factory=dict)
    unsynced: set[str] = field(default_factory=set)  # members that have not sent SyncGroup for this generation
    supported: Counter[str] = field(default_factory=Counter)  # protocol -> number of members that support it
    topics: frozenset[str] | None = None  # topics that any member subscribes to; None: unknown
    deadlines: dict[Timer, int] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=Offsets)
    # The first rebalance after Empty waits for more members: for one step, and while they come for the rest.
    initial: bool = False
    initial_step_ms: int = 0
    initial_left_ms: int = 0
    newcomers: bool = False
    # The state of the metadata store.
    has_header: bool = False
    assignments_version: str = ""
    assignments_chunks: int = 0
    unused: list[str] = field(default_factory=list)  # keys that the next header no longer refers to

    @property
    def group_id(self) -> str:
        return self.keys.group

    @property
    def version(self) -> str:
        """The version of the values that are written for the current generation."""
        return group_version(self.generation, self.revision)

    @property
    def all_joined(self) -> bool:
        return len(self.joining) == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def move(self, cause: Cause, wall_ms: int) -> None:
        """Change to the state that the table defines for ``cause``. Raises KeyError if it defines none."""
        self.state = EXITS[self.state][cause]
        self.changed_ms = wall_ms

    def membership_error(self, member_id: str, instance_id: str | None) -> "E.Code":
        """Return NONE for a member with the right group.instance.id, else the error."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is not None and known != member_id:
                return E.FENCED_INSTANCE_ID
            if known is None:
                return E.UNKNOWN_MEMBER_ID
        return E.NONE if member_id in self.members else E.UNKNOWN_MEMBER_ID

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member. The first one determines the group's protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self.supported.update(name for name, _ in member.protocols)
        self.forget_id(member.member_id)
        self.named_bytes += reference_bytes(member.member_id)
        self.leader = self.leader or member.member_id

    def assign_id(self, member_id: str) -> None:
        """Assign an id to a client that has to join with it."""
        self.pending[member_id] = None
        self.pending_bytes += reference_bytes(member_id)

    def forget_id(self, member_id: str) -> None:
        """Remove an assigned id with which no member has joined yet."""
        if member_id in self.pending:
            del self.pending[member_id]
            self.pending_bytes -= reference_bytes(member_id)

    def remove(self, member_id: str) -> Member:
        """Remove a member. If it was the leader, the longest-standing member becomes the leader."""
        member = self.members.pop(member_id)
        self.named_bytes -= reference_bytes(member_id)
        self.supported.subtract(name for name, _ in member.protocols)
        self.unsynced.discard(member_id)
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), "")
        self._discard_value(member)
        return member

    def update(self, member: Member, request: JoinGroupRequest) -> None:
        """Update a member from its new JoinGroup."""
        before = member.protocols
        if member.update(request):
            self._discard_value(member)
        self.supported.subtract(name for name, _ in before)
        self.supported.update(name for name, _ in member.protocols)

    def rename(self, old_id: str, new_id: str) -> Member:
        """Replace a static member's id. It keeps its place, and so the position of its assignment."""
        member = self.members[old_id]
        self._discard_value(member)
        member.member_id = new_id
        self.members = {new_id if key == old_id else key: value for key, value in self.members.items()}
        self.static[member.instance_id or ""] = new_id
        self.named_bytes += reference_bytes(new_id) - reference_bytes(old_id)
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(new_id)
        return member

    def elect(self) -> bool:
        """Make sure that the leader is a member that has joined. Returns False if none has."""
        if self.leader not in self.joining:
            self.leader = next(iter(self.joining), self.leader)
        return self.leader in self.joining

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols can join the group."""
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        everyone = len(self.members)
        same_type = self.protocol_type == protocol_type
        return same_type and any(self.supported[name] == everyone for name, _ in protocols)

    def chosen_protocol(self) -> str:
        """Return the protocol with most votes among those that all members support; on a tie, the first voted for."""
        everyone = len(self.members)
        candidates = {name for name, count in self.supported.items() if count == everyone}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def known_topics(self) -> frozenset[str] | None:
        """Return the topics that members subscribe to, by the chosen protocol; None if they cannot be determined."""
        if self.protocol_type != CONSUMER:
            return None
        try:
            topics = [subscribed_topics(member.metadata(self.protocol)) for member in self.members.values()]
        except CorruptData:
            return None
        return frozenset().union(*topics)

    def is_subscribed(self, topic: str) -> bool:
        return self.protocol_type == CONSUMER if self.topics is None else topic in self.topics

    def _discard_value(self, member: Member) -> None:
        if member.version:
            self.unused.append(self.keys.member(member.member_id, member.version))
            member.version = ""
