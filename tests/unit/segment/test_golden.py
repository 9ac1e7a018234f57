"""Files that KafScale 1.6 wrote, and the file that this writer must keep writing."""

from kafscale.records.record import Record, read_records
from kafscale.segment.format import HEADER_SIZE, SegmentHeader
from kafscale.segment.index import build_index, parse_index
from kafscale.segment.reader import parse_segment
from kafscale.segment.verify import verify_index, verify_segment
from kafscale.segment.writer import build_segment
from tests.support.samples.segments import GOLDEN, KAFSCALE_1_INDEX, KAFSCALE_1_SEGMENT, placed

OURS = GOLDEN / "version-1" / "segment-00000000000000001000.kfs"
OURS_INDEX = GOLDEN / "version-1" / "segment-00000000000000001000.index"


def _kafscale_1_batches() -> list[bytes]:
    segment = parse_segment(KAFSCALE_1_SEGMENT.read_bytes())
    return [bytes(segment.data[start:end]) for start, end in zip(segment.positions, segment.ends, strict=True)]


def _golden_record(i: int, timestamp: int) -> Record:
    if i >= 750:
        return Record(i, timestamp, b"last", b"end")
    value = None if i % 11 == 0 else b"" if i % 13 == 0 else f"value {i} ".encode() * (i % 5 + 1)
    headers: tuple[tuple[str, bytes | None], ...] = (("h", f"v{i}".encode()), ("n", None)) if i % 3 == 0 else ()
    return Record(i, 1_700_000_000_000 + 10 * i, None if i % 7 == 0 else f"key-{i}".encode(), value, headers)


def test_every_record_of_a_kafscale_1_segment_is_as_its_readme_describes() -> None:
    segment = parse_segment(KAFSCALE_1_SEGMENT.read_bytes(), check_batches=True)

    assert segment.header.message_count == 752
    assert len(segment.offsets) == 17
    records = [
        record
        for start, end in zip(segment.positions, segment.ends, strict=True)
        for record in read_records(segment.data[start:end], max_bytes=1 << 20)
    ]
    assert records == [_golden_record(i, records[i].timestamp) for i in range(752)]
    assert segment.max_timestamp_ms == max(record.timestamp for record in records)


def test_a_kafscale_1_segment_and_its_index_verify_without_findings() -> None:
    data = KAFSCALE_1_SEGMENT.read_bytes()

    assert verify_segment(data) == []
    assert verify_index(parse_index(KAFSCALE_1_INDEX.read_bytes()), parse_segment(data)) == []


def test_the_writer_differs_from_kafscale_1_only_in_header_fields_that_it_may_choose() -> None:
    theirs = KAFSCALE_1_SEGMENT.read_bytes()
    batches = _kafscale_1_batches()

    same = build_segment(
        placed(batches, base_offset=0, epoch=0), epoch=0, created_ms=SegmentHeader.parse(theirs).created_ms
    )
    other = build_segment(placed(batches, base_offset=0, epoch=0), epoch=0, created_ms=5, flags=2)

    assert same.data == theirs
    assert other.data[HEADER_SIZE:] == theirs[HEADER_SIZE:]
    assert {i for i in range(HEADER_SIZE) if other.data[i] != theirs[i]} <= {*range(6, 8), *range(20, 32)}


def test_the_index_is_the_one_that_kafscale_1_wrote() -> None:
    segment = parse_segment(KAFSCALE_1_SEGMENT.read_bytes())

    assert build_index(segment.offsets, segment.positions) == KAFSCALE_1_INDEX.read_bytes()


def test_the_writer_still_writes_the_golden_files_of_version_1() -> None:
    built = build_segment(
        placed(_kafscale_1_batches()[:6], base_offset=1000, epoch=7), epoch=7, created_ms=1_700_000_000_000, flags=2
    )

    assert built.data == OURS.read_bytes()
    assert build_index(built.offsets, built.positions) == OURS_INDEX.read_bytes()


def test_the_golden_files_of_version_1_still_read() -> None:
    segment = parse_segment(OURS.read_bytes(), check_batches=True)

    assert segment.header == SegmentHeader(
        flags=2, base_offset=1000, message_count=300, created_ms=1_700_000_000_000, epoch=7
    )
    assert list(segment.offsets) == [1000, 1050, 1100, 1150, 1200, 1250]
    assert verify_index(parse_index(OURS_INDEX.read_bytes()), segment) == []
