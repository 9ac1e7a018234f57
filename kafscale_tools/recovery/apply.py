"""Writes rebuilt metadata to an empty store. The cluster's key comes last, because no process works without it."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import trio
from google.protobuf.message import DecodeError

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError, Unavailable
from kafscale.metadata.interface import MAX_PLAIN, MAX_REQUEST_BYTES, Delete, MetadataStore, Operation, Put, Unchanged
from kafscale.objects.interface import ObjectStore
from kafscale.objects.puts import put_derived
from kafscale.v1.groups_pb2 import Group, GroupShard
from kafscale.v1.metadata_pb2 import Sink, SinkProgress
from kafscale_tools.recovery.backup_format import Item
from kafscale_tools.recovery.backups import Advance
from kafscale_tools.recovery.rebuild import Rebuilt, cluster_values, topic_object, topic_values

_TXN_BYTES = MAX_REQUEST_BYTES // 2
_ATTEMPTS = 30
_PAUSE_SECONDS = 1.0
_REBUILT = ("cluster", "producer-ids", "topics/", "partitions/", "epochs/", "sinks/", "intake/")
"""Keys, without the namespace's root, that are rebuilt from objects and not copied from a snapshot."""


class NotEmpty(KafscaleError):
    """The metadata store already has a cluster, or processes are registered in it. Nothing was changed."""


async def check_empty(metadata: MetadataStore, namespace: str, *, overwrite: bool) -> int:
    """Return the revision of the cluster's key, 0 if there is none. Raises NotEmpty, Unavailable, Refused.

    Other keys without that key are left over from an interrupted restore.
    """
    members = await metadata.read_page(f"{paths.metadata_root(namespace)}members/")
    if members.items:
        raise NotEmpty(
            f"{len(members.items)} processes are registered in the metadata store: stop all of them and wait until "
            "their leases have expired (KAFSCALE_LEASE_TTL_SECONDS)"
        )
    cluster = await metadata.get(paths.cluster_key(namespace))
    if cluster is None:
        return 0
    if not overwrite:
        raise NotEmpty(f"the metadata store has a cluster in namespace {namespace}: use --overwrite to replace it")
    return cluster.mod_revision


async def write_rebuilt(
    metadata: MetadataStore,
    objects: ObjectStore,
    rebuilt: Rebuilt,
    namespace: str,
    *,
    overwrite: bool,
    sinks: Mapping[str, Sink],
    progress: Mapping[tuple[bytes, int], list[SinkProgress]],
    items: AsyncGenerator[Item, None],
    now_ms: int,
    advance: Advance = lambda _: None,
) -> None:
    """Replace all keys of the namespace. ``items`` are those of a snapshot, or empty.

    ``advance`` is called with the number of keys written. Raises NotEmpty, with nothing changed if it is raised by
    `check_empty`. After CorruptData, Unavailable and Refused the store has no cluster, and this can be repeated.
    """
    # Check again, because processes may have been started while the user was asked for confirmation.
    await _clear(metadata, namespace, await check_empty(metadata, namespace, overwrite=overwrite))
    writer = _Writer(metadata, advance)
    for topic in rebuilt.topics:
        for key, value in topic_values(rebuilt, topic, namespace, progress):
            await writer.put(key, value)
    for name, record in sinks.items():
        await writer.put(paths.sink_key(namespace, name), record.SerializeToString())
    async with aclosing(items):
        async for item in items:
            kept = restored_value(item, namespace, now_ms)
            if kept is not None:
                await writer.put(f"{paths.metadata_root(namespace)}{item.key}", kept)
    *others, cluster = cluster_values(rebuilt, namespace)
    for key, value in others:
        await writer.put(key, value)
    await writer.flush()
    for key, root in rebuilt.roots.items():
        await put_derived(objects, key, root)
    for topic in rebuilt.topics:
        key = paths.topic_object_key(namespace, topic.info.name)
        await put_derived(objects, key, topic_object(topic, writer.revision).encode())
    done = await sure(metadata, [Unchanged(cluster[0], 0)], [Put(*cluster)])
    if not done and (found := await metadata.get(cluster[0])) is not None and found.value != cluster[1]:
        raise NotEmpty("a process created a cluster in the metadata store meanwhile: stop it and try again")


def restored_value(item: Item, namespace: str, now_ms: int) -> bytes | None:
    """Return a snapshot's value as it is stored again, or None if it is not kept. Raises CorruptData.

    Groups keep their offsets and generation. They lose their members, which join again. The retention of their offsets
    starts again.
    """
    if item.key.startswith(_REBUILT):
        return None
    key = f"{paths.metadata_root(namespace)}{item.key}"
    try:
        if paths.parse_group_shard_key(namespace, key) is not None:
            shard = GroupShard.FromString(item.value)
            shard.owner = ""
            return shard.SerializeToString()
        group = paths.parse_group_key(namespace, key)
        if group is None:
            return item.value
        keys = paths.GroupKeys(namespace, group)
        if key != keys.header:
            return item.value if keys.parse_offset(key) is not None else None
        header = Group.FromString(item.value)
    except DecodeError as error:
        raise CorruptData(f"metadata key {key} cannot be decoded") from error
    header.changed_ms = now_ms
    for name in ("members", "assignments_version", "assignments_chunks", "leader", "protocol"):
        header.ClearField(name)
    return header.SerializeToString()


class _Writer:
    """Puts keys in transactions of the largest size allowed. ``revision`` is the store's after the last of them."""

    def __init__(self, metadata: MetadataStore, advance: Advance) -> None:
        self._metadata = metadata
        self._advance = advance
        self._puts: list[Operation] = []
        self._size = 0
        self.revision = 1

    async def put(self, key: str, value: bytes) -> None:
        size = len(key) + len(value)
        if len(self._puts) == MAX_PLAIN or self._size + size > _TXN_BYTES:
            await self.flush()
        self._puts.append(Put(key, value))
        self._size += size

    async def flush(self) -> None:
        if self._puts:
            self.revision = await sure(self._metadata, [], self._puts)
            self._advance(len(self._puts))
        self._puts, self._size = [], 0


async def _clear(metadata: MetadataStore, namespace: str, revision: int) -> None:
    """Delete all keys of the namespace.

    Raises NotEmpty, with nothing changed, unless the cluster's key is still at ``revision``.
    """
    root, cluster = paths.metadata_root(namespace), paths.cluster_key(namespace)
    # The cluster's key goes first. If an answer was lost, it may already be deleted.
    done = await sure(metadata, [Unchanged(cluster, revision)], [Delete(cluster)])
    if not done and await metadata.get(cluster) is not None:
        raise NotEmpty("a process changed the cluster in the metadata store meanwhile: stop it and try again")
    while page := (await metadata.read_page(root)).items:
        for start in range(0, len(page), MAX_PLAIN):
            await sure(metadata, [], [Delete(item.key) for item in page[start : start + MAX_PLAIN]])


async def sure(metadata: MetadataStore, compares: list[Unchanged], operations: list[Operation]) -> int:
    """Run a transaction, repeated while there is no answer. It must be safe to repeat.

    Returns the revision after it, or 0 if a compare failed.
    """
    for attempt in range(_ATTEMPTS):
        try:
            result = await metadata.txn(compares, operations)
            return result.revision if result.succeeded else 0
        except Unavailable:
            if attempt == _ATTEMPTS - 1:
                raise
            await trio.sleep(_PAUSE_SECONDS)
    raise AssertionError
