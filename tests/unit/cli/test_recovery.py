"""`kafscale backup` and `kafscale restore` as an operator runs them, on a local directory and SQLite."""

import json
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from click.testing import CliRunner, Result

from kafscale import paths
from kafscale.catalog.topic_object import TopicObject
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Put
from kafscale.metadata.topic_values import ClusterInfo, TopicInfo
from kafscale.records.record import Record, build_batch
from kafscale.segment.writer import PREFIX_SIZE, build_segment
from kafscale.v1.metadata_pb2 import EpochHistory, PartitionState
from kafscale_tools.cli import on_stores, recovery
from kafscale_tools.cli.exits import Exit, Failed
from kafscale_tools.cli.main import main
from kafscale_tools.recovery.stores import opened

CLUSTER = "iiL196Ctcr2ySsHvN51hHw"
TOPIC = TopicObject(
    name="orders", id=bytes(16), configs={}, epoch_floor=0, created_ms=1, log_starts=(0, 7), metadata_revision=900
)


class Command:
    """Runs `kafscale` with the settings of a one-process broker whose data is in a directory."""

    def __init__(self, directory: Path) -> None:
        self.environ = {"KAFSCALE_DATA_DIR": str(directory), "KAFSCALE_ETCD_ENDPOINTS": "", "KAFSCALE_S3_BUCKET": ""}

    def run(self, *arguments: str, typed: str = "") -> Result:
        return CliRunner().invoke(main, list(arguments), env=self.environ, input=typed)

    def make(self) -> None:
        """Create a cluster with one topic."""

        async def make() -> None:
            async with opened(self.environ) as stores:
                await stores.objects.put_if_absent(paths.cluster_mark_key("default"), CLUSTER.encode())
                await stores.objects.put_if_absent(paths.topic_object_key("default", "orders"), TOPIC.encode())
                await stores.metadata.txn([], [Put(paths.cluster_key("default"), ClusterInfo(CLUSTER, 4).value())])

        trio.run(make)


