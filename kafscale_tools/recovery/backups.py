"""Stores, finds, reads and prunes snapshots of the metadata."""

from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import NamedTuple

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError
from kafscale.metadata.interface import Compacted, MetadataStore, Page
from kafscale.metadata.topic_values import ClusterInfo
from kafscale.objects.interface import MAX_KEYS, ObjectNotFound, ObjectStore
from kafscale.objects.puts import put_derived
from kafscale.paths import BackupId, BackupKey
from kafscale.records.checksum import crc32c
from kafscale_tools.recovery.backup_format import (
    CorruptBackup,
    Item,
    Manifest,
    Part,
    encode_part,
    parse_manifest,
    parse_part,
)

PART_BYTES = 4 * 1024 * 1024
"""The maximum size of the keys and values in a part, unless a single value, which the store limits, is larger."""
_ATTEMPTS = 5
_UNFINISHED_MS = 86_400_000
"""Parts without a manifest belong to a backup in progress, or, if older than this, to an abandoned one."""

Advance = Callable[[int], None]


class NotThisCluster(KafscaleError):
    """The metadata, the bucket and the snapshot do not belong to the same cluster. Nothing was changed."""


class NoBackup(KafscaleError):
    """The snapshot does not exist."""


class Listed(NamedTuple):
    """An existing snapshot. If it is damaged, ``manifest`` is None and ``fault`` is the reason."""

    backup: BackupId
    manifest: Manifest | None
    fault: str = ""


async def marked_cluster(objects: ObjectStore, namespace: str) -> str:
    """Return the id of the cluster that owns the namespace in the bucket. Raises NotThisCluster if it has no mark."""
    key = paths.cluster_mark_key(namespace)
    try:
        return (await objects.get(key)).body.decode(errors="replace")
    except ObjectNotFound as error:
        raise NotThisCluster(
            f"object {key}, which names the cluster of this bucket and namespace, does not exist: check "
            "KAFSCALE_S3_BUCKET and KAFSCALE_S3_NAMESPACE"
        ) from error


async def take_backup(
    metadata: MetadataStore,
    objects: ObjectStore,
    namespace: str,
    *,
    now_ms: int,
    version: str,
    into: ObjectStore | None = None,
    advance: Advance = lambda _: None,
    part_bytes: int = PART_BYTES,
) -> Manifest:
    """Store all metadata of the namespace at one revision, except keys with leases.

    ``objects`` contains the log. The snapshot is stored there too, or in ``into``. ``advance`` is called with the
    number of keys read. Raises NotThisCluster, Unavailable, Refused.
    """
    for _ in range(_ATTEMPTS):
        page = await _first_page(metadata, objects, namespace)
        writer = _Writer(into or objects, namespace, BackupId(now_ms, page.revision), part_bytes)
        try:
            await _copy(metadata, page, writer, paths.metadata_root(namespace), advance)
        except Compacted:
            # The store was compacted before all keys were read. Start again at a newer revision.
            await writer.abandon()
            continue
        return await writer.finish(await marked_cluster(objects, namespace), version)
    raise KafscaleError("the metadata store compacts its history faster than it can be read")


async def _first_page(metadata: MetadataStore, objects: ObjectStore, namespace: str) -> Page:
    marked, key = await marked_cluster(objects, namespace), paths.cluster_key(namespace)
    page = await metadata.read_page(paths.metadata_root(namespace))
    found = next((item for item in page.items if item.key == key), None)
    if found is None:
        raise NotThisCluster(
            f"the metadata store has no cluster in namespace {namespace}: check KAFSCALE_ETCD_ENDPOINTS and "
            "KAFSCALE_S3_NAMESPACE"
        )
    cluster_id = ClusterInfo.read(found).cluster_id
    if cluster_id != marked:
        raise NotThisCluster(f"the metadata is of cluster {cluster_id}, the objects of cluster {marked}")
    return page


async def _copy(metadata: MetadataStore, page: Page, writer: "_Writer", root: str, advance: Advance) -> None:
    while True:
        for item in page.items:
            # Keys with a lease describe the processes that are alive now.
            if not item.lease:
                await writer.add(Item(item.key.removeprefix(root), item.value))
        advance(len(page.items))
        if not page.more:
            return
        page = await metadata.read_page(root, after=page.items[-1].key, revision=page.revision)


