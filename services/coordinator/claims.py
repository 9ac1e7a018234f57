"""Claim and release of a shard of the groups, the only ways in which its owner changes; and who has which, as watched.

A claim raises the shard's epoch, with which its key gets a new revision. Every write for a group compares that, so what
a former owner has under way, or this run before it claimed anew, can change nothing from then on.
"""

from collections.abc import Callable
from dataclasses import dataclass

import trio

from kafscale import paths
from kafscale.errors import KafscaleError, Refused, Unavailable
from kafscale.metadata.follow import follow
from kafscale.metadata.interface import Event, KeyValue, MetadataStore, Put, Snapshot, Unchanged
from kafscale.v1.groups_pb2 import GroupShard

SERVICE = "coordinator"
_FORMAT = 1
_ATTEMPTS = 8


class StillOwned(KafscaleError):
    """A live run has the shard."""


@dataclass(frozen=True, slots=True)
class Claim:
    """``revision``: of the shard's key; while it stays, nobody has claimed the shard since."""

    shard: int
    epoch: int
    revision: int


async def claim(metadata: MetadataStore, *, namespace: str, run_id: str, shard: int) -> Claim:
    """Become the shard's owner, unless a live run has it: StillOwned. Raises Unavailable, Refused.

    Whatever is raised this run may be the owner then, at once or later. The next claim raises the epoch once more.
    Where another run is given the shard by then, `release` is called when the key is seen to name this run.
    """
    key = paths.group_shard_key(namespace, shard)
    for _ in range(_ATTEMPTS):
        kv = await metadata.get(key)
        before = GroupShard.FromString(kv.value) if kv else GroupShard(format=_FORMAT)
        if before.format != _FORMAT:
            raise Refused(f"{key} is of format {before.format}, this release reads {_FORMAT}")
        compares = [Unchanged(key, kv.mod_revision if kv else 0)]
        if before.owner and before.owner != run_id:
            member_key = paths.member_key(namespace, SERVICE, before.owner)
            if await metadata.get(member_key) is not None:
                raise StillOwned(f"run {before.owner} has shard {shard}")
            compares.append(Unchanged(member_key, 0))
        after = GroupShard(format=_FORMAT, epoch=before.epoch + 1, owner=run_id)
        result = await metadata.txn(compares, [Put(key, after.SerializeToString())])
        if result.succeeded:
            return Claim(shard, after.epoch, result.revision)
    raise Unavailable(f"{key} keeps changing")


async def release(metadata: MetadataStore, *, namespace: str, run_id: str, shard: int) -> "Owner":
    """Clear the shard's key if it names this run, whichever of its claims wrote that. Returns what the key says then.

    Raises Unavailable, Refused: to be repeated. The run must not use the shard any more nor await a claim of it.
    """
    key = paths.group_shard_key(namespace, shard)
    for _ in range(_ATTEMPTS):
        kv = await metadata.get(key)
        found = GroupShard.FromString(kv.value) if kv else GroupShard()
        revision = kv.mod_revision if kv else 0
        if found.owner != run_id:
            return Owner(found.owner, revision)
        after = GroupShard(format=_FORMAT, epoch=found.epoch)
        result = await metadata.txn([Unchanged(key, revision)], [Put(key, after.SerializeToString())])
        if result.succeeded:
            return Owner("", result.revision)
    raise Unavailable(f"{key} keeps changing")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom a shard's key names at one of its revisions; an empty ``run_id``: nobody."""

    run_id: str
    revision: int


_NOBODY = Owner("", 0)


class ShardOwners:
    """The run that has each shard, as the metadata store says. `run` must be running."""

    def __init__(self, store: MetadataStore, namespace: str, changed: Callable[[], None]) -> None:
        self._store = store
        self._namespace = namespace
        self._changed = changed
        self._owners: dict[int, Owner] = {}

    def __getitem__(self, shard: int) -> str:
        """Empty: nobody."""
        return self._owners.get(shard, _NOBODY).run_id

    def learn(self, shard: int, owner: Owner) -> None:
        """What the store has answered somebody: the watch, which may be behind, does not take it back."""
        if owner.revision > self._owners.get(shard, _NOBODY).revision:
            self._owners[shard] = owner

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep it until cancelled; started when it was read once. Raises Refused only before that."""
        prefix = paths.group_shards_prefix(self._namespace)
        await follow(self._store, prefix, reset=self._reset, apply=self._apply, task_status=task_status)

    def _reset(self, snapshot: Snapshot) -> None:
        self._owners.clear()
        for item in snapshot.items:
            self._put(item.key, item, item.mod_revision)
        self._changed()

    def _apply(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self._put(event.key, event.value, event.revision)
        self._changed()

    def _put(self, key: str, item: KeyValue | None, revision: int) -> None:
        shard = paths.parse_group_shard_key(self._namespace, key)
        if shard is not None:
            self.learn(shard, Owner(GroupShard.FromString(item.value).owner if item else "", revision))
