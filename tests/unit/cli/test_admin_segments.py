"""`kafscale segment`: output and exit statuses."""

import json
from collections.abc import Iterator

import pytest

from kafscale.v1 import common_pb2
from kafscale.v1.storage_pb2 import SegmentsReply, SegmentsRequest, StoredSegment
from kafscale_tools.cli.admin import segments as reading
from kafscale_tools.cli.exits import Exit
from tests.support.gateway.admin_server import AdminServer, admin_server
from tests.support.gateway.asking import produce
from tests.support.gateway.harness import Harness, batch


@pytest.fixture
def server() -> Iterator[AdminServer]:
    with admin_server() as server:
        yield server


async def write(harness: Harness, batches: int) -> None:
    """Write each batch as a segment of two records."""
    client = await harness.connect()
    for _ in range(batches):
        await produce(client, batch(b"1", b"2"))


def test_segments_are_listed(server: AdminServer) -> None:
    server.there(server.harness.topic, "t", 2)
    server.there(write, server.harness, 5)
    rows = [line.split() for line in server.run("segment", "list", "t", "0").output.splitlines()]
    assert [row[:2] for row in rows[1:]] == [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"], ["8", "9"]]
    some = server.run("segment", "list", "t", "0", "--from", "3", "--limit", "2").output.splitlines()
    assert [line.split()[:2] for line in some[1:3]] == [["2", "3"], ["4", "5"]]
    assert some[3:] == ["more segments follow: --from 6"]
    reply = json.loads(server.run("segment", "list", "t", "1", "-o", "json").output)
    assert reply == {"segments": [], "next_offset": 0, "high_watermark": 0}


def test_a_topic_is_verified_to_its_end(server: AdminServer) -> None:
    server.there(server.harness.topic, "t")
    server.there(write, server.harness, 5)
    server.harness.storage.most_segments = 2
    assert server.run("segment", "verify", "t").output.splitlines()[1].split()[1:3] == ["0", "5"]
    assert len(server.run("segment", "list", "t", "0").output.splitlines()) == 6


def test_segments_are_verified(server: AdminServer) -> None:
    topic = server.there(server.harness.topic, "t", 2)
    server.there(write, server.harness, 5)
    whole = server.run("segment", "verify", "t")
    assert whole.exit_code == 0
    assert [line.split()[1:3] for line in whole.output.splitlines()[1:]] == [["0", "5"], ["1", "0"]]
    server.harness.storage.rotten.add(server.harness.partition(topic).batches[3][2])
    found = server.run("segment", "verify", "t", "--partition", "0")
    assert found.exit_code == Exit.FAILED
    assert found.stdout.splitlines()[1].split()[-1] == "1"
    assert found.stdout.splitlines()[2:] == ["rotten"]
    assert found.stderr == "Error: topic t: 1 segment missing or damaged\n"
    reported = json.loads(server.run("segment", "verify", "t", "-o", "json").stdout)["partitions"]
    assert [(each["partition"], each["segments"], len(each["faulty"])) for each in reported] == [(0, 5, 1), (1, 0, 0)]
    assert reported[0]["faulty"][0]["base_offset"] == 6


def test_an_unreadable_partition_does_not_hide_others(server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = server.there(server.harness.topic, "t", 3)
    server.there(write, server.harness, 5)
    server.harness.storage.rotten.add(server.harness.partition(topic).batches[3][2])
    segments = server.harness.storage.segments

    async def damaged(request: SegmentsRequest, *, timeout: float) -> SegmentsReply:
        if request.partition.partition == 1:
            return SegmentsReply(status=common_pb2.DAMAGED, detail="a hole")
        return await segments(request, timeout=timeout)

    monkeypatch.setattr(server.harness.storage, "segments", damaged)
    found = server.run("segment", "verify", "t")
    assert found.exit_code == Exit.FAILED
    rows = [line.split() for line in found.stdout.splitlines()[1:4]]
    assert [(row[2], row[4]) for row in rows] == [("5", "1"), ("0", "-"), ("0", "0")]
    assert found.stdout.splitlines()[4:] == ["rotten", "partition 1 not read to the end: t-1: DAMAGED: a hole"]
    assert found.stderr == "Error: topic t: 1 segment missing or damaged, 1 partition not read to the end\n"
    reported = json.loads(server.run("segment", "verify", "t", "-o", "json").stdout)["partitions"]
    assert [(len(each["faulty"]), each["error"]) for each in reported] == [
        (1, ""),
        (0, "t-1: DAMAGED: a hole"),
        (0, ""),
    ]


def test_an_unanswered_page_is_requested_again(server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PAUSES", (0.0,) * 3)
    topic = server.there(server.harness.topic, "t", 3)
    server.there(write, server.harness, 5)
    server.harness.storage.most_segments = 2
    server.harness.storage.rotten.add(server.harness.partition(topic).batches[0][2])
    segments, asked, failing = server.harness.storage.segments, list[tuple[int, int]](), [True, False, True, True, True]

    async def unsteady(request: SegmentsRequest, *, timeout: float) -> SegmentsReply:
        asked.append((request.partition.partition, request.start))
        if request.start and failing and failing.pop():
            return SegmentsReply(status=common_pb2.UNAVAILABLE, detail="503")
        return await segments(request, timeout=timeout)

    monkeypatch.setattr(server.harness.storage, "segments", unsteady)
    found = server.run("segment", "verify", "t")
    assert found.stderr == "Error: topic t: 1 segment missing or damaged\n"
    assert asked == [(0, 0), *[(0, 4)] * 4, *[(0, 8)] * 2, (1, 0), (2, 0)]

    async def silent(request: SegmentsRequest, *, timeout: float) -> SegmentsReply:
        asked.append((request.partition.partition, request.start))
        if request.start or request.partition.partition:
            return SegmentsReply(status=common_pb2.UNAVAILABLE, detail="503")
        return await segments(request, timeout=timeout)

    asked.clear()
    monkeypatch.setattr(server.harness.storage, "segments", silent)
    found = server.run("segment", "verify", "t")
    assert found.exit_code == Exit.FAILED
    # The other partitions are not retried for as long.
    assert asked == [(0, 0), *[(0, 4)] * 4, (1, 0), (2, 0)]
    assert [line.split()[2] for line in found.stdout.splitlines()[1:4]] == ["2", "0", "0"]
    assert found.stdout.splitlines()[4:6] == ["rotten", "partition 0 not read to the end: t-0: UNAVAILABLE: 503"]
    assert found.stderr == "Error: topic t: 1 segment missing or damaged, 3 partitions not read to the end\n"


def test_an_interrupted_verification_prints_its_findings(server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.there(server.harness.topic, "t")
    server.there(write, server.harness, 5)
    server.harness.storage.most_segments = 2

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    async def silent(request: SegmentsRequest, *, timeout: float) -> SegmentsReply:
        if request.start:
            return SegmentsReply(status=common_pb2.UNAVAILABLE)
        return await segments(request, timeout=timeout)

    segments = server.harness.storage.segments
    monkeypatch.setattr(server.harness.storage, "segments", silent)
    monkeypatch.setattr(reading, "sleep", interrupt)
    found = server.run("segment", "verify", "t")
    assert found.exit_code == Exit.FAILED
    assert found.stdout.splitlines()[1].split()[2] == "2"
    assert found.stdout.splitlines()[2:] == ["partition 0 not read to the end: interrupted"]


def test_a_hole_is_listed_with_the_segments_after_it(server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.there(server.harness.topic, "t")

    async def with_hole(request: SegmentsRequest, *, timeout: float) -> SegmentsReply:
        hole = StoredSegment(end_offset=2, epoch=1, faults=["no segment"])
        segment = StoredSegment(base_offset=2, end_offset=4, bytes=9, epoch=1, object="key")
        return SegmentsReply(segments=[hole, segment], next=4, high_watermark=4)

    monkeypatch.setattr(server.harness.storage, "segments", with_hole)
    listed = server.run("segment", "list", "t", "0")
    rows = [line.split() for line in listed.output.splitlines()[1:]]
    assert rows == [["0", "1", "0", "1", "-"], ["2", "3", "9", "1", "key"], ["no", "segment"]]


def test_indexes_are_rebuilt(server: AdminServer) -> None:
    topic = server.there(server.harness.topic, "t", 2)
    server.there(write, server.harness, 5)
    server.harness.storage.most_segments = 2
    batches = [batch for _, _, batch in server.harness.partition(topic).batches]
    server.harness.storage.unindexed.update(batches[1:4])
    assert server.run("segment", "verify", "t").stderr == "Error: topic t: 3 segments missing or damaged\n"
    done = server.run("segment", "reindex", "t")
    assert done.exit_code == 0
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["TOPIC", "PARTITION", "SEGMENTS", "BYTES", "REINDEXED", "DAMAGED"],
        ["t", "0", "5", f"{sum(map(len, batches)):,}", "3", "0"],
        ["t", "1", "0", "0", "0", "0"],
    ]
    assert server.run("segment", "verify", "t").exit_code == 0
    server.harness.storage.rotten.add(batches[3])
    again = server.run("segment", "reindex", "t", "--partition", "0", "-o", "json")
    assert (again.exit_code, again.stderr) == (Exit.FAILED, "Error: topic t: 1 segment missing or damaged\n")
    (reported,) = json.loads(again.stdout)["partitions"]
    assert (reported["segments"], reported["reindexed"], len(reported["faulty"])) == (5, 0, 1)
    assert server.run("segment", "reindex", "t", "--partition", "2").exit_code == Exit.NOT_FOUND


def test_a_segment_is_described(server: AdminServer) -> None:
    topic = server.there(server.harness.topic, "t")
    server.there(write, server.harness, 2)
    shown = server.run("segment", "describe", "t", "0", "3")
    assert shown.exit_code == 0
    facts = dict(line.split(maxsplit=1) for line in shown.output.splitlines()[1:])
    assert (facts["offsets"], facts["verified"]) == ("2 to 3", "segment and index are intact")
    server.harness.storage.rotten.add(server.harness.partition(topic).batches[1][2])
    damaged = server.run("segment", "describe", "t", "0", "3")
    assert (damaged.exit_code, damaged.stderr) == (
        Exit.FAILED,
        "Error: the segment at offset 2 is missing or damaged\n",
    )
    assert json.loads(server.run("segment", "describe", "t", "0", "0", "-o", "json").stdout)["end_offset"] == 2
    none = server.run("segment", "describe", "t", "0", "4")
    assert none.exit_code == Exit.NOT_FOUND
    assert none.stderr == "Error: No segment of t-0 contains offset 4; the log ends at 4.\n"
