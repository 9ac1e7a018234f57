import multiprocessing
import os
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from kafscale.errors import ConfigError, Refused, Unavailable
from kafscale.metadata.interface import Compacted, KeyValue, LeaseNotFound, Put, Unchanged
from kafscale.metadata.sqlite import open_sqlite
from kafscale.threads import run_inline

_ROOT = Path(__file__).resolve().parents[3]
_COMMITTER = Path(__file__).with_name("committer.py")


def bytes_in(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.iterdir())


async def test_a_reopened_store_has_every_key_with_its_revisions(tmp_path: Path) -> None:
    path = tmp_path / "made" / "metadata.db"
    async with open_sqlite(path) as store:
        first = await store.txn([], [Put("a", b"1"), Put("b", b"\x00\xff")])
        second = await store.txn([], [Put("a", b"2")])
    async with open_sqlite(path) as store:
        assert (await store.read_prefix("")).items == (
            KeyValue("a", b"2", first.revision, second.revision),
            KeyValue("b", b"\x00\xff", first.revision, first.revision),
        )
        third = await store.txn([Unchanged("a", second.revision)], [Put("a", b"3")])
        assert third.succeeded
        assert third.revision == second.revision + 1


async def test_a_watch_from_before_the_reopening_gets_compacted(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "m.db") as store:
        before = await store.txn([], [Put("a", b"1")])
    async with open_sqlite(tmp_path / "m.db") as store:
        async with store.watch("", before.revision) as watch:
            with pytest.raises(Compacted):
                await watch.next()
        snapshot = await store.read_prefix("")
        async with store.watch("", snapshot.revision + 1) as watch:
            await store.txn([], [Put("a", b"2")])
            assert len(await watch.next()) == 1


@pytest.mark.parametrize("round_", range(3))
def test_kill_9_during_commits_loses_no_answered_transaction(tmp_path: Path, round_: int) -> None:
    path = tmp_path / "metadata.db"
    answered = 0
    for _ in range(2):
        # Each run prints the commits that have returned. One line is read while it runs, the rest after its death.
        command = [sys.executable, str(_COMMITTER), str(path), str(answered)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(_ROOT)}) as process:
            assert process.stdout is not None
            try:
                for _ in range(10 + 7 * round_):
                    answered = int(process.stdout.readline())
            finally:
                process.kill()
            lines = process.stdout.read().split()
            answered = int(lines[-1]) if lines else answered

    async def check() -> None:
        async with open_sqlite(path) as store:
            left, right = await store.get("left"), await store.get("right")
            assert left is not None
            assert right is not None
            # In addition, at most the one transaction without an answer may exist, and if so it is complete.
            assert left.value == right.value
            last = int(left.value)
            assert answered <= last <= answered + 1
            numbers = sorted(int(item.value) for item in (await store.read_prefix("n/")).items)
            assert set(range(1, answered + 1)) <= set(numbers) <= set(range(1, last + 1))
            assert (await store.read_prefix("member/")).items == ()

    trio.run(check)


async def test_the_leases_of_a_dead_process_end_at_open_with_their_keys(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "m.db") as store:
        lease = await store.grant_lease(3600)
        put = await store.txn([], [Put("member/a", b"", lease), Put("state", b"1")])
    async with open_sqlite(tmp_path / "m.db") as store:
        snapshot = await store.read_prefix("")
        assert [item.key for item in snapshot.items] == ["state"]
        assert snapshot.revision == put.revision + 1
        with pytest.raises(LeaseNotFound):
            await store.keep_alive(lease)
        assert await store.grant_lease(5) != lease


async def test_a_second_process_cannot_open_the_file(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "m.db") as store:
        with pytest.raises(ConfigError, match="in use by another process"):
            async with open_sqlite(tmp_path / "m.db"):
                pass
        await store.txn([], [Put("a", b"1")])
    async with open_sqlite(tmp_path / "m.db") as store:
        assert await store.get("a") is not None


async def test_a_commit_is_on_disk_when_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def remembered(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        opened.append(connect(*args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", remembered)
    async with open_sqlite(tmp_path / "m.db", run_sync=run_inline) as store:
        await store.txn([], [Put("a", b"1")])
        (connection,) = opened
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"


async def test_the_file_does_not_grow_with_the_number_of_commits(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "m.db") as store:
        sizes = []
        for _ in range(2):
            for number in range(1500):
                await store.txn([], [Put(f"partition/{number % 10}", b"%d" % number)])
            sizes.append(bytes_in(tmp_path))
    assert sizes[1] <= sizes[0] < 8 << 20
    assert bytes_in(tmp_path) < 64 << 10


async def _commit_beyond_the_limit(path: Path) -> None:
    async with open_sqlite(path) as store:
        before = await store.txn([], [Put("a", b"1")])
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, hard))
        with pytest.raises(Unavailable):
            await store.txn([], [Put("a", b"2"), Put("big", bytes(1 << 20))])
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        item = await store.get("a")
        assert item is not None
        assert (item.value, item.mod_revision) == (b"1", before.revision)
        after = await store.txn([Unchanged("a", before.revision)], [Put("a", b"3")])
        assert after.revision == before.revision + 1


async def test_a_commit_that_cannot_be_written_is_unavailable_and_leaves_nothing(tmp_path: Path) -> None:
    # The limit is that of a whole process, so it is a process of its own that has it.
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=trio.run, args=(_commit_beyond_the_limit, tmp_path / "m.db"))
    child.start()
    child.join()
    assert child.exitcode == 0
    async with open_sqlite(tmp_path / "m.db") as store:
        assert [(item.key, item.value) for item in (await store.read_prefix("")).items] == [("a", b"3")]


async def test_a_foreign_file_is_refused_and_not_changed(tmp_path: Path) -> None:
    garbage, foreign, newer = (tmp_path / name for name in ("garbage.db", "foreign.db", "newer.db"))
    garbage.write_bytes(b"this is no database, but it is long enough to be looked at" * 100)
    for path, statement in ((foreign, "CREATE TABLE t (x)"), (newer, "PRAGMA user_version = 2")):
        connection = sqlite3.connect(path)
        if path is newer:
            connection.close()
            async with open_sqlite(path):
                pass
            connection = sqlite3.connect(path)
        connection.execute(statement)
        connection.close()
    for path, kind, message in (
        (garbage, Refused, "cannot be used"),
        (foreign, ConfigError, "not a KafScale"),
        (newer, ConfigError, "another release"),
    ):
        with pytest.raises(kind, match=message):
            async with open_sqlite(path):
                pass
    assert garbage.read_bytes().startswith(b"this is no database")


async def test_it_can_run_without_a_thread(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "m.db", run_sync=run_inline) as store:
        await store.txn([], [Put("a", b"1")])
        assert await store.get("a") is not None


async def test_a_cancelled_commit_is_complete_or_not_begun_and_the_store_continues(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "m.db") as store:
        await store.txn([], [Put("n", b"0")])
        answered = 0
        for number in range(1, 40):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(store.txn, [], [Put("n", b"%d" % number)])
                    for _ in range(number % 4):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
            item = await store.get("n")
            assert item is not None
            assert int(item.value) in (answered, number)
            answered = int(item.value)
        last = await store.txn([], [Put("last", b"")])
    async with open_sqlite(tmp_path / "m.db") as store:
        assert (await store.read_prefix("")).revision == last.revision
        item = await store.get("n")
        assert item is not None
        assert int(item.value) == answered
