"""Tests specific to objects that share files in the local directory."""

import errno
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog

from kafscale.errors import Unavailable
from kafscale.objects import packs
from kafscale.objects.interface import ObjectNotFound, PreconditionFailed
from kafscale.objects.local import LocalObjectStore
from tests.contract.objects.crashing_writer import expected_body, killed_writer


@asynccontextmanager
async def opened(directory: Path, *, sync: bool = False) -> AsyncIterator[LocalObjectStore]:
    async with LocalObjectStore.open(directory, is_packed=lambda _: True, sync_packs=sync) as store:
        yield store


def files(directory: Path) -> list[Path]:
    return sorted((directory / "packs").iterdir())


async def everything(store: LocalObjectStore) -> dict[str, tuple[bytes, str]]:
    found = {}
    for info in await store.list_from(""):
        one = await store.get(info.key)
        assert (info.size, info.etag) == (len(one.body), one.etag)
        found[info.key] = one.body, one.etag
    return found


@pytest.mark.parametrize("seed", range(6))
async def test_objects_are_what_puts_and_deletes_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Small files, so that many are begun, copied and deleted, and processes that end between calls."""
    monkeypatch.setattr(packs, "_PACK_BYTES", 2000)
    monkeypatch.setattr(packs, "_SPARE_BYTES", 8000)
    choose = random.Random(seed)
    model: dict[str, tuple[bytes, str]] = {}
    for _ in range(6):
        async with opened(tmp_path) as store:
            assert await everything(store) == model
            for _ in range(150):
                keys = [f"ns/{choose.randrange(60)}" for _ in range(choose.choice((1, 1, 1, 8)))]
                body = choose.randbytes(choose.choice((0, 10, 300, 2500)))
                if len(keys) > 1:
                    await store.delete_many(keys)
                    model = {key: there for key, there in model.items() if key not in keys}
                elif keys[0] not in model:
                    model[keys[0]] = body, await store.put_if_absent(keys[0], body)
                elif choose.random() < 0.3:
                    etag = await store.replace_if_match(keys[0], body, model[keys[0]][1])
                    assert etag != model[keys[0]][1]
                    model[keys[0]] = body, etag
                else:
                    with pytest.raises(PreconditionFailed):
                        await store.put_if_absent(keys[0], body)
            assert await everything(store) == model
            used = sum(file.stat().st_size for file in files(tmp_path))
            assert used <= 2 * sum(len(body) for body, _ in model.values()) + 8000 + 5000


async def test_a_file_without_objects_is_deleted(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put_if_absent("ns/a", b"body")
        await store.delete_many(["ns/a"])
    async with opened(tmp_path):
        assert files(tmp_path) == []


async def test_kill_9_loses_no_object_and_leaves_no_part_of_one(tmp_path: Path) -> None:
    for round_ in range(4):
        acked = killed_writer("packed", tmp_path, round_, puts=20 + round_)
        async with opened(tmp_path) as store:
            listed = [info.key for info in await store.list_from(f"ns/{round_}/")]
            assert set(acked) <= set(listed)
            for key in listed:
                assert (await store.get(key)).body == expected_body(key)


async def test_a_torn_record_is_no_object(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put_if_absent("ns/a", b"a" * 100)
        whole = files(tmp_path)[0].stat().st_size
        await store.put_if_absent("ns/b", b"b" * 100)
    (file,) = files(tmp_path)
    record = file.read_bytes()
    for size in range(whole, len(record)):
        file.write_bytes(record[:size])
        async with opened(tmp_path) as store:
            assert [info.key for info in await store.list_from("")] == ["ns/a"]
    async with opened(tmp_path) as store:
        await store.put_if_absent("ns/b", b"again")
    async with opened(tmp_path) as store:
        assert (await store.get("ns/b")).body == b"again"
        assert (await store.get("ns/a")).body == b"a" * 100


async def test_damage_is_logged_and_hides_only_what_follows(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for name in "abc":
            await store.put_if_absent(f"ns/{name}", b"body")
    (file,) = files(tmp_path)
    record = bytearray(file.read_bytes())
    second = len(record) // 3
    record[second + 10] ^= 1
    file.write_bytes(record)
    with structlog.testing.capture_logs() as logs:
        async with opened(tmp_path) as store:
            assert [info.key for info in await store.list_from("")] == ["ns/a"]
            await store.put_if_absent("ns/c", b"new")
    assert [(line["path"], line["position"]) for line in logs] == [(str(file), second)]


async def test_a_put_that_meets_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwritev

    def half(file: int, buffers: tuple[bytes, bytes], position: int) -> int:
        return write(file, (buffers[0], buffers[1][:500]), position)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with opened(tmp_path) as store:
        await store.put_if_absent("ns/a", b"a" * 1000)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwritev", half)
            await store.put_if_absent("ns/continued", b"c" * 1000)
            patched.setattr(os, "pwrite", full)
            with pytest.raises(Unavailable, match="ns/b"):
                await store.put_if_absent("ns/b", b"b" * 1000)
        with pytest.raises(ObjectNotFound):
            await store.get("ns/b")
        await store.put_if_absent("ns/d", b"d")
    async with opened(tmp_path) as store:
        bodies = {key: body for key, (body, _) in (await everything(store)).items()}
    assert bodies == {"ns/a": b"a" * 1000, "ns/continued": b"c" * 1000, "ns/d": b"d"}


async def test_objects_with_files_of_their_own_are_still_there(tmp_path: Path) -> None:
    async with LocalObjectStore.open(tmp_path) as store:
        for name in "bd":
            await store.put_if_absent(f"ns/{name}", b"file")
    async with opened(tmp_path) as store:
        for name in "ac":
            await store.put_if_absent(f"ns/{name}", b"packed")
        assert [info.key for info in await store.list_from("ns/", "ns/a", 2)] == ["ns/b", "ns/c"]
        with pytest.raises(PreconditionFailed):
            await store.put_if_absent("ns/b", b"other")
        assert (await store.get("ns/b")).body == b"file"
        await store.delete_many(["ns/b", "ns/a"])
        assert [info.key for info in await store.list_from("")] == ["ns/c", "ns/d"]


async def test_with_fsync_a_change_is_on_disk_when_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    for name in ("pwritev", "fdatasync", "fsync"):
        call = getattr(os, name)

        def recorded(*arguments: object, name: str = name, call: object = call) -> object:
            events.append(name)
            return call(*arguments)  # type: ignore[operator]  # one of os's functions

        monkeypatch.setattr(os, name, recorded)
    async with opened(tmp_path, sync=True) as store:
        events.clear()
        await store.put_if_absent("ns/a", b"body")
        assert events == ["fsync", "pwritev", "fdatasync"], "the name of the file, then its contents"
        events.clear()
        await store.put_if_absent("ns/b", b"body")
        await store.delete_many(["ns/b"])
        assert events == ["pwritev", "fdatasync"] * 2
