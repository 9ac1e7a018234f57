"""Tests specific to objects that share files in the local directory."""

import errno
import os
import random
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest
import structlog
import trio

from kafscale.errors import Unavailable
from kafscale.objects import packs
from kafscale.objects.interface import ObjectNotFound, PreconditionFailed
from kafscale.objects.local import LocalObjectStore
from kafscale.objects.pack_records import record_head
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
            # The files that are kept for the next ones, and the newest file, have up to 5000 bytes.
            assert used <= 2 * sum(len(body) for body, _ in model.values()) + 8000 + 5 * 5000


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


@pytest.mark.parametrize("sync", [True, False])
async def test_an_object_without_all_of_its_bytes_is_no_object(tmp_path: Path, *, sync: bool) -> None:
    """A power failure can keep the size of a file and lose bytes that were not synced."""
    async with opened(tmp_path, sync=sync) as store:
        await store.put_if_absent("ns/a", b"a" * 100)
        await store.put_if_absent("ns/b", b"b" * 20_000)
    (file,) = files(tmp_path)
    record = file.read_bytes()
    file.write_bytes(record[:8192] + bytes(len(record) - 8192))
    with structlog.testing.capture_logs() as logs:
        async with opened(tmp_path, sync=sync) as store:
            assert [info.key for info in await store.list_from("")] == ["ns/a"]
            await store.put_if_absent("ns/c", b"c")
    assert [line["path"] for line in logs] == [str(file)]
    async with opened(tmp_path, sync=sync) as store:
        assert [info.key for info in await store.list_from("")] == ["ns/a", "ns/c"]


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
    assert logs == [], "what a file held before is not taken for damage"


async def test_other_files_are_ignored(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put_if_absent("ns/a", b"a")
    for name in (".nfs0000000000000000000001", ".DS_Store", "1"):
        (tmp_path / "packs" / name).write_bytes(b"other")
    async with opened(tmp_path) as store:
        assert (await store.get("ns/a")).body == b"a"


async def test_objects_are_there_while_they_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "_PACK_BYTES", 20_000)
    monkeypatch.setattr(packs, "_SPARE_BYTES", 40_000)
    monkeypatch.setattr(packs, "_COPIED_BYTES", 2000)
    kept = {f"ns/kept/{number}": b"%d" % number * 500 for number in range(10)}
    async with opened(tmp_path) as store:
        for key, body in kept.items():
            await store.put_if_absent(key, body)
        reads = 0
        done = trio.Event()
        opens = os.open

        def late(path: bytes, *arguments: int) -> int:
            """Open a file for reading so late that it can be gone."""
            if not arguments[0] & (os.O_CREAT | os.O_DIRECTORY):
                time.sleep(0.02)
            return opens(path, *arguments)

        monkeypatch.setattr(os, "open", late)

        async def read(key: str, body: bytes) -> None:
            nonlocal reads
            while not done.is_set():
                assert (await store.get(key)).body == body
                reads += 1

        async def churn() -> None:
            rounds = 0
            while rounds < 20 or reads < 6:
                rounds += 1
                keys = [f"ns/{rounds}/{number}" for number in range(4)]
                for key in keys:
                    await store.put_if_absent(key, bytes(3000))
                await store.delete_many(keys, unused=True)
            done.set()

        before = files(tmp_path)[0]
        async with trio.open_nursery() as nursery:
            for key, body in list(kept.items())[:3]:
                nursery.start_soon(read, key, body)
            await churn()
        assert before not in files(tmp_path)
        assert {key: body for key, (body, _) in (await everything(store)).items()} == kept


async def test_unused_objects_are_deleted_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(packs, "_PACK_BYTES", 1000)
    async with opened(tmp_path) as store:
        for name in "abc":
            await store.put_if_absent(f"ns/{name}", bytes(1000))
        monkeypatch.setattr(os, "pwritev", full)
        with pytest.raises(Unavailable, match="ns/a"):
            await store.delete_many(["ns/a"])
        await store.delete_many(["ns/a", "ns/b"], unused=True)
        assert [info.key for info in await store.list_from("")] == ["ns/c"]
        assert len(files(tmp_path)) == 1 + 1, "the file of c, and an empty one"


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
        shutil.copytree(tmp_path / "packs", tmp_path / "crashed" / "packs")
    with structlog.testing.capture_logs() as logs:
        async with opened(tmp_path / "crashed") as store:
            bodies = {key: body for key, (body, _) in (await everything(store)).items()}
    assert bodies == {"ns/a": b"a" * 1000, "ns/continued": b"c" * 1000, "ns/d": b"d"}
    assert logs == []


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


class Recorder:
    """Records the calls that write to files or wait until they are on disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._events: list[str] = []
        for name in ("pwritev", "fdatasync", "fsync", "rename"):
            monkeypatch.setattr(os, name, partial(self._recorded, name, getattr(os, name)))

    def _recorded(self, name: str, call: Callable[..., object], *arguments: object) -> object:
        self._events.append(name)
        return call(*arguments)

    def take(self) -> list[str]:
        events, self._events = self._events, []
        return events


async def test_with_fsync_a_change_is_on_disk_when_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path, sync=True) as store:
        recorder = Recorder(monkeypatch)
        await store.put_if_absent("ns/a", b"body")
        assert recorder.take() == ["pwritev", "fdatasync", "fsync"], "the contents of the file, then its name"
        await store.put_if_absent("ns/b", b"body")
        await store.delete_many(["ns/b"], unused=True)
        assert recorder.take() == ["pwritev", "fdatasync"] * 2


async def test_without_fsync_deletes_are_on_disk_unless_the_objects_are_unused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        recorder = Recorder(monkeypatch)
        for name in "abc":
            await store.put_if_absent(f"ns/{name}", b"body")
        await store.delete_many(["ns/a"], unused=True)
        assert recorder.take() == ["pwritev"] * 4
        await store.delete_many(["ns/b"])
        assert recorder.take() == ["pwritev", "fdatasync", "fsync"]


async def test_copies_are_on_disk_before_the_file_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "_PACK_BYTES", 2000)
    monkeypatch.setattr(packs, "_SPARE_BYTES", 4000)
    async with opened(tmp_path) as store:
        await store.put_if_absent("ns/old", b"old")
        for number in range(3):
            await store.put_if_absent(f"ns/{number}", bytes(2000))
        recorder = Recorder(monkeypatch)
        await store.delete_many([f"ns/{number}" for number in range(3)], unused=True)
        events = recorder.take()
        assert events[:5] == ["pwritev", "pwritev", "fdatasync", "fsync", "rename"]
        assert (await store.get("ns/old")).body == b"old"
