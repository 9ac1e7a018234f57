"""The live processes of a service, as seen by all processes, and the assignment of partitions to them.

Rendezvous hashing: each member has a weight for each partition, which is assigned to the heaviest member. So members
that join or leave move only the partitions that they get or had. The hash is of the member's address, which a restarted
process keeps, and not of its run id.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial

import trio

from kafscale import paths
from kafscale.metadata.follow import follow
from kafscale.metadata.interface import Event, KeyValue, MetadataStore, Snapshot
from kafscale.v1.metadata_pb2 import Member

PLACES_REMEMBERED = 1 << 16
"""The number of partitions per view whose owner is cached."""
# Used instead of a topic id, which has 16 bytes.
_GROUP_SHARDS = b"group-shards"
_SINKS = b"sinks"


@dataclass(frozen=True, slots=True)
class LiveMember:
    """A registered member. ``since`` is the revision that created its key."""

    member: Member
    since: int

    @property
    def run_id(self) -> str:
        return self.member.run_id

    @property
    def address(self) -> str:
        return self.member.address


@dataclass(frozen=True, slots=True, eq=False)
class MembersView:
    """All members at one revision. Immutable: after a change, `Members.view` is another object."""

    revision: int
    by_run_id: Mapping[str, LiveMember]
    present: tuple[LiveMember, ...]
    """The newest member of each address, in order of address. Older ones are dead, but still have leases."""
    placed: tuple[LiveMember, ...]
    """The members that partitions are assigned to: those present that are not leaving."""
    _assigned_to: Callable[[tuple[bytes, int]], LiveMember | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_assigned_to", lru_cache(PLACES_REMEMBERED)(partial(heaviest, self.placed)))

    @classmethod
    def of(cls, revision: int, members: Iterable[LiveMember]) -> "MembersView":
        newest: dict[str, LiveMember] = {}
        by_run_id = {}
        for live in sorted(members, key=lambda live: live.since):
            by_run_id[live.run_id] = live
            newest[live.address] = live
        present = tuple(newest[address] for address in sorted(newest))
        return cls(revision, by_run_id, present, tuple(live for live in present if not live.member.leaving))

    def __iter__(self) -> Iterator[LiveMember]:
        return iter(self.by_run_id.values())

    def owner(self, topic_id: bytes, partition: int) -> LiveMember | None:
        """Return the member that the partition is assigned to, or None without members."""
        return self._assigned_to((topic_id, partition))

    def shard_owner(self, shard: int) -> LiveMember | None:
        """Return the member that a shard of the consumer groups is assigned to, or None without members."""
        return self._assigned_to((_GROUP_SHARDS, shard))

    def sink_keeper(self, sink: str) -> LiveMember | None:
        """Return the member that does a sink's upkeep outside of partitions, or None without members.

        With an empty ``sink``, the member that does the upkeep of all stages.
        """
        return self._assigned_to((_SINKS, zlib.crc32(sink.encode())))


class Members:
    """Follows the members of ``service``: gateway, storage, indexer or coordinator. `run` must be running."""

    def __init__(self, store: MetadataStore, namespace: str, service: str) -> None:
        self._store = store
        self._prefix = paths.members_prefix(namespace, service)
        self._view = MembersView.of(0, ())
        self._changed = trio.Event()

    @property
    def view(self) -> MembersView:
        return self._view

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the view current until cancelled. Started after the first read; raises Refused only before that.

        While the store does not answer, the last view remains. A member that has lost its lease meanwhile refuses
        requests itself.
        """
        await follow(self._store, self._prefix, reset=self._reset, apply=self._apply, task_status=task_status)

    async def changed(self) -> None:
        """Wait for the next change of the view."""
        await self._changed.wait()

    async def wait_change(self, seen: MembersView) -> MembersView:
        """Wait until the view is no longer ``seen``, and return it."""
        while self._view is seen:
            await self.changed()
        return self._view

    def _reset(self, snapshot: Snapshot) -> None:
        self._show(MembersView.of(snapshot.revision, map(live_member, snapshot.items)))

    def _apply(self, events: tuple[Event, ...]) -> None:
        members = {f"{self._prefix}{live.run_id}": live for live in self._view}
        for event in events:
            members.pop(event.key, None)
            if event.value is not None:
                members[event.key] = live_member(event.value)
        self._show(MembersView.of(events[0].revision, members.values()))

    def _show(self, view: MembersView) -> None:
        self._view = view
        changed, self._changed = self._changed, trio.Event()
        changed.set()


def heaviest(members: Iterable[LiveMember], key: tuple[bytes, int]) -> LiveMember | None:
    """Return the member with the largest weight for a partition. ``key`` is its topic id and index."""
    place = place_of(*key)
    return max(members, key=lambda live: weight(live.address, place), default=None)


def place_of(topic_id: bytes, partition: int) -> bytes:
    """Return the ``place`` argument of `weight` for a partition."""
    # A request may name a partition below 0. That there is none is found when it is looked up.
    return topic_id + (partition & 0xFFFFFFFF).to_bytes(4, "big")


def weight(name: str, place: bytes) -> bytes:
    """Return the weight of ``name`` for a place, which is assigned to the heaviest name."""
    return hashlib.blake2b(name.encode() + b"\0" + place, digest_size=8).digest()


def live_member(item: KeyValue) -> LiveMember:
    """Parse a member's key and value."""
    return LiveMember(Member.FromString(item.value), item.create_revision)
