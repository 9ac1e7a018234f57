"""`kafscale intake` as an operator runs it, on a local directory and SQLite."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

from kafscale import paths
from kafscale.intake.format import Entry, encode, encode_seal
from kafscale.metadata.interface import Put
from kafscale.objects.packs import Packs
from kafscale.v1.metadata_pb2 import IntakeRegister, IntakeTail, PartitionState
from kafscale_tools.cli.exits import Exit
from kafscale_tools.cli.main import main
from kafscale_tools.recovery.stores import Stores, opened
from tests.support.samples.intake import CLICKS, ORDERS, entries
from tests.support.samples.segments import EPOCH, make_batch, placed

CREATED = 1_700_000_000_000
CREATED_TEXT = ["2023-11-14", "22:13:20.000Z"]


class Command:
    """Runs `kafscale intake` with the settings of a one-process broker whose data is in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environ = {"KAFSCALE_DATA_DIR": str(directory), "KAFSCALE_ETCD_ENDPOINTS": "", "KAFSCALE_S3_BUCKET": ""}

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["intake", *arguments], env=self.environ)

    def rows(self, *arguments: str) -> dict[str, list[str]]:
        """Return the words of each row of ``list`` by run id."""
        result = self.run("list", *arguments)
        return {words[0]: words[1:] for line in result.stdout.splitlines()[1:] if (words := line.split())}

    def prepare(self, write: Callable[[Stores], Awaitable[None]]) -> None:
        async def run() -> None:
            async with opened(self.environ) as stores:
                await write(stores)

        trio.run(run)


@pytest.fixture
def command(tmp_path: Path, commands_run_here: None) -> Command:
    return Command(tmp_path)


async def put(stores: Stores, run_id: str, *numbers: int, checkpoint: int = 1, of: list[Entry] | None = None) -> None:
    for number in numbers:
        body = b"".join(
            encode(
                "default",
                run_id,
                number=number,
                checkpoint=checkpoint,
                created_ms=CREATED + number - 1,
                entries=of or entries(),
            )
        )
        await stores.objects.put_if_absent(paths.intake_key("default", run_id, number), body)


async def seal(stores: Stores, run_id: str, number: int) -> None:
    body = encode_seal("default", run_id, number=number, created_ms=CREATED)
    await stores.objects.put_if_absent(paths.intake_key("default", run_id, number), body)


async def register(stores: Stores, run_id: str, *, sealed: bool = False, intake: bool = True) -> None:
    value = IntakeRegister(format=1, sealed=sealed, intake=intake)
    key = paths.intake_register_key("default", run_id)
    await stores.metadata.txn([], [Put(key, value.SerializeToString())])


async def state(stores: Stores, partition: int, *, owner: str, end: int = 0, tail: str = "") -> None:
    value = PartitionState(format=2, topic_id=ORDERS.topic_id, epoch=1, owner=owner, high_watermark=end)
    if tail:
        value.tail.CopyFrom(IntakeTail(run_id=tail, epoch=1, end=end + 1))
    key = paths.partition_state_key("default", "orders", partition)
    await stores.metadata.txn([], [Put(key, value.SerializeToString())])


async def _every_state(stores: Stores) -> None:
    await register(stores, "live")
    member = Put(paths.member_key("default", "storage", "live"), b"")
    await stores.metadata.txn([], [member])
    await put(stores, "live", 3, 4, 5, 7, checkpoint=4)
    await register(stores, "ended")
    await put(stores, "ended", 1)
    await register(stores, "sealed", sealed=True)
    await put(stores, "sealed", 1, 2)
    await seal(stores, "sealed", 3)
    await stores.objects.put_if_absent(str(paths.IntakeKey("default", "removed", None)), b"1700000000000")
    await seal(stores, "removed", 9)
    await register(stores, "idle")
    await register(stores, "first-format", intake=False)
    await state(stores, 0, owner="live", tail="sealed")
    await state(stores, 1, owner="live")


def test_intakes_are_listed_with_their_states(command: Command) -> None:
    command.prepare(_every_state)
    rows = command.rows()
    assert {run_id: row[:5] for run_id, row in rows.items()} == {
        "live": ["live", "2", "4", "6", "4"],
        "ended": ["ended", "0", "1", "2", "1"],
        "sealed": ["sealed", "1", "1", "3", "2"],
        "removed": ["removed", "0", "1", "1", "0"],
        "idle": ["ended", "0", "1", "1", "0"],
    }
    assert rows["ended"][-2:] == CREATED_TEXT
    assert rows["live"][-1] == "22:13:20.003Z", "the oldest object that is needed is the fourth"
    assert rows["removed"][-1] == "-"
    assert command.run("list").exit_code == 0
    listed = json.loads(command.run("list", "-o", "json").stdout)["intakes"]
    packs = Packs(command.directory, sync=False)
    packs.load()
    sizes = [info.size for info in packs.list_from("default/~intake/live/", "", 10)]
    assert next(one for one in listed if one["run_id"] == "live") == {
        "run_id": "live",
        "state": "live",
        "partitions": 2,
        "checkpoint": 4,
        "end": 6,
        "objects": 4,
        "bytes": sum(sizes),
        "oldest_ms": CREATED + 3,
        "fault": "",
    }


