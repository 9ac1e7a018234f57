"""The live processes of one service, as everybody sees them, and which of them a partition is given to.

Rendezvous hashing: each member has a weight for each partition, and the heaviest one is given it. So members that come
or go move only the partitions that they are given or had: the others stay where they are. What is hashed is a member's
address, which a restarted process keeps, not its run id.
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
"""Partitions whose place is not worked out anew each time, for each view."""
# In the place of a topic's id, which has 16 bytes.
_GROUP_SHARDS = b"group-shards"
_SINKS = b"sinks"


@dataclass(frozen=True, slots=True)
class LiveMember:
    """``member`` as registered; ``since``: the revision that its key was made at."""

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
    """All members at one revision. Never changed: `Members.view` gives another one."""

    revision: int
    by_run_id: Mapping[str, LiveMember]
    present: tuple[LiveMember, ...]
    """The newest of each address, in order of address: an older one's process has gone, its lease has not yet."""
    placed: tuple[LiveMember, ...]
    """Those that partitions are given to: the present ones, none that is leaving."""
    _given_to: Callable[[tuple[bytes, int]], LiveMember | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_given_to", lru_cache(PLACES_REMEMBERED)(partial(heaviest, self.placed)))

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
        """Whom the partition is given to; None: nobody is there."""
        return self._given_to((topic_id, partition))

    def shard_owner(self, shard: int) -> LiveMember | None:
        """Whom a shard of the consumer groups is given to; None: nobody is there."""
        return self._given_to((_GROUP_SHARDS, shard))

    def sink_keeper(self, sink: str) -> LiveMember | None:
        """Who sees to what no partition's owner does for a sink; "": for all that is staged. None: nobody is there."""
        return self._given_to((_SINKS, zlib.crc32(sink.encode())))


class Members:
    """The members of ``service``, one of gateway, storage, indexer and coordinator. `run` must be running."""

    def __init__(self, store: MetadataStore, namespace: str, service: str) -> None:
        self._store = store
        self._prefix = paths.members_prefix(namespace, service)
        self._view = MembersView.of(0, ())
        self._changed = trio.Event()

    @property
    def view(self) -> MembersView:
        return self._view

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the view until cancelled; started when it was read once. Raises Refused only before that.

        While the store does not answer the last view stays: who lost its lease by then is refused by who did not.
        """
        await follow(self._store, self._prefix, reset=self._reset, apply=self._apply, task_status=task_status)

    async def changed(self) -> None:
        """Wait until the view is another one."""
        await self._changed.wait()

    async def wait_change(self, seen: MembersView) -> MembersView:
        """Wait until the view is another than ``seen``, and give it."""
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
    """The member with the largest weight for a partition, given by topic id and index."""
    place = place_of(*key)
    return max(members, key=lambda live: weight(live.address, place), default=None)


def place_of(topic_id: bytes, partition: int) -> bytes:
    """A partition as `weight` takes it."""
    return topic_id + partition.to_bytes(4, "big")


def weight(name: str, place: bytes) -> bytes:
    """How heavy ``name`` is for a place: the heaviest name has it."""
    return hashlib.blake2b(name.encode() + b"\0" + place, digest_size=8).digest()


def live_member(item: KeyValue) -> LiveMember:
    """From its key."""
    return LiveMember(Member.FromString(item.value), item.create_revision)
