"""Snapshots of the metadata in the bucket: taken at one revision, found, read and pruned."""

import pytest

from kafscale import paths
from kafscale.errors import KafscaleError
from kafscale.metadata.interface import Compacted, Page, Put
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.topic_values import ClusterInfo
from kafscale.objects.interface import ObjectNotFound
from kafscale.objects.memory import Fault, MemoryObjectStore
from kafscale.paths import BackupId, BackupKey
from kafscale_tools.recovery.backup_format import CorruptBackup, Item, Manifest
from kafscale_tools.recovery.backups import (
    NoBackup,
    NotThisCluster,
    list_backups,
    prune_backups,
    read_items,
    read_manifest,
    read_manifests,
    take_backup,
)

NAMESPACE = "test"
ROOT = paths.metadata_root(NAMESPACE)
CLUSTER = "iiL196Ctcr2ySsHvN51hHw"
DAY_MS = 86_400_000


async def stores(keys: int = 0) -> tuple[MemoryMetadataStore, MemoryObjectStore]:
    metadata, objects = MemoryMetadataStore(), MemoryObjectStore()
    await objects.put_if_absent(paths.cluster_mark_key(NAMESPACE), CLUSTER.encode())
    await metadata.txn([], [Put(paths.cluster_key(NAMESPACE), ClusterInfo(CLUSTER, 0).value())])
    for number in range(keys):
        await metadata.txn([], [Put(f"{ROOT}topics/t{number:05d}", b"%d" % number)])
    return metadata, objects


async def take(
    metadata: MemoryMetadataStore, objects: MemoryObjectStore, now_ms: int = 1_700_000_000_000, part_bytes: int = 1000
) -> Manifest:
    return await take_backup(metadata, objects, NAMESPACE, now_ms=now_ms, version="1", part_bytes=part_bytes)


async def items(objects: MemoryObjectStore, manifest: Manifest) -> list[Item]:
    return [item async for item in read_items(objects, manifest)]


async def test_all_keys_except_those_of_live_processes_are_stored_in_small_parts() -> None:
    metadata, objects = await stores(1200)
    lease = await metadata.grant_lease(10)
    await metadata.txn(
        [], [Put(f"{ROOT}members/storage/run-1", b"me", lease), Put("kafscale/other/cluster", b"not ours")]
    )
    seen: list[int] = []
    made = await take_backup(metadata, objects, NAMESPACE, now_ms=1, version="1", advance=seen.append, part_bytes=1000)
    assert sum(seen) == 1202
    assert max(part.size for part in made.parts) < 2000 < made.size
    assert max(call.size for call in objects.calls if "~backups" in call.key) < 10_000 < made.size
    found = await items(objects, await read_manifest(objects, NAMESPACE, made.backup))
    assert found[0].key == "cluster"
    assert found[1:] == [Item(f"topics/t{number:05d}", b"%d" % number) for number in range(1200)]
    assert (made.cluster_id, made.keys) == (CLUSTER, 1201)


async def test_a_value_larger_than_a_part_gets_its_own_part() -> None:
    metadata, objects = await stores(3)
    await metadata.txn([], [Put(f"{ROOT}topics/t00001", bytes(5000))])
    made = await take(metadata, objects, part_bytes=100)
    assert (await items(objects, made))[2] == Item("topics/t00001", bytes(5000))


async def test_a_snapshot_starts_again_if_its_revision_is_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata, objects = await stores(1200)
    read_page, asked = metadata.read_page, 0

    async def changed_once(prefix: str, *, after: str = "", revision: int = 0) -> Page:
        nonlocal asked
        asked += 1
        if asked == 3:
            # This store keeps only the newest revision, so earlier pages are now of one that is gone.
            await metadata.txn([], [Put(f"{ROOT}topics/t00000", b"changed")])
        return await read_page(prefix, after=after, revision=revision)

    monkeypatch.setattr(metadata, "read_page", changed_once)
    made = await take(metadata, objects)
    assert (await items(objects, made))[1] == Item("topics/t00000", b"changed")
    assert await list_backups(objects, NAMESPACE) == ([made.backup], [])


