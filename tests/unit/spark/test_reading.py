"""A task's range, whatever storage instances do: every record once, or an error that names the place."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from kafscale.errors import CorruptData, Refused, Unavailable
from kafscale.v1 import common_pb2
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.connection import Connection
from kafscale_spark.loss import DataLoss
from kafscale_spark.planning import Range, Split
from kafscale_spark.reading import Reading, read_split
from tests.servers.ports import free_ports
from tests.unit.spark.storage import Storage


@pytest.fixture
def storage() -> Storage:
    """A topic of 100 records in batches of 10."""
    made = Storage()
    [log] = made.make("orders")
    for _ in range(10):
        log.add(10)
    return made


def _rows(
    storage: Storage,
    endpoints: tuple[str, ...],
    start: int = 0,
    end: int = 100,
    *,
    columns: tuple[str, ...] = ("offset", "value"),
    fail: bool = True,
    retry_seconds: float = 5.0,
) -> list[tuple[Any, ...]]:
    reading = Reading(Connection(endpoints, retry_seconds=retry_seconds), columns, fail, 1 << 20)
    split = Split([Range(("orders", 0), start, end)], storage.ids, endpoints)
    rows: list[tuple[Any, ...]] = []
    for batch in read_split(reading, split):
        rows += zip(*[column.to_pylist() for column in batch.columns], strict=True)
    return rows


def _expected(start: int, end: int) -> list[tuple[int, bytes]]:
    return [(n, str(n).encode().ljust(10)) for n in range(start, end)]


@pytest.mark.parametrize(("start", "end"), [(0, 100), (5, 100), (0, 95), (33, 34), (30, 40), (9, 31)])
def test_a_range_can_begin_and_end_inside_batches(storage: Storage, start: int, end: int) -> None:
    with storage.running() as endpoints:
        assert _rows(storage, endpoints, start, end) == _expected(start, end)
        assert _rows(storage, endpoints, start, end, columns=("partition", "topic")) == [(0, "orders")] * (end - start)
    assert [scan.mode for scan in storage.scans_asked] == [pb.ScanRequest.BATCHES, pb.ScanRequest.COUNT]


def _read(endpoints: tuple[str, ...], split: Split, *, fail: bool = True) -> list[tuple[str, int, int]]:
    reading = Reading(Connection(endpoints, retry_seconds=5.0), ("topic", "partition", "offset"), fail, 1 << 20)
    batches = read_split(reading, split)
    return [row for batch in batches for row in zip(*[column.to_pylist() for column in batch.columns], strict=True)]


def test_a_task_reads_ranges_of_several_topics_in_turn_from_all_instances(storage: Storage) -> None:
    for log in storage.make("others", 2):
        log.add(10)
    other = replace(storage, scans_asked=[])
    ranges = [Range(("orders", 0), 95, 100), Range(("others", 0), 0, 10), Range(("others", 1), 3, 7)]
    expected = [(*part.partition, offset) for part in ranges for offset in range(part.start, part.end)]
    with storage.running() as [first], other.running() as [second]:
        assert _read((first, second), Split(ranges, storage.ids, (first, second))) == expected
        # Only the deleted topic is lost.
        ids = storage.ids | {"others": b"-" * 16}
        assert _read((first,), Split(ranges, ids, (first,)), fail=False) == expected[:5]
    assert [(scan.partition.topic, scan.start) for scan in storage.scans_asked[:2]] == [("orders", 95), ("others", 3)]
    assert [(scan.partition.topic, scan.start) for scan in other.scans_asked] == [("others", 0)]


def test_an_instance_that_failed_is_not_asked_first_for_later_ranges(storage: Storage) -> None:
    other = replace(storage, scans_asked=[])
    other.before = lambda _request, _number: pb.ScanPiece(status=common_pb2.UNAVAILABLE, detail="busy")
    ranges = [Range(("orders", 0), start, start + 5) for start in range(0, 60, 10)]
    with storage.running() as [good], other.running() as [bad]:
        rows = _read((bad, good), Split(ranges, storage.ids, (bad, good)))
    assert [offset for *_, offset in rows] == [offset for part in ranges for offset in range(part.start, part.end)]
    assert len(other.scans_asked) == 1


@pytest.mark.parametrize("columns", [("offset",), ("partition",)])
def test_broken_streams_are_continued(storage: Storage, columns: tuple[str, ...]) -> None:
    """The end of a stream is not the end of the range."""
    broken = set()

    def before(request: pb.ScanRequest, number: int) -> pb.ScanPiece | None:
        if number in {0, 3, 9} and number not in broken:
            broken.add(number)
            if number == 3:
                return pb.ScanPiece(status=common_pb2.UNAVAILABLE, detail="no store", first_offset=30)
            raise RuntimeError("the server fails")
        return None

    storage.before = before
    with storage.running(2) as endpoints:
        found = _rows(storage, endpoints, 5, 95, columns=columns)
    assert found == [(n,) for n in range(5, 95)] if columns == ("offset",) else [(0,)] * 90
    assert [scan.start for scan in storage.scans_asked] == [5, 5, 30, 90]


def test_a_stream_that_ends_early_without_an_error_is_continued(storage: Storage) -> None:
    def before(request: pb.ScanRequest, number: int) -> pb.ScanPiece | None:
        # Each stream ends after its first batch.
        return None if number == request.start // 10 else pb.ScanPiece()

    storage.before = before
    with storage.running() as endpoints:
        assert _rows(storage, endpoints, 0, 100) == _expected(0, 100)
    assert [scan.start for scan in storage.scans_asked] == list(range(0, 100, 10))


def test_another_instance_is_asked_if_one_is_missing(storage: Storage) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    with storage.running() as endpoints:
        assert _rows(storage, (nobody, *endpoints)) == _expected(0, 100)


def test_the_error_names_position_and_reason_if_no_instance_makes_progress(storage: Storage) -> None:
    def before(request: pb.ScanRequest, number: int) -> pb.ScanPiece | None:
        return pb.ScanPiece(status=common_pb2.UNAVAILABLE, detail="no store") if number == 3 else None

    storage.before = before
    place = "topic orders, partition 0, offset 30: no storage instance makes progress: .*no store"
    with storage.running() as endpoints, pytest.raises(Unavailable, match=place):
        _rows(storage, endpoints, retry_seconds=0.3)


def test_damage_fails_the_task_and_is_not_skipped(storage: Storage) -> None:
    def before(request: pb.ScanRequest, number: int) -> pb.ScanPiece | None:
        piece = pb.ScanPiece(status=common_pb2.DAMAGED, detail="checksum of segment-7", first_offset=70)
        return piece if number == 7 else None

    storage.before = before
    with storage.running(2) as endpoints:
        for fail in (True, False):
            with pytest.raises(CorruptData, match=r"topic orders, partition 0, offset 70.*checksum of segment-7"):
                _rows(storage, endpoints, fail=fail)
    assert len(storage.scans_asked) == 2


def test_damage_in_transit_names_the_object(storage: Storage) -> None:
    [log] = storage.topics["orders"]
    log.batches[4] = log.batches[4][:-1] + b"!"
    with (
        storage.running() as endpoints,
        pytest.raises(CorruptData, match=r"topic orders, partition 0, offset 40 in obj: .*CRC"),
    ):
        _rows(storage, endpoints)


def test_pieces_with_gaps_are_refused(storage: Storage) -> None:
    [log] = storage.topics["orders"]
    del log.batches[4]
    with storage.running() as endpoints, pytest.raises(CorruptData, match=r"offset 40: .* sent offsets 50 to 60"):
        _rows(storage, endpoints)


def test_retention_fails_the_task_or_is_skipped_with_a_warning(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    [log] = storage.topics["orders"]
    log.delete_before(25)
    with storage.running() as endpoints:
        with pytest.raises(DataLoss, match=r"offset 10 no longer exists; the log begins at 25.*failOnDataLoss"):
            _rows(storage, endpoints, 10)
        with caplog.at_level(logging.WARNING, "kafscale_spark"):
            assert _rows(storage, endpoints, 10, fail=False) == _expected(25, 100)
            assert _rows(storage, endpoints, 10, 20, fail=False) == []
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


def test_a_deleted_topic_fails_the_task_or_returns_nothing(storage: Storage) -> None:
    old = storage.ids["orders"]
    storage.ids["orders"] = b"new" + bytes(13)
    other = Storage(ids={"orders": old})
    with storage.running() as endpoints:
        with pytest.raises(
            DataLoss, match="topic orders, partition 0, offset 0 and the following offsets no longer exist"
        ):
            _rows(other, endpoints)
        assert _rows(other, endpoints, fail=False) == []


def test_a_request_that_storage_refuses_is_not_retried(storage: Storage) -> None:
    storage.before = lambda *_: pb.ScanPiece(status=common_pb2.INVALID, detail="no such mode")
    with storage.running() as endpoints, pytest.raises(Refused, match="no such mode"):
        _rows(storage, endpoints)
    assert len(storage.scans_asked) == 1
