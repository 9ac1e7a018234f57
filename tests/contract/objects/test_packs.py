"""Tests specific to objects that share files in the local directory."""

import errno
import os
import random
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import structlog
import trio

from kafscale.errors import Unavailable
from kafscale.objects import packs
from kafscale.objects.interface import ObjectNotFound, PreconditionFailed
from kafscale.objects.local import LocalObjectStore
from tests.contract.objects.crashing_writer import expected_body, killed_writer
from tests.contract.objects.packed import files, opened


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