async def test_the_bucket_of_another_cluster_and_an_unmarked_one_are_refused() -> None:
    metadata, objects = await stores()
    await objects.delete_many([paths.cluster_mark_key(NAMESPACE)])
    with pytest.raises(NotThisCluster, match="KAFSCALE_S3_NAMESPACE"):
        await take(metadata, objects)
    await objects.put_if_absent(paths.cluster_mark_key(NAMESPACE), b"another")
    with pytest.raises(NotThisCluster, match="another"):
        await take(metadata, objects)
    with pytest.raises(NotThisCluster, match="no cluster"):
        await take_backup(MemoryMetadataStore(), objects, NAMESPACE, now_ms=1, version="1")
    assert not await objects.list_from(paths.backups_prefix(NAMESPACE))


async def test_only_the_configured_number_is_kept_and_abandoned_parts_expire() -> None:
    metadata, objects = await stores(50)
    made = [(await take(metadata, objects, now_ms=number * DAY_MS, part_bytes=200)).backup for number in range(1, 5)]
    await objects.delete_many([str(BackupKey(NAMESPACE, made[1]))])
    young = BackupId(4 * DAY_MS + 1, 99)
    await objects.put_if_absent(str(BackupKey(NAMESPACE, young, 0)), b"somebody is at it")
    assert await list_backups(objects, NAMESPACE) == ([made[0], *made[2:]], [made[1], young])
    assert await prune_backups(objects, NAMESPACE, 2, made=made[3], now_ms=5 * DAY_MS) == made[:2]
    assert await list_backups(objects, NAMESPACE) == (made[2:], [young])
    with pytest.raises(NoBackup):
        await read_manifest(objects, NAMESPACE, made[0])
    prefixes = {info.key.split("/")[2] for info in await objects.list_from(paths.backups_prefix(NAMESPACE))}
    assert prefixes == {str(one) for one in (*made[2:], young)}


async def test_a_new_snapshot_is_kept_even_if_another_machines_clock_is_ahead() -> None:
    metadata, objects = await stores(1)
    ahead = [(await take(metadata, objects, now_ms=number * DAY_MS)).backup for number in (5, 6)]
    behind = (await take(metadata, objects, now_ms=DAY_MS)).backup
    assert await prune_backups(objects, NAMESPACE, 2, made=behind, now_ms=DAY_MS) == ahead[:1]
    assert await list_backups(objects, NAMESPACE) == ([behind, ahead[1]], [])


async def test_a_damaged_or_missing_part_is_refused() -> None:
    metadata, objects = await stores(50)
    made = await take(metadata, objects)
    key = str(BackupKey(NAMESPACE, made.backup, len(made.parts) - 1))
    there = await objects.get(key)
    await objects.replace_if_match(key, there.body[:-1] + b"?", there.etag)
    with pytest.raises(CorruptBackup, match="CRC"):
        await items(objects, made)
    await objects.delete_many([key])
    with pytest.raises(CorruptBackup, match="missing"):
        await items(objects, made)


async def test_a_store_that_always_compacts_causes_no_partial_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata, objects = await stores(1200)
    read_page = metadata.read_page

    async def compacted(prefix: str, *, after: str = "", revision: int = 0) -> Page:
        if revision:
            raise Compacted("gone")
        return await read_page(prefix, after=after, revision=revision)

    monkeypatch.setattr(metadata, "read_page", compacted)
    with pytest.raises(KafscaleError, match="faster"):
        await take(metadata, objects)
    assert not await objects.list_from(paths.backups_prefix(NAMESPACE))


async def test_a_snapshot_pruned_while_snapshots_are_listed_is_not_reported() -> None:
    metadata, objects = await stores()
    gone, there = await take(metadata, objects, 1), await take(metadata, objects, 2)
    objects.plan = lambda call: (
        Fault(error=ObjectNotFound(call.key)) if call.kind == "get" and str(gone.backup) in call.key else None
    )
    assert [one.manifest for one in await read_manifests(objects, NAMESPACE)] == [there]