def test_the_bucket_alone_shows_which_intakes_are_sealed(command: Command) -> None:
    command.prepare(_every_state)
    for file in command.directory.glob("metadata.sqlite*"):
        file.unlink()
    rows = command.rows("--no-metadata")
    assert {run_id: row[:2] for run_id, row in rows.items()} == {
        "live": ["open", "-"],
        "ended": ["open", "-"],
        "sealed": ["sealed", "-"],
        "removed": ["removed", "-"],
    }
    assert not list(command.directory.glob("metadata.sqlite*"))


def test_an_intake_that_the_metadata_does_not_know_is_reported(command: Command) -> None:
    async def write(stores: Stores) -> None:
        await put(stores, "lost", 1)

    command.prepare(write)
    for arguments in (["list"], ["describe", "lost"]):
        result = command.run(*arguments)
        assert (result.exit_code, "does not know the intake of run lost" in result.stderr) == (Exit.FAILED, True)
    assert command.rows()["lost"][0] == "unknown"


def test_the_records_of_an_intake_are_described(command: Command) -> None:
    first, second = entries()
    more = placed([make_batch([11], value=b"more")], base_offset=1001)
    following = Entry(ORDERS, EPOCH, 1001, 1002, [piece for batch in more for piece in batch])

    async def write(stores: Stores) -> None:
        await register(stores, "run")
        await put(stores, "run", 1, of=[first, second])
        # The first entry is repeated.
        await put(stores, "run", 2, of=[first, following])
        await state(stores, ORDERS.partition, owner="run", end=1001)

    command.prepare(write)
    described = command.run("describe", "run")
    assert described.exit_code == 0, described.output
    assert "Intake of run run: ended" in described.stdout
    assert [line.split() for line in described.stdout.splitlines()[-2:]] == [
        ["clicks", "0", str(EPOCH), "7", "8", str(second.size), "-"],
        ["orders", "2", str(EPOCH), "1000", "1001", str(first.size + following.size), "1"],
    ]
    fields = json.loads(command.run("describe", "run", "-o", "json").stdout)
    assert fields["records"][0] == {
        "topic": CLICKS.topic,
        "partition": CLICKS.partition,
        "epoch": EPOCH,
        "start": 7,
        "end": 9,
        "size": second.size,
        "not_in_segments": -1,
    }


def test_damage_is_reported_and_other_intakes_are_listed(command: Command) -> None:
    async def write(stores: Stores) -> None:
        for run_id in ("gap", "flipped", "whole"):
            await register(stores, run_id)
        await put(stores, "gap", 1, 3, 6)
        await put(stores, "flipped", 1)
        await put(stores, "whole", 1)
        flipped = paths.intake_key("default", "flipped", 1)
        data = bytearray((await stores.objects.get(flipped)).body)
        data[60] ^= 1
        await stores.objects.delete_many([flipped])
        await stores.objects.put_if_absent(flipped, data)

    command.prepare(write)
    listed = command.run("list")
    assert (listed.exit_code, listed.stderr.count("intake")) == (Exit.FAILED, 1)
    assert "object 2 of the intake of run gap is missing" in listed.stderr
    assert command.rows()["whole"][0] == "ended"
    gap = command.run("describe", "gap")
    assert (gap.exit_code, "object 2" in gap.stderr) == (Exit.FAILED, True)
    assert gap.stdout.splitlines()[-1].startswith("orders"), "what is before the gap is shown"
    described = command.run("describe", "flipped")
    assert (described.exit_code, "checksum" in described.stderr) == (Exit.FAILED, True)
    assert "checksum" in json.loads(command.run("describe", "flipped", "-o", "json").stdout)["fault"]
    assert command.run("describe", "whole").exit_code == 0


@pytest.mark.parametrize("run_id", ["absent", "../x", "a/b"])
@pytest.mark.parametrize("more", [[], ["--no-metadata"]])
def test_a_run_without_an_intake_is_not_found(command: Command, run_id: str, more: list[str]) -> None:
    result = command.run("describe", run_id, *more)
    assert result.exit_code == Exit.NOT_FOUND, result.output
