"""Files of objects that overwrite deleted ones: what was there before, damage, readers, and a full disk."""

import errno
import os
import shutil
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO

import pytest
import structlog

from kafscale.errors import Unavailable
from kafscale.objects import packs
from kafscale.objects.interface import ObjectNotFound
from kafscale.objects.pack_records import record_head
from tests.contract.objects.packed import files, opened


async def test_nothing_returns_that_a_file_held_before_it_was_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the process was killed while it wrote the last record, of which only a part was written."""
    monkeypatch.setattr(packs, "_PACK_BYTES", 2000)
    crashed = tmp_path / "crashed" / "packs"
    async with opened(tmp_path / "data") as store:
        for round_ in range(2):
            keys = [f"ns/{round_}/{number}" for number in range(4)]
            for key in keys:
                await store.put_if_absent(key, key.encode() * 200)
            await store.delete_many(keys, unused=True)
        newest = max(file for file in files(tmp_path / "data") if file.name.isdigit())
        before = newest.read_bytes()
        for name in "ab":
            await store.put_if_absent(f"ns/{name}", name.encode() * 300)
        after = newest.read_bytes()
        assert len(after) == len(before) > 2000, "it has overwritten what was there"
        shutil.copytree(tmp_path / "data" / "packs", crashed)
    ends = [after.index(b"ns/" + name * 301) + 304 for name in (b"a", b"b")]
    first = len(record_head("", b"", 0, 0))
    for written in (*range(first, ends[1], 7), ends[0], ends[1]):
        for file in files(crashed.parent):
            file.unlink()
        (crashed / newest.name).write_bytes(after[:written] + before[written:])
        with structlog.testing.capture_logs() as logs:
            async with opened(crashed.parent) as store:
                found = [info.key for info in await store.list_from("")]
                assert found == ["ns/a", "ns/b"][: sum(written >= end for end in ends)]
                await store.put_if_absent("ns/c", b"c")
        async with opened(crashed.parent) as store:
            assert (await store.get("ns/c")).body == b"c"
        assert logs == []


async def test_damage_at_the_end_of_a_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the file was used again and closed, so that nothing follows its records that it held before."""
    monkeypatch.setattr(packs, "_PACK_BYTES", 4000)
    async with opened(tmp_path) as store:
        for name in "ab":
            await store.put_if_absent(f"ns/{name}", bytes(4000))
        await store.delete_many(["ns/a"], unused=True)
        for name, count in (("b2", 1000), ("c", 475), ("d", 575)):
            await store.put_if_absent(f"ns/{name}", b"body" * count)
    newest = files(tmp_path)[-1]
    content = newest.read_bytes()
    assert len(content) > 4100, "it is larger than before"
    for where in (b"ns/d", b"ns/dbody"):
        position = content.index(where) + len(where) - 1
        newest.write_bytes(content[:position] + b"?" + content[position + 1 :])
        with structlog.testing.capture_logs() as logs:
            async with opened(tmp_path) as store:
                assert [info.key for info in await store.list_from("")] == ["ns/b", "ns/b2", "ns/c"]
        assert [line["path"] for line in logs] == [str(newest)]


@pytest.mark.parametrize("is_ended", [True, False])
async def test_a_file_that_could_not_be_cut_off_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_ended: bool
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(packs, "_PACK_BYTES", 1000)
    async with opened(tmp_path) as store:
        monkeypatch.setattr(os, "ftruncate", broken)
        if not is_ended:
            monkeypatch.setattr(packs.Packs, "_end", lambda *_: None)
        for name in "abc":
            await store.put_if_absent(f"ns/{name}", bytes(1500))
        await store.delete_many(["ns/a", "ns/b"], unused=True)
        for name in "def":
            await store.put_if_absent(f"ns/{name}", bytes(1000))
    monkeypatch.undo()
    with structlog.testing.capture_logs() as logs:
        async with opened(tmp_path) as store:
            assert [info.key for info in await store.list_from("")] == ["ns/c", "ns/d", "ns/e", "ns/f"]
    assert logs == []


