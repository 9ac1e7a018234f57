"""Snapshots of etcd in an object store: complete or refused, and kept for the configured time."""

import hashlib
from pathlib import Path

import pytest

from kafscale import paths
from kafscale.errors import CorruptData, Unavailable
from kafscale.objects.memory import Fault, MemoryObjectStore
from kafscale_tools.cli.etcd_snapshots import NoSnapshot, Snapshots

NAMESPACE = "tested"


def _snapshot(path: Path, pages: int = 5, fill: bytes = b"p") -> Path:
    """Write a snapshot as etcdctl does: pages, followed by their checksum."""
    content = fill * (512 * pages)
    path.write_bytes(content + hashlib.sha256(content).digest())
    return path


@pytest.fixture
def objects() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def snapshots(objects: MemoryObjectStore) -> Snapshots:
    return Snapshots(objects, NAMESPACE, part_bytes=1000)


async def test_a_stored_snapshot_can_be_fetched(snapshots: Snapshots, tmp_path: Path) -> None:
    file = _snapshot(tmp_path / "etcd.db")
    assert await snapshots.store(file, "20261122T190000Z") == 512 * 5 + 32
    assert await snapshots.names() == ["20261122T190000Z"]
    assert await snapshots.fetch("20261122T190000Z", tmp_path / "back.db") == 512 * 5 + 32
    assert (tmp_path / "back.db").read_bytes() == file.read_bytes()


@pytest.mark.parametrize("damage", ["shorter", "changed", "empty", "checksum alone"])
async def test_an_incomplete_snapshot_is_not_stored(
    damage: str, snapshots: Snapshots, objects: MemoryObjectStore, tmp_path: Path
) -> None:
    file = _snapshot(tmp_path / "etcd.db")
    whole = file.read_bytes()
    damaged = {
        "shorter": whole[:-512],
        "changed": b"q" + whole[1:],
        "empty": b"",
        "checksum alone": hashlib.sha256(b"").digest(),
    }
    file.write_bytes(damaged[damage])
    with pytest.raises(CorruptData, match="is not a complete etcd snapshot"):
        await snapshots.store(file, "20261122T190000Z")
    assert await objects.list_from("") == []


@pytest.mark.parametrize("damage", ["changed", "missing"])
async def test_a_snapshot_damaged_in_the_bucket_is_not_fetched(
    damage: str, snapshots: Snapshots, objects: MemoryObjectStore, tmp_path: Path
) -> None:
    await snapshots.store(_snapshot(tmp_path / "etcd.db"), "20261122T190000Z")
    key = paths.etcd_snapshot_part_key(NAMESPACE, "20261122T190000Z", 1)
    stored = await objects.get(key)
    if damage == "changed":
        await objects.replace_if_match(key, b"x" + stored.body[1:], stored.etag)
    else:
        await objects.delete_many([key])
    with pytest.raises(CorruptData, match=key):
        await snapshots.fetch("20261122T190000Z", tmp_path / "back.db")
    assert not (tmp_path / "back.db").exists()


@pytest.mark.parametrize("manifest", [b"[]", b"{}", b"x", b'{"parts": [{"size": Infinity}]}', b"[" * 100_000])
async def test_a_damaged_manifest_is_refused(
    manifest: bytes, snapshots: Snapshots, objects: MemoryObjectStore, tmp_path: Path
) -> None:
    await objects.put_if_absent(paths.etcd_snapshot_manifest_key(NAMESPACE, "20261122T190000Z"), manifest)
    with pytest.raises(CorruptData, match="is damaged"):
        await snapshots.fetch("20261122T190000Z", tmp_path / "back.db")


async def test_a_partly_stored_snapshot_does_not_count(
    snapshots: Snapshots, objects: MemoryObjectStore, tmp_path: Path
) -> None:
    manifest = paths.etcd_snapshot_manifest_key(NAMESPACE, "20261122T190000Z")
    objects.plan = lambda call: Fault(error=Unavailable("cut")) if call.key == manifest else None
    with pytest.raises(Unavailable):
        await snapshots.store(_snapshot(tmp_path / "etcd.db"), "20261122T190000Z")
    objects.plan = None
    assert await snapshots.names() == []
    with pytest.raises(NoSnapshot):
        await snapshots.fetch("20261122T190000Z", tmp_path / "back.db")
    # It is deleted once there is a newer one.
    assert await snapshots.expire(1, 0) == []
    await snapshots.store(_snapshot(tmp_path / "next.db"), "20261122T200000Z")
    assert await snapshots.expire(1, 0) == ["20261122T190000Z"]
    assert await snapshots.names() == ["20261122T200000Z"]


async def test_the_newest_snapshots_and_the_newest_of_each_recent_day_are_kept(
    snapshots: Snapshots, tmp_path: Path
) -> None:
    file = _snapshot(tmp_path / "etcd.db", 1)
    for day in ("18", "19", "20", "21", "22"):
        for hour in ("10", "11", "12"):
            await snapshots.store(file, f"202611{day}T{hour}0000Z")
    await snapshots.expire(2, 3)
    kept = ["20261120T120000Z", "20261121T120000Z", "20261122T110000Z", "20261122T120000Z"]
    assert await snapshots.names() == kept
    assert await snapshots.expire(2, 3) == []


async def test_an_existing_file_is_not_overwritten(snapshots: Snapshots, tmp_path: Path) -> None:
    await snapshots.store(_snapshot(tmp_path / "etcd.db"), "20261122T190000Z")
    with pytest.raises(FileExistsError):
        await snapshots.fetch("20261122T190000Z", tmp_path / "etcd.db")
