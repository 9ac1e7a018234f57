"""Writes rebuilt metadata into an empty store, the cluster's own key last: without it nothing can be used."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import trio
from google.protobuf.message import DecodeError

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError, Unavailable
from kafscale.metadata.interface import MAX_PLAIN, MAX_REQUEST_BYTES, Delete, MetadataStore, Operation, Put, Unchanged
from kafscale.objects.derived import put_derived
from kafscale.objects.interface import ObjectStore
from kafscale.v1.groups_pb2 import Group, GroupShard
from kafscale.v1.metadata_pb2 import Sink, SinkProgress
from kafscale_tools.recovery.backup_format import Item
from kafscale_tools.recovery.backups import Advance
from kafscale_tools.recovery.rebuild import Rebuilt, cluster_values, topic_object, topic_values

_TXN_BYTES = MAX_REQUEST_BYTES // 2
_ATTEMPTS = 30
_PAUSE_SECONDS = 1.0
_REBUILT = ("cluster", "producer-ids", "topics/", "partitions/", "epochs/", "sinks/")
"""What the objects tell, without the namespace's root: nothing of it is taken from a snapshot as it is."""


class NotEmpty(KafscaleError):
    """The metadata store has what a restore would replace, or processes are registered there. Nothing was changed."""


async def check_empty(metadata: MetadataStore, namespace: str, *, overwrite: bool) -> int:
    """The revision of the cluster's key, 0 without one. Raises NotEmpty, Unavailable, Refused.

    Keys without a cluster's are what an interrupted restore has left.
    """
    members = await metadata.read_page(f"{paths.metadata_root(namespace)}members/")
    if members.items:
        raise NotEmpty(
            f"{len(members.items)} processes are registered in the metadata store: stop all of them, and wait until "
            "their leases have ended (KAFSCALE_LEASE_TTL_SECONDS)"
        )
    cluster = await metadata.get(paths.cluster_key(namespace))
    if cluster is None:
        return 0
    if not overwrite:
        raise NotEmpty(f"the metadata store has a cluster in namespace {namespace}: --overwrite replaces it")
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
    """Replace all that the store has of the namespace. ``items``: a snapshot's, or none.

    ``advance`` gets how many keys were written. Raises NotEmpty, with nothing changed where `check_empty` does;
    CorruptData, Unavailable, Refused: the store has no cluster then, and this may be done again.
    """
    # A person was asked since it was looked at: processes may have been started meanwhile.
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
    for topic in rebuilt.topics:
        key = paths.topic_object_key(namespace, topic.info.name)
        await put_derived(objects, key, topic_object(topic, writer.revision).encode())
    done = await sure(metadata, [Unchanged(cluster[0], 0)], [Put(*cluster)])
    if not done and (found := await metadata.get(cluster[0])) is not None and found.value != cluster[1]:
        raise NotEmpty("a process made a cluster in the metadata store meanwhile: stop it, and begin again")


def restored_value(item: Item, namespace: str, now_ms: int) -> bytes | None:
    """What a snapshot's value is in a new store; None: it is not kept. Raises CorruptData.

    Groups keep their offsets and their generation, and have no members: those join again. Their offsets do not expire
    sooner for it.
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
        raise CorruptData(f"metadata key {key} does not parse") from error
    header.changed_ms = now_ms
    for name in ("members", "assignments_version", "assignments_chunks", "leader", "protocol"):
        header.ClearField(name)
    return header.SerializeToString()


class _Writer:
    """Puts keys, as many in a transaction as it takes. ``revision``: the store's after the last of them."""

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
    """``revision``: of the cluster's key as it was seen. Raises NotEmpty where it is another, with nothing changed."""
    root, cluster = paths.metadata_root(namespace), paths.cluster_key(namespace)
    # First what makes it a cluster. When an answer was lost it may be gone by this.
    done = await sure(metadata, [Unchanged(cluster, revision)], [Delete(cluster)])
    if not done and await metadata.get(cluster) is not None:
        raise NotEmpty("a process changed the cluster in the metadata store meanwhile: stop it, and begin again")
    while page := (await metadata.read_page(root)).items:
        for start in range(0, len(page), MAX_PLAIN):
            await sure(metadata, [], [Delete(item.key) for item in page[start : start + MAX_PLAIN]])


async def sure(metadata: MetadataStore, compares: list[Unchanged], operations: list[Operation]) -> int:
    """Do it, repeated while there is no answer, which all of these may be; the revision after it, 0: not done."""
    for attempt in range(_ATTEMPTS):
        try:
            result = await metadata.txn(compares, operations)
            return result.revision if result.succeeded else 0
        except Unavailable:
            if attempt == _ATTEMPTS - 1:
                raise
            await trio.sleep(_PAUSE_SECONDS)
    raise AssertionError