def _packs(root: Path) -> packs.Packs:
    """Return the objects of a directory whose first file holds ns/a, and whose second file is the newest one."""
    one = packs.Packs(root, sync=False)
    one.prepare()
    for name in "ab":
        one.create(f"ns/{name}", name.encode() * 1000)
    return one


def _overwrite_first_file(one: packs.Packs) -> None:
    one.delete(["ns/a"], sync=False)
    for name in "cd":
        one.create(f"ns/{name}", name.encode() * 1000)


def test_what_overwrites_an_object_while_it_is_read_is_not_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "_PACK_BYTES", 1000)
    read = os.pread
    with closing(_packs(tmp_path)) as one:

        def late(file: int, length: int, start: int) -> bytes:
            if "ns/c" not in one:
                _overwrite_first_file(one)
            return read(file, length, start)

        monkeypatch.setattr(os, "pread", late)
        with pytest.raises(ObjectNotFound):
            one.read("ns/a")
        assert one.read("ns/d").body == b"d" * 1000


def test_a_reader_of_another_process_notices_that_a_file_was_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "_PACK_BYTES", 1000)
    with closing(_packs(tmp_path)) as one:
        read = packs.Packs._read_records

        def late(reader: packs.Packs, number: int, file: BinaryIO) -> list[int]:
            if "ns/c" not in one:
                _overwrite_first_file(one)
            return read(reader, number, file)

        monkeypatch.setattr(packs.Packs, "_read_records", late)
        with pytest.raises(FileNotFoundError):
            packs.Packs(tmp_path, sync=False).load()
        reader = packs.Packs(tmp_path, sync=False)
        assert reader.load() == []
        assert [name for name in "abcd" if f"ns/{name}" in reader] == ["b", "c", "d"]


async def test_a_full_disk_gets_the_space_of_deleted_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the objects of another file, most of which is deleted, cannot be copied."""
    monkeypatch.setattr(packs, "_PACK_BYTES", 1000)
    monkeypatch.setattr(packs, "_SPARE_BYTES", 3000)
    write = os.pwritev

    def limited(file: int, buffers: tuple[bytes, bytes], position: int) -> int:
        used = sum(each.stat().st_size for each in files(tmp_path))
        if used + sum(map(len, buffers)) > 9500:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, buffers, position)

    async with opened(tmp_path) as store:
        for name in "abcd":
            await store.put_if_absent(f"ns/{name}", bytes(1500))
        await store.put_if_absent("ns/kept", bytes(900))
        await store.put_if_absent("ns/e", bytes(1500))
        monkeypatch.setattr(os, "pwritev", limited)
        with suppress(Unavailable):
            await store.delete_many([f"ns/{name}" for name in "abcde"], unused=True)
        with suppress(Unavailable):
            await store.put_if_absent("ns/f", bytes(1500))
        await store.put_if_absent("ns/g", bytes(1500))
        assert len((await store.get("ns/kept")).body) == 900


async def test_a_deleted_file_is_overwritten_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "_PACK_BYTES", 1000)
    async with opened(tmp_path) as store:
        for name in "abcdefgh":
            await store.put_if_absent(f"ns/{name}", bytes(1200))
        await store.delete_many([f"ns/{name}" for name in "abcdefg"], unused=True)
        spares = {file.stat().st_ino for file in files(tmp_path) if file.suffix == ".spare"}
        assert len(spares) == 4
        for name in "ij":
            await store.put_if_absent(f"ns/{name}", bytes(1000))
        assert files(tmp_path)[-1].stat().st_ino in spares
    with structlog.testing.capture_logs() as logs:
        async with opened(tmp_path) as store:
            assert [info.key for info in await store.list_from("")] == ["ns/h", "ns/i", "ns/j"]
            assert [file.suffix for file in files(tmp_path)] == [""] * 3
    assert logs == [], "what a file held before is not damage"