@pytest.fixture
def command(tmp_path: Path, commands_run_here: None) -> Command:
    return Command(tmp_path)


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_many_logs_were_checked(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command.make()
    terminal = _Terminal()
    monkeypatch.setattr(recovery, "sys", SimpleNamespace(stderr=terminal))
    assert command.run("restore", "--dry-run", "--overwrite").exit_code == 0
    lines = terminal.getvalue().split("\r")
    assert "1/2" in lines[-2]
    assert "0 segments" in lines[-2]
    assert "2/2" in lines[-1]


@pytest.mark.usefixtures("command")
def test_ctrl_c_is_reported_as_an_interruption() -> None:
    async def interrupted() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_stores.run_on_stores(interrupted)


@pytest.mark.usefixtures("command")
def test_only_an_unexpected_error_is_raised_in_a_group() -> None:
    async def fail(*errors: Exception) -> None:
        raise ExceptionGroup("several", [ExceptionGroup("one of them", errors)])

    with pytest.raises(Failed, match="no answer") as raised:
        on_stores.run_on_stores(partial(fail, Unavailable("no answer"), OSError()))
    assert raised.value.exit_code == Exit.UNAVAILABLE
    with pytest.raises(ExceptionGroup, match="several"):
        on_stores.run_on_stores(partial(fail, Unavailable("no answer"), ValueError()))


def test_a_lost_metadata_file_is_restored(command: Command, tmp_path: Path) -> None:
    command.make()
    made = command.run("backup", "--keep", "1")
    assert made.exit_code == 0, made.output
    again = command.run("backup", "--keep", "1", "-o", "json")
    (kept,) = json.loads(again.stdout)["snapshots"]
    listed = json.loads(command.run("backup", "--list", "-o", "json").stdout)["snapshots"]
    assert listed == [kept]
    for file in tmp_path.glob("metadata.sqlite*"):
        file.unlink()
    assert command.run("backup").exit_code == Exit.REFUSED
    for typed in ("n\n", ""):
        refused = command.run("restore", typed=typed)
        assert (refused.exit_code, type(refused.exception)) == (Exit.FAILED, SystemExit)
        assert "Aborted!" in refused.stderr
    assert command.run("backup").exit_code == Exit.REFUSED
    done = command.run("restore", typed="y\n")
    assert done.exit_code == 0, done.output
    assert f"snapshot {kept['snapshot']}" in done.stdout
    assert [line.split() for line in done.stdout.splitlines() if line.startswith("orders")] == [
        ["orders", "0", "0", "0", "0", "0", "0"],
        ["orders", "1", "7", "7", "0", "0", "0"],
    ]
    refused = command.run("restore", "--yes")
    assert (refused.exit_code, "--overwrite" in refused.stderr) == (Exit.REFUSED, True)
    planned = json.loads(command.run("restore", "--overwrite", "--dry-run", "-o", "json").stdout)
    assert (planned["cluster_id"], planned["epoch"], planned["damaged"]) == (CLUSTER, 2004, [])


def test_every_error_has_a_status_and_a_message(command: Command, tmp_path: Path) -> None:
    command.environ["KAFSCALE_DATA_DIR"] = str(tmp_path / "absent")
    nowhere = command.run("restore", "--yes")
    assert (nowhere.exit_code, "KAFSCALE_DATA_DIR" in nowhere.stderr) == (Exit.WRONG, True)
    assert not (tmp_path / "absent").exists()
    command.environ["KAFSCALE_ETCD_ENDPOINTS"] = "127.0.0.1:1"
    assert "KAFSCALE_S3_BUCKET" in command.run("backup").stderr
    command.environ |= {"KAFSCALE_DATA_DIR": str(tmp_path), "KAFSCALE_ETCD_ENDPOINTS": ""}
    command.make()
    assert command.run("restore", "--overwrite", "--yes", "--snapshot", "1700000000000-1").exit_code == Exit.NOT_FOUND
    assert command.run("restore", "--snapshot", "yesterday").exit_code == Exit.WRONG
    assert command.run("restore", "--snapshot", "1700000000000-1", "--no-snapshot").exit_code == Exit.WRONG
    assert command.run("backup", "--list", "--keep", "3").exit_code == Exit.WRONG
    snapshot = json.loads(command.run("backup", "-o", "json").stdout)["snapshots"][0]["snapshot"]
    part = tmp_path / "default" / "~backups" / snapshot / "00000000"
    found = next(path for path in tmp_path.rglob("*") if path.name == part.name)
    found.write_bytes(found.read_bytes()[:-1])
    damaged = command.run("restore", "--overwrite", "--yes")
    assert (damaged.exit_code, part.name in damaged.stderr) == (Exit.FAILED, True)
    assert command.run("restore", "--overwrite", "--yes", "--no-snapshot").exit_code == 0


def test_a_damaged_snapshot_does_not_hide_the_others(command: Command, tmp_path: Path) -> None:
    command.make()
    made = [json.loads(command.run("backup", "-o", "json").stdout)["snapshots"][0] for _ in range(2)]
    broken = next(path for path in tmp_path.rglob("manifest*") if made[1]["snapshot"] in str(path))
    broken.write_bytes(b"{")
    listed = command.run("backup", "--list")
    assert listed.exit_code == 0, listed.output
    whole, damaged, why = listed.stdout.splitlines()[1:]
    assert whole.split()[0] == made[0]["snapshot"]
    assert damaged.split()[-2:] == ["damaged", "-"]
    assert why.startswith(f"{made[1]['snapshot']} is damaged: object default/~backups/")
    first, second = json.loads(command.run("backup", "--list", "-o", "json").stdout)["snapshots"]
    assert first == made[0]
    assert (second["snapshot"], "invalid manifest" in second["damaged"]) == (made[1]["snapshot"], True)


def test_an_earlier_state_of_a_topic_is_copied_into_a_new_one(command: Command) -> None:
    command.make()

    async def fill() -> None:
        batch = build_batch([Record(i, 1000 * i, None, b"v") for i in range(5)], base_offset=0, leader_epoch=4)
        segment = build_segment([(batch[:PREFIX_SIZE], batch[PREFIX_SIZE:])], epoch=4, created_ms=1)
        topic = TopicInfo("orders", bytes(16), 1, {}, True, 3, 1)
        state = PartitionState(format=1, topic_id=topic.id, epoch=4, high_watermark=5)
        history = EpochHistory(format=1, topic_id=topic.id, entries=[EpochHistory.Entry(epoch=4, first_offset=0)])
        async with opened(command.environ) as stores:
            await stores.objects.put_if_absent(paths.segment_key("default", "orders", 0, 0), segment.data)
            puts = [
                Put(paths.topic_key("default", "orders"), topic.value()),
                Put(paths.partition_state_key("default", "orders", 0), state.SerializeToString()),
                Put(paths.epoch_history_key("default", "orders", 0), history.SerializeToString()),
            ]
            await stores.metadata.txn([], puts)

    trio.run(fill)
    copy = ("restore", "--topic", "orders", "--into", "again", "--to")
    for wrong in (("restore", "--topic", "orders"), (*copy, "yesterday"), (*copy, "1", "--dry-run")):
        assert command.run(*wrong).exit_code == Exit.WRONG
    assert command.run("restore", "--topic", "none", "--into", "again", "--to", "1").exit_code == Exit.NOT_FOUND
    done = command.run(*copy, "1970-01-01T00:00:02Z")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[1].split()[:5] == ["again", "0", "0", "3", "2"]
    refused = command.run(*copy, "2000")
    assert (refused.exit_code, "topic again already exists" in refused.stderr) == (Exit.EXISTS, True)
