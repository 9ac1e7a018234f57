"""Snapshots of etcd in the bucket. Each consists of parts and a manifest with their checksums, which is written last.

A snapshot is the output of ``etcdctl snapshot save``: whole database pages, followed by their SHA-256.
"""

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import trio

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError
from kafscale.objects.interface import MAX_KEYS, ObjectNotFound, ObjectStore

PART_BYTES = 16 << 20
_PAGE_BYTES = 512
_DIGEST_BYTES = hashlib.sha256().digest_size
_DAY = len("YYYYMMDD")


@dataclass(frozen=True, slots=True)
class Part:
    """One object of a snapshot. ``size`` is in bytes, ``sha256`` is hexadecimal."""

    size: int
    sha256: str


class NoSnapshot(KafscaleError):
    """No complete snapshot has this name."""


class Snapshots:
    """The snapshots of one namespace. Names are times, like ``20261122T191700Z``, so they sort by age."""

    def __init__(self, objects: ObjectStore, namespace: str, *, part_bytes: int = PART_BYTES) -> None:
        self._objects = objects
        self._namespace = namespace
        self._part_bytes = part_bytes

    async def store(self, file: Path, name: str) -> int:
        """Store ``file`` as ``name`` and return its size in bytes. Raises CorruptData if it is no valid snapshot."""
        size = await _verify(file)
        parts: list[Part] = []
        async for body in self._pieces(file):
            await self._objects.put_if_absent(paths.etcd_snapshot_part_key(self._namespace, name, len(parts)), body)
            parts.append(Part(len(body), hashlib.sha256(body).hexdigest()))
        manifest = json.dumps({"parts": [asdict(part) for part in parts]}).encode()
        await self._objects.put_if_absent(paths.etcd_snapshot_manifest_key(self._namespace, name), manifest)
        return size

    async def fetch(self, name: str, file: Path) -> int:
        """Write the snapshot ``name`` to ``file`` and return its size. A damaged snapshot leaves no such file.

        Raises NoSnapshot, CorruptData or FileExistsError.
        """
        unfinished = file.with_name(f"{file.name}.unfinished")
        if await trio.Path(file).exists():
            raise FileExistsError(f"{file} already exists")
        parts = await self._parts(name)
        async with await trio.open_file(unfinished, "wb") as output:
            for number, part in enumerate(parts):
                await output.write(await self._part(name, number, part))
        size = await _verify(unfinished)
        await trio.Path(unfinished).rename(file)
        return size

    async def names(self) -> list[str]:
        """Return the names of all complete snapshots, oldest first."""
        return [name for name, keys in await self._stored() if self._whole(name, keys)]

    async def expire(self, keep: int, keep_days: int) -> list[str]:
        """Delete all but the newest ``keep``, and the newest of each of the last ``keep_days`` days that have any.

        Incomplete snapshots older than the newest complete one are deleted too. Returns the deleted names.
        """
        stored = await self._stored()
        whole = [name for name, keys in stored if self._whole(name, keys)]
        of_days = [max(of_day) for _, of_day in groupby(whole, key=lambda name: name[:_DAY])]
        kept = {*whole[-keep:], *(of_days[-keep_days:] if keep_days else [])}
        gone = [(name, keys) for name, keys in stored if name not in kept and whole and name < whole[-1]]
        for name, keys in gone:
            # The manifest goes first, so that an interrupted deletion leaves no snapshot with missing parts.
            manifest = paths.etcd_snapshot_manifest_key(self._namespace, name)
            if manifest in keys:
                await self._objects.delete_many([manifest])
            others = [key for key in keys if key != manifest]
            for start in range(0, len(others), MAX_KEYS):
                await self._objects.delete_many(others[start : start + MAX_KEYS])
        return [name for name, _ in gone]

    async def _stored(self) -> list[tuple[str, list[str]]]:
        """Return the names of all snapshots with their keys, in order."""
        prefix = paths.etcd_snapshots_prefix(self._namespace)
        keys: list[str] = []
        while True:
            page = await self._objects.list_from(prefix, keys[-1] if keys else "")
            keys += [found.key for found in page]
            if len(page) < MAX_KEYS:
                break
        by_name = groupby(keys, key=lambda key: key.removeprefix(prefix).partition("/")[0])
        return [(name, list(of_name)) for name, of_name in by_name]

    def _whole(self, name: str, keys: list[str]) -> bool:
        return paths.etcd_snapshot_manifest_key(self._namespace, name) in keys

    async def _parts(self, name: str) -> list[Part]:
        key = paths.etcd_snapshot_manifest_key(self._namespace, name)
        try:
            manifest = json.loads((await self._objects.get(key)).body)
            return [Part(int(part["size"]), str(part["sha256"])) for part in manifest["parts"]]
        except ObjectNotFound:
            raise NoSnapshot(f"snapshot {name} does not exist") from None
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise CorruptData(f"{key} is damaged: {error}") from error

    async def _part(self, name: str, number: int, part: Part) -> bytes:
        key = paths.etcd_snapshot_part_key(self._namespace, name, number)
        try:
            body = (await self._objects.get(key)).body
        except ObjectNotFound:
            raise CorruptData(f"{key} is missing") from None
        if len(body) != part.size or hashlib.sha256(body).hexdigest() != part.sha256:
            raise CorruptData(f"{key} is damaged: its checksum differs from the manifest")
        return body

    async def _pieces(self, file: Path) -> AsyncIterator[bytes]:
        async with await trio.open_file(file, "rb") as source:
            while body := await source.read(self._part_bytes):
                yield body


async def _verify(file: Path) -> int:
    """Return the size of ``file``. Raises CorruptData if it does not end with the checksum of its contents."""
    digest, size, last = hashlib.sha256(), 0, b""
    async with await trio.open_file(file, "rb") as source:
        while body := await source.read(PART_BYTES):
            size += len(body)
            last += body
            digest.update(last[:-_DIGEST_BYTES])
            last = last[-_DIGEST_BYTES:]
    if size % _PAGE_BYTES != _DIGEST_BYTES or size == _DIGEST_BYTES or digest.digest() != last:
        raise CorruptData(f"{file} is not a complete etcd snapshot")
    return size
