"""Claiming and releasing group shards, the only operations that change a shard's owner, and watching the owners.

A claim raises the shard's epoch, so its key gets a new revision. Every write for a group compares that revision, so
writes that a former owner, or this run before it claimed again, still has in flight no longer take effect.
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
    """A live run owns the shard."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a shard. It is valid while the shard's key still has ``revision``."""

    shard: int
    epoch: int
    revision: int


async def claim(metadata: MetadataStore, *, namespace: str, run_id: str, shard: int) -> Claim:
    """Become the shard's owner. Raises StillOwned if a live run owns it, Unavailable or Refused.

    After any exception this run may be the owner, now or later. The next claim raises the epoch once more. If the
    shard has been assigned to another run by then, the caller uses `release` once the key is seen to name this run.
    """
    key = paths.group_shard_key(namespace, shard)
    for _ in range(_ATTEMPTS):
        kv = await metadata.get(key)
        before = GroupShard.FromString(kv.value) if kv else GroupShard(format=_FORMAT)
        if before.format != _FORMAT:
            raise Refused(f"{key} has format {before.format}, this release reads {_FORMAT}")
        compares = [Unchanged(key, kv.mod_revision if kv else 0)]
        if before.owner and before.owner != run_id:
            member_key = paths.member_key(namespace, SERVICE, before.owner)
            if await metadata.get(member_key) is not None:
                raise StillOwned(f"run {before.owner} owns shard {shard}")
            compares.append(Unchanged(member_key, 0))
        after = GroupShard(format=_FORMAT, epoch=before.epoch + 1, owner=run_id)
        result = await metadata.txn(compares, [Put(key, after.SerializeToString())])
        if result.succeeded:
            return Claim(shard, after.epoch, result.revision)
    raise Unavailable(f"{key} keeps changing")


async def release(metadata: MetadataStore, *, namespace: str, run_id: str, shard: int) -> "Owner":
    """Clear the owner in the shard's key if it is this run, by whichever claim. Returns the owner after that.

    The caller repeats it after Unavailable and Refused. The run must no longer use the shard or have a claim in flight.
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
    """The owner in a shard's key at one of its revisions. ``run_id`` is empty if there is none."""

    run_id: str
    revision: int


_NOBODY = Owner("", 0)


class ShardOwners:
    """The run that owns each shard, watched in the metadata store. `run` must be running."""

    def __init__(self, store: MetadataStore, namespace: str, changed: Callable[[], None]) -> None:
        self._store = store
        self._namespace = namespace
        self._changed = changed
        self._owners: dict[int, Owner] = {}

    def __getitem__(self, shard: int) -> str:
        """Return the run that owns the shard, empty if none does."""
        return self._owners.get(shard, _NOBODY).run_id

    def learn(self, shard: int, owner: Owner) -> None:
        """Record an owner that the store returned. Older news, from a watch that lags behind, does not replace it."""
        if owner.revision > self._owners.get(shard, _NOBODY).revision:
            self._owners[shard] = owner

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled. Started after the first read; raises Refused only before that."""
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
