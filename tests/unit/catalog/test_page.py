"""Catalog pages: their content, invalid pages, and which pages describe a log."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.catalog.page import SEGMENTS_PER_PAGE, CorruptPage, age_from, build_page, describe, misfit, parse_page
from kafscale.records.batch import with_log_append_time
from kafscale.records.checksum import crc32c
from kafscale.v1.catalog_pb2 import CatalogContent, CatalogPage, CatalogSegment
from kafscale.v1.common_pb2 import PartitionRef
from tests.support.samples.catalog import PAGE, REF, golden_segments, segment
from tests.support.samples.segments import CREATED_MS, EPOCH, make_batch, make_segment


def test_the_golden_page_is_still_written_and_read() -> None:
    golden = PAGE.read_bytes()

    assert build_page(REF, 3, golden_segments()) == golden
    content = parse_page(golden)
    assert (content.topic, content.topic_id, content.partition, content.epoch) == ("orders", REF.topic_id, 2, 3)
    assert list(content.segments) == golden_segments()


def test_a_segment_is_described_by_its_headers() -> None:
    built = make_segment([make_batch([30, 10, 40]), make_batch([20, 25]), make_batch([35])], base_offset=100)

    assert describe(built.data, built.positions, built.next_offset) == CatalogSegment(
        base_offset=100,
        next_offset=106,
        size=len(built.data),
        records=6,
        min_timestamp=20,
        max_timestamp=40,
        created_ms=CREATED_MS,
        epoch=EPOCH,
    )


def test_append_time_counts_if_the_broker_set_it_and_missing_timestamps_are_minus_one() -> None:
    stamped = make_segment([with_log_append_time(make_batch([5, 6]), 1000), make_batch([2000])])
    none = make_segment([make_batch([-1, -1])])
    some = make_segment([make_batch([-1]), make_batch([50])])

    def times(built: object) -> tuple[int, int, int]:
        found = describe(built.data, built.positions, built.next_offset)  # type: ignore[attr-defined]
        return found.min_timestamp, found.max_timestamp, age_from(found)

    assert times(stamped) == (1000, 2000, 2000)
    assert times(none) == (-1, -1, CREATED_MS)
    assert times(some) == (50, 50, 50)


@pytest.mark.parametrize(
    ("segments", "why"),
    [
        ([], "0 segments"),
        ([segment(i, i + 1) for i in range(SEGMENTS_PER_PAGE + 1)], "65 segments"),
        ([segment(0, 5), segment(6, 9)], "but 5 is next"),
        ([segment(0, 5), segment(4, 9)], "but 5 is next"),
        ([CatalogSegment(base_offset=5, next_offset=5, size=1, records=1)], "but 5 is next"),
        ([CatalogSegment(base_offset=-1, next_offset=5, size=1, records=1)], "but -1 is next"),
        ([CatalogSegment(base_offset=0, next_offset=5, records=1)], "0 bytes"),
        ([CatalogSegment(base_offset=0, next_offset=5, size=1)], "0 records"),
        ([CatalogSegment(base_offset=0, next_offset=5, size=1, records=1, epoch=-1)], "epoch -1"),
    ],
)
def test_segments_that_are_not_consecutive_make_no_page(segments: list[CatalogSegment], why: str) -> None:
    with pytest.raises(CorruptPage, match=why):
        build_page(REF, 3, segments)
    content = CatalogContent(topic=REF.topic, topic_id=REF.topic_id, partition=2, epoch=3, segments=segments)
    with pytest.raises(CorruptPage, match=why):
        parse_page(_sealed(content))


def test_other_formats_and_invalid_ids_are_refused() -> None:
    with pytest.raises(CorruptPage, match="format 1"):
        parse_page(CatalogPage(format=2).SerializeToString())
    with pytest.raises(CorruptPage, match="format 1"):
        parse_page(b"")
    with pytest.raises(CorruptPage, match="topic id of 3 bytes"):
        build_page(PartitionRef(topic="t", topic_id=b"abc"), 1, [segment(0, 1)])


@given(st.data())
def test_no_damaged_byte_goes_unnoticed(data: st.DataObject) -> None:
    page = bytearray(PAGE.read_bytes())
    where = data.draw(st.integers(0, len(page) - 1))
    page[where] ^= data.draw(st.integers(1, 255))
    try:
        found = parse_page(bytes(page))
    except CorruptPage:
        return
    # Protobuf skips unknown fields, so nothing in them counts.
    assert list(found.segments) == golden_segments()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_page_or_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptPage):
        parse_page(data)


EPOCHS = [(3, 0), (5, 20), (6, 40)]


def _misfit(*segments: CatalogSegment, ref: PartitionRef = REF, log_start: int = 0, end: int = 60) -> str | None:
    content = parse_page(build_page(ref, 6, segments))
    return misfit(content, REF, epochs=EPOCHS, log_start=log_start, high_watermark=end)


def test_a_page_of_the_log_fits() -> None:
    assert _misfit(segment(0, 10, epoch=3), segment(10, 20, epoch=3), segment(20, 40, epoch=5)) is None
    assert _misfit(segment(40, 60, epoch=6)) is None


def test_a_page_with_segments_outside_the_log_does_not_fit() -> None:
    assert "another topic" in (_misfit(segment(0, 10), ref=PartitionRef(topic="orders", topic_id=bytes(16))) or "")
    other = deepcopy(REF)
    other.partition = 1
    assert "orders-1" in (_misfit(segment(0, 10), ref=other) or "")
    assert "the log ends at 60" in (_misfit(segment(40, 61, epoch=6)) or "")
    # Segments of a dead owner, of an owner that does not exist, and of an owner whose epoch ended before.
    assert "epoch 3 did not write" in (_misfit(segment(0, 20, epoch=3), segment(20, 30, epoch=3)) or "")
    assert "epoch 4 did not write" in (_misfit(segment(20, 30, epoch=4)) or "")
    assert "epoch 3 did not write" in (_misfit(segment(10, 25, epoch=3)) or "")
    assert "epoch 5 did not write" in (_misfit(segment(10, 30, epoch=5)) or "")


def test_segments_below_the_log_start_are_not_checked() -> None:
    """The epoch history does not go back that far."""
    page = (segment(0, 10, epoch=1), segment(10, 20, epoch=2), segment(20, 30, epoch=5))
    assert _misfit(*page) is not None
    assert _misfit(*page, log_start=20) is None


def _sealed(content: CatalogContent) -> bytes:
    body = content.SerializeToString()
    return CatalogPage(format=1, crc=crc32c(body), content=body).SerializeToString()
