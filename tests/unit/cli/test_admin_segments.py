"""`kafscale segment reindex` and `describe`: what they print, and how they end."""

import json
from collections.abc import Iterator

import pytest

from services.cli.exits import Exit
from tests.unit.cli.admin_server import AdminServer, admin_server
from tests.unit.cli.test_admin import write


@pytest.fixture
def server() -> Iterator[AdminServer]:
    with admin_server() as server:
        yield server


def test_indexes_are_written_anew(server: AdminServer) -> None:
    topic = server.there(server.harness.topic, "t", 2)
    server.there(write, server.harness, 5)
    server.harness.storage.most_segments = 2
    batches = [batch for _, _, batch in server.harness.partition(topic).batches]
    server.harness.storage.unindexed.update(batches[1:4])
    assert server.run("segment", "verify", "t").stderr == "Error: topic t: 3 segments not whole\n"
    done = server.run("segment", "reindex", "t")
    assert done.exit_code == 0
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["TOPIC", "PARTITION", "SEGMENTS", "BYTES", "REINDEXED", "NOT", "WHOLE"],
        ["t", "0", "5", f"{sum(map(len, batches)):,}", "3", "0"],
        ["t", "1", "0", "0", "0", "0"],
    ]
    assert server.run("segment", "verify", "t").exit_code == 0
    server.harness.storage.rotten.add(batches[3])
    again = server.run("segment", "reindex", "t", "--partition", "0", "-o", "json")
    assert (again.exit_code, again.stderr) == (Exit.FAILED, "Error: topic t: 1 segment not whole\n")
    (told,) = json.loads(again.stdout)["partitions"]
    assert (told["segments"], told["reindexed"], len(told["faulty"])) == (5, 0, 1)
    assert server.run("segment", "reindex", "t", "--partition", "2").exit_code == Exit.NOT_FOUND


def test_a_segment_is_described(server: AdminServer) -> None:
    topic = server.there(server.harness.topic, "t")
    server.there(write, server.harness, 2)
    shown = server.run("segment", "describe", "t", "0", "3")
    assert shown.exit_code == 0
    facts = dict(line.split(maxsplit=1) for line in shown.output.splitlines()[1:])
    assert (facts["offsets"], facts["checked"]) == ("2 to 3", "it and its index are whole")
    server.harness.storage.rotten.add(server.harness.partition(topic).batches[1][2])
    damaged = server.run("segment", "describe", "t", "0", "3")
    assert (damaged.exit_code, damaged.stderr) == (Exit.FAILED, "Error: the segment at offset 2 is not whole\n")
    assert json.loads(server.run("segment", "describe", "t", "0", "0", "-o", "json").stdout)["end_offset"] == 2
    none = server.run("segment", "describe", "t", "0", "4")
    assert none.exit_code == Exit.NOT_FOUND
    assert none.stderr == "Error: No segment of t-0 holds offset 4; the log ends at 4.\n"