class _Writer:
    """Stores keys in parts of at most ``part_bytes``, or one larger value. Buffers one part."""

    def __init__(self, objects: ObjectStore, namespace: str, backup: BackupId, part_bytes: int) -> None:
        self._objects = objects
        self._namespace = namespace
        self._backup = backup
        self._part_bytes = part_bytes
        self._items: list[Item] = []
        self._size = 0
        self._parts: list[Part] = []

    async def add(self, item: Item) -> None:
        size = len(item.key) + len(item.value)
        if self._items and self._size + size > self._part_bytes:
            await self._store()
        self._items.append(item)
        self._size += size

    async def finish(self, cluster_id: str, version: str) -> Manifest:
        await self._store()
        manifest = Manifest(cluster_id, self._namespace, self._backup, version, tuple(self._parts))
        await put_derived(self._objects, str(BackupKey(self._namespace, self._backup)), manifest.encode())
        return manifest

    async def abandon(self) -> None:
        await self._objects.delete_many(self._key(part) for part in range(len(self._parts)))

    async def _store(self) -> None:
        data = encode_part(self._items)
        # The key contains revision and millisecond, so it can only exist if the answer to this put was lost.
        await put_derived(self._objects, self._key(len(self._parts)), data)
        self._parts.append(Part(len(self._items), len(data), crc32c(data)))
        self._items, self._size = [], 0

    def _key(self, part: int) -> str:
        return str(BackupKey(self._namespace, self._backup, part))


async def list_backups(objects: ObjectStore, namespace: str) -> tuple[list[BackupId], list[BackupId]]:
    """Return the complete snapshots, and those without a manifest, oldest first."""
    whole: list[BackupId] = []
    unfinished: list[BackupId] = []
    prefix = after = paths.backups_prefix(namespace)
    while listed := await objects.list_from(prefix, after, 1):
        found = paths.parse_backup_key(listed[0].key)
        after = listed[0].key
        if found is not None:
            manifest = str(BackupKey(namespace, found.backup))
            (whole if await _exists(objects, manifest) else unfinished).append(found.backup)
            after = f"{manifest}~"
    return sorted(whole), sorted(unfinished)


async def read_manifest(objects: ObjectStore, namespace: str, backup: BackupId) -> Manifest:
    """Read the manifest of a snapshot. Raises NoBackup, CorruptBackup, Unavailable, Refused."""
    key = str(BackupKey(namespace, backup))
    try:
        manifest = parse_manifest((await objects.get(key)).body)
    except ObjectNotFound as error:
        raise NoBackup(f"snapshot {backup} does not exist") from error
    except CorruptData as error:
        raise CorruptBackup(f"object {key}: {error}") from error
    if (manifest.namespace, manifest.backup) != (namespace, backup):
        raise CorruptBackup(f"object {key} is the manifest of {manifest.backup} in namespace {manifest.namespace}")
    return manifest


async def read_manifests(objects: ObjectStore, namespace: str) -> list[Listed]:
    """Return all snapshots, including damaged ones, oldest first. Raises Unavailable, Refused."""
    listed: list[Listed] = []
    whole, _ = await list_backups(objects, namespace)
    for backup in whole:
        # Skip snapshots that are pruned at the same time.
        with suppress(NoBackup):
            try:
                listed.append(Listed(backup, await read_manifest(objects, namespace, backup)))
            except CorruptBackup as error:
                listed.append(Listed(backup, None, str(error)))
    return listed


async def read_items(objects: ObjectStore, manifest: Manifest) -> AsyncGenerator[Item, None]:
    """Yield all keys in order, reading one part at a time. Raises CorruptBackup, Unavailable, Refused."""
    for number, part in enumerate(manifest.parts):
        key = str(BackupKey(manifest.namespace, manifest.backup, number))
        try:
            items = parse_part((await objects.get(key)).body, part)
        except ObjectNotFound as error:
            raise CorruptBackup(f"object {key} is missing") from error
        except CorruptData as error:
            raise CorruptBackup(f"object {key}: {error}") from error
        for item in items:
            yield item


async def prune_backups(
    objects: ObjectStore, namespace: str, keep: int, *, made: BackupId, now_ms: int
) -> list[BackupId]:
    """Delete all snapshots except ``made`` and the newest ``keep`` - 1 others, and the parts of abandoned ones.

    Returns the deleted ids. Ids depend on the clocks of the machines that created them, so ``made`` may not be the
    newest.
    """
    whole, unfinished = await list_backups(objects, namespace)
    others = [backup for backup in whole if backup != made]
    gone = others[: max(len(others) - (keep - 1), 0)]
    gone += [backup for backup in unfinished if backup.created_ms < now_ms - _UNFINISHED_MS]
    for backup in gone:
        manifest = str(BackupKey(namespace, backup))
        # The manifest goes first, so that no incomplete snapshot is listed.
        await objects.delete_many([manifest])
        prefix = manifest.removesuffix("manifest")
        while page := await objects.list_from(prefix, "", MAX_KEYS):
            await objects.delete_many(info.key for info in page)
    return sorted(gone)


async def _exists(objects: ObjectStore, key: str) -> bool:
    try:
        await objects.head(key)
    except ObjectNotFound:
        return False
    return True
