"""Tests specific to the local directory: crashes, power failures, full disks, second processes."""

import errno
import itertools
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from kafscale.errors import ConfigError, Refused, Unavailable
from kafscale.objects.interface import ObjectNotFound, PreconditionFailed
from kafscale.objects.local import LocalObjectStore
from tests.contract.objects.crashing_writer import BODY, expected_body, killed_writer, writer_command

T = TypeVar("T")


async def inline(function: Callable[[], T], /) -> T:
    await trio.lowlevel.checkpoint()
    return function()


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[LocalObjectStore]:
    async with LocalObjectStore.open(directory, run_sync=inline) as store:
        yield store


def run_writer(what: str, directory: Path, argument: int) -> subprocess.CompletedProcess[str]:
    command, root = writer_command(what, directory, argument)
    return subprocess.run(command, cwd=root, check=False, capture_output=True, text=True, timeout=60)


def leftovers(directory: Path) -> list[str]:
    return os.listdir(directory / "tmp")


async def test_kill_9_among_puts_leaves_no_torn_object(tmp_path: Path) -> None:
    for round_ in range(5):
        acked = killed_writer("forever", tmp_path, round_, puts=3 + round_)
        async with opened(tmp_path) as store:
            assert leftovers(tmp_path) == []
            listed = [info.key for info in await store.list_from(f"ns/{round_}/")]
            assert set(acked) <= set(listed)
            for key in listed:
                assert (await store.get(key)).body == expected_body(key)


@pytest.mark.parametrize("what", ["create", "replace"])
async def test_a_crash_at_any_step_leaves_the_object_whole_or_absent(tmp_path: Path, what: str) -> None:
    seen = set()
    for step in range(1, 40):
        directory = tmp_path / str(step)
        if what == "replace":
            async with opened(directory) as store:
                await store.put_if_absent("ns/t/0/a", b"old")
        writer = run_writer(what, directory, step)
        if writer.returncode == 0:  # it had fewer steps than that
            break
        assert writer.returncode == 9
        async with opened(directory) as store:
            assert leftovers(directory) == []
            try:
                found = await store.get("ns/t/0/a")
            except ObjectNotFound:
                seen.add(b"")
                await store.put_if_absent("ns/t/0/a", BODY)
                continue
            seen.add(found.body)
            if found.body == b"old":
                await store.replace_if_match("ns/t/0/a", BODY, found.etag)
            else:
                with pytest.raises(PreconditionFailed):
                    await store.put_if_absent("ns/t/0/a", b"other")
    else:
        pytest.fail("the writer never came to its end")
    assert seen == {BODY, b"" if what == "create" else b"old"}


class Recorder:
    """Records the store's calls into the operating system, with files and directories by inode number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, int]] = []
        for name in ("write", "fsync"):
            monkeypatch.setattr(os, name, self._by_descriptor(name, getattr(os, name)))
        for name in ("link", "replace"):
            monkeypatch.setattr(os, name, self._by_source(name, getattr(os, name)))
        make = os.mkdir

        def mkdir(path: Any, *args: Any) -> None:
            make(path, *args)
            self.events.append(("mkdir", os.stat(path).st_ino))

        monkeypatch.setattr(os, "mkdir", mkdir)

    def _by_descriptor(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(descriptor: int, *args: Any) -> Any:
            result = call(descriptor, *args)
            self.events.append((name, os.fstat(descriptor).st_ino))
            return result

        return recorded

    def _by_source(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(source: Any, target: Any) -> None:
            inode = os.stat(source).st_ino
            call(source, target)
            self.events.append((name, inode))

        return recorded

    def take(self) -> list[tuple[str, int]]:
        events, self.events = self.events, []
        return events


def inode(path: Path) -> int:
    return path.stat().st_ino


async def test_a_put_returns_after_file_and_directories_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        recorder = Recorder(monkeypatch)
        await store.put_if_absent("ns/t/0/a", b"body")
        objects = tmp_path / "objects"
        directories = [objects, objects / "ns", objects / "ns/t", objects / "ns/t/0"]
        file = inode(directories[-1] / "a")
        events = recorder.take()
        assert [event for event in events if event[1] == file] == [("write", file), ("fsync", file), ("link", file)]
        linked = events.index(("link", file))
        assert ("fsync", inode(directories[-1])) in events[linked:], "the name of the object"
        for parent, child in itertools.pairwise(directories):
            made = events.index(("mkdir", inode(child)))
            assert ("fsync", inode(parent)) in events[made:], f"the name of {child.name}"

        await store.put_if_absent("ns/t/0/b", b"body")
        second = inode(directories[-1] / "b")
        expected = [("write", second), ("fsync", second), ("link", second), ("fsync", inode(directories[-1]))]
        assert recorder.take() == expected, "directories that are on disk are not synced again"


async def test_a_replace_returns_after_file_and_directory_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        etag = await store.put_if_absent("ns/a", b"old")
        recorder = Recorder(monkeypatch)
        await store.replace_if_match("ns/a", b"new", etag)
        file, directory = inode(tmp_path / "objects/ns/a"), inode(tmp_path / "objects/ns")
        assert recorder.take() == [("write", file), ("fsync", file), ("replace", file), ("fsync", directory)]


async def test_directories_left_by_a_dead_process_are_synced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        await store.put_if_absent("ns/t/0/a", b"body")
    async with opened(tmp_path) as store:
        recorder = Recorder(monkeypatch)
        await store.put_if_absent("ns/t/0/b", b"body")
        objects = tmp_path / "objects"
        synced = {number for what, number in recorder.take() if what == "fsync"}
        assert {inode(objects), inode(objects / "ns"), inode(objects / "ns/t"), inode(objects / "ns/t/0")} <= synced


async def test_a_name_that_exists_is_on_disk_when_that_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        await store.put_if_absent("ns/a", b"body")
    async with opened(tmp_path) as store:
        recorder = Recorder(monkeypatch)
        with pytest.raises(PreconditionFailed):
            await store.put_if_absent("ns/a", b"body")
        assert ("fsync", inode(tmp_path / "objects/ns")) in recorder.take()


async def test_a_large_body_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as store:
        recorder = Recorder(monkeypatch)
        await store.put_if_absent("ns/a", bytes(4 << 20))
        assert [what for what, _ in recorder.take()].count("write") == 1


async def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, body: write(descriptor, body[:1000]))
    async with opened(tmp_path) as store:
        await store.put_if_absent("ns/a", BODY)
        assert (await store.get("ns/a")).body == BODY


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
async def test_a_full_disk_is_unavailable_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    async with opened(tmp_path) as store:
        with monkeypatch.context() as full:
            full.setattr(os, "write", fail)
            with pytest.raises(Unavailable, match="ns/a"):
                await store.put_if_absent("ns/a", b"body")
        assert leftovers(tmp_path) == []
        await store.put_if_absent("ns/a", b"body")


async def test_a_name_the_file_system_refuses_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put_if_absent("ns/a", b"body")
        with pytest.raises(Refused):
            await store.put_if_absent("ns/a/b", b"body")
        assert leftovers(tmp_path) == []


async def test_etags_survive_the_process(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        etag = await store.put_if_absent("ns/a", b"old")
    async with opened(tmp_path) as store:
        assert (await store.head("ns/a")).etag == etag
        etag = await store.replace_if_match("ns/a", b"new", etag)
    async with opened(tmp_path) as store:
        assert (await store.get("ns/a")).etag == etag


async def test_etags_differ_even_if_the_clock_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafscale.objects.files.time.time_ns", lambda: 1_000)
    async with opened(tmp_path) as store:
        etags = [await store.put_if_absent("ns/a", b"0")]
        for n in range(1, 10):
            etags.append(await store.replace_if_match("ns/a", b"%d" % n, etags[-1]))
    assert len(set(etags)) == 10


async def test_a_second_process_cannot_use_the_directory(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put_if_absent("ns/a", b"mine")
        (tmp_path / "tmp/unfinished").write_bytes(b"mine too")
        second = run_writer("create", tmp_path, 0)
        assert second.returncode == 1
        assert f"KAFSCALE_DATA_DIR: another process is using {tmp_path}" in second.stderr
        with pytest.raises(ConfigError, match="KAFSCALE_DATA_DIR"):
            async with opened(tmp_path):
                pass
        assert leftovers(tmp_path) == ["unfinished"]
    assert run_writer("create", tmp_path, 0).returncode == 0


@pytest.mark.parametrize("kind", ["file", "below a file"])
async def test_an_unusable_directory_stops_the_start(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="KAFSCALE_DATA_DIR"):
        async with opened(tmp_path / "file" if kind == "file" else tmp_path / "file/data"):
            pass


async def test_a_file_system_without_hard_links_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(ConfigError, match="KAFSCALE_DATA_DIR"):
        async with opened(tmp_path):
            pass


async def test_a_page_of_one_partition_reads_no_other_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        for topic in ("a", "b", "c"):
            for partition in range(3):
                await store.put_if_absent(f"ns/{topic}/{partition}/x", b"")
        read: list[str] = []
        scan = os.scandir

        def scandir(path: bytes) -> Any:
            read.append(os.path.relpath(os.fsdecode(path), tmp_path / "objects"))
            return scan(path)

        monkeypatch.setattr(os, "scandir", scandir)
        assert [info.key for info in await store.list_from("ns/b/1/")] == ["ns/b/1/x"]
        assert read == ["ns/b/1"]
        read.clear()
        await store.list_from("ns/", "ns/b/1/x", 2)
        assert read == ["ns", "ns/b", "ns/b/1", "ns/b/2", "ns/c", "ns/c/0"]


async def test_a_directory_that_cannot_be_looked_at_is_not_taken_for_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with LocalObjectStore.open(tmp_path, run_sync=inline, sync_packs=False) as store:
        await store.put_if_absent("ns/a/0/x", b"")
        assert await store.list_from("ns/b/0/") == []

        def stat(path: bytes, **_: object) -> os.stat_result:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "stat", stat)
        with pytest.raises(Unavailable, match="Input/output error"):
            await store.list_from("ns/a/0/")


async def test_directories_go_with_their_last_object(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put_if_absent("ns/t/0/a", b"")
        await store.put_if_absent("ns/u/0/a", b"")
        await store.delete_many(["ns/t/0/a"])
        assert sorted(os.listdir(tmp_path / "objects/ns")) == ["u"]
        await store.delete_many(["ns/u/0/a"])
        assert os.listdir(tmp_path / "objects") == []


async def test_pruning_never_removes_the_directory_of_a_put(tmp_path: Path) -> None:
    async with LocalObjectStore.open(tmp_path) as store:

        async def churn(name: str) -> None:
            for _ in range(150):
                await store.put_if_absent(f"ns/t/0/{name}", name.encode())
                assert (await store.get(f"ns/t/0/{name}")).body == name.encode()
                await store.delete_many([f"ns/t/0/{name}"])

        async with trio.open_nursery() as nursery:
            for name in "abcdef":
                nursery.start_soon(churn, name)
        assert os.listdir(tmp_path / "objects") == []
