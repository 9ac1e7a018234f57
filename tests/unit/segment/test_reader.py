"""The parsed form of valid segments, and segments that are refused although all checksums are correct."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.errors import CorruptData
from kafscale.records.checksum import crc32c
from kafscale.segment.format import FOOTER_SIZE, HEADER_SIZE, CorruptSegment, SegmentFooter, SegmentHeader
from kafscale.segment.index import IndexEntry, parse_index
from kafscale.segment.reader import parse_segment, scan_batches
from kafscale.segment.verify import verify_segment
from tests.support.samples.segments import EPOCH, make_batch, make_segment, small_segment

SEGMENT = small_segment()


def _resealed(data: bytearray) -> bytes:
    """The segment with a footer checksum that matches its body again."""
    struct.pack_into(
        ">I", data, len(data) - FOOTER_SIZE, crc32c(memoryview(data)[HEADER_SIZE : len(data) - FOOTER_SIZE])
    )
    return bytes(data)


def test_a_parsed_segment_has_the_position_of_every_batch() -> None:
    segment = parse_segment(SEGMENT.data, check_batches=True)

    assert list(segment.offsets) == [1000, 1002, 1004]
    assert list(segment.next_offsets) == [1002, 1004, 1006]
    assert segment.positions == SEGMENT.positions
    assert list(segment.ends) == [*segment.positions[1:], segment.body_end]
    assert segment.body_end == SEGMENT.body_end == len(SEGMENT.data) - FOOTER_SIZE
    assert list(segment.max_timestamps) == [10, 30, 50]
    assert segment.next_offset == SEGMENT.next_offset == 1006
    assert segment.max_timestamp_ms == SEGMENT.max_timestamp_ms == 50


def test_the_batch_for_an_offset_is_the_first_that_ends_past_it() -> None:
    segment = parse_segment(SEGMENT.data)

    assert [segment.batch_for(offset) for offset in (0, 1000, 1001, 1002, 1005, 1006)] == [0, 0, 0, 1, 2, 3]


def test_gaps_between_batches_are_accepted_in_a_whole_segment_but_not_in_a_piece() -> None:
    """A base offset is verified by the footer's checksum, not by the batch's own."""
    data = bytearray(SEGMENT.data)
    struct.pack_into(">q", data, SEGMENT.positions[2], 1010)
    struct.pack_into(">q", data, len(data) - 12, 1011)
    gapped = _resealed(data)

    segment = parse_segment(gapped)
    assert list(segment.offsets) == [1000, 1002, 1010]
    assert segment.batch_for(1006) == 2
    assert verify_segment(gapped) == []
    with pytest.raises(CorruptSegment, match="1004 is next"):
        list(scan_batches(gapped[HEADER_SIZE:], IndexEntry(1000, HEADER_SIZE), at_end=True))


def test_a_segment_of_kafscale_1_may_contain_the_epoch_that_java_clients_send() -> None:
    imported = bytearray(small_segment(epoch=0).data)
    for position in SEGMENT.positions:
        struct.pack_into(">i", imported, position + 12, -1)
    data = _resealed(imported)

    assert parse_segment(data, check_batches=True).header.epoch == 0
    assert len(list(scan_batches(data[HEADER_SIZE:], IndexEntry(1000, HEADER_SIZE), at_end=True))) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda d, p: struct.pack_into(">q", d, p[1], 1001), "1002 is next", id="overlap"),
        pytest.param(lambda d, p: struct.pack_into(">q", d, p[0], 1001), "1000 is next", id="first batch"),
        pytest.param(lambda d, p: struct.pack_into(">i", d, p[1] + 12, EPOCH + 1), "epoch 4 in a segment", id="epoch"),
        pytest.param(lambda d, p: struct.pack_into(">i", d, p[1] + 12, -1), "epoch -1 in a segment", id="no epoch"),
        pytest.param(lambda d, p: struct.pack_into(">i", d, p[1] + 23, -2), "valid in a batch", id="last offset delta"),
        pytest.param(lambda d, p: struct.pack_into(">i", d, p[1] + 57, -2), "valid in a batch", id="record count"),
        pytest.param(lambda d, p: struct.pack_into(">q", d, p[2], 2**63 - 1), "valid in a batch", id="offset overflow"),
        pytest.param(lambda d, p: struct.pack_into(">i", d, p[2] + 8, 2000), "ends at", id="length"),
        pytest.param(lambda d, p: struct.pack_into(">i", d, p[2] + 8, -1), "length", id="negative length"),
        pytest.param(lambda d, p: d.__setitem__(p[1] + 16, 1), "magic 1", id="magic"),
        pytest.param(lambda d, p: struct.pack_into(">I", d, 16, 7), "header says 7", id="message count"),
        pytest.param(lambda d, p: struct.pack_into(">q", d, len(d) - 12, 1006), "footer says 1006", id="last offset"),
    ],
)
def test_an_inconsistency_is_refused_although_the_checksum_is_correct(
    change: Callable[[bytearray, list[int]], None], message: str
) -> None:
    data = bytearray(SEGMENT.data)
    change(data, list(SEGMENT.positions))
    wrong = _resealed(data)

    with pytest.raises(CorruptSegment, match=message):
        parse_segment(wrong)
    assert any(message in finding for finding in verify_segment(wrong))


def test_a_segment_without_batches_is_refused() -> None:
    data = SegmentHeader(0, 5, 1, 0, 0).encode() + SegmentFooter(0, 5).encode()

    with pytest.raises(CorruptSegment):
        parse_segment(data)
    assert verify_segment(data)


def test_a_scan_starts_at_the_index_entry_and_stops_before_an_incomplete_batch() -> None:
    start, cut = SEGMENT.positions[1], SEGMENT.positions[2]
    entry = IndexEntry(1002, start)
    for end in range(cut, SEGMENT.body_end):
        assert [
            (at, found.base_offset) for at, found in scan_batches(SEGMENT.data[start:end], entry, at_end=False)
        ] == [(0, 1002)]
    whole = list(scan_batches(SEGMENT.data[start:], entry, at_end=True, epoch=EPOCH))
    assert [(at, found.base_offset) for at, found in whole] == [(0, 1002), (cut - start, 1004)]


def test_a_scan_of_less_than_a_batch_yields_nothing() -> None:
    entry = IndexEntry(1000, HEADER_SIZE)
    for end in range(HEADER_SIZE, SEGMENT.positions[1]):
        assert list(scan_batches(SEGMENT.data[HEADER_SIZE:end], entry, at_end=False)) == []


def test_a_scan_refuses_another_owners_epoch() -> None:
    with pytest.raises(CorruptSegment, match="epoch 3 in a segment of epoch 4"):
        list(scan_batches(SEGMENT.data[HEADER_SIZE:], IndexEntry(1000, HEADER_SIZE), at_end=True, epoch=4))


def test_the_verifier_continues_after_the_first_fault() -> None:
    data = bytearray(SEGMENT.data)
    data[SEGMENT.positions[1] - 1] ^= 1
    data[SEGMENT.positions[2] - 1] ^= 1
    findings = verify_segment(bytes(data))

    assert len(findings) == 3
    assert "checksum of the body" in findings[0]
    assert f"batch at {SEGMENT.positions[0]}" in findings[1]
    assert f"batch at {SEGMENT.positions[1]}" in findings[2]


timestamps = st.lists(st.integers(-1, 2**40), min_size=1, max_size=4)


@given(
    batches=st.lists(timestamps, min_size=1, max_size=8), base=st.integers(0, 2**62), epoch=st.integers(0, 2**31 - 1)
)
@settings(max_examples=100)
def test_a_written_segment_is_read_back(batches: list[list[int]], base: int, epoch: int) -> None:
    sent = [make_batch(times) for times in batches]
    built = make_segment(sent, base_offset=base, epoch=epoch)
    segment = parse_segment(built.data, check_batches=True)

    assert [bytes(built.data[s + 16 : e]) for s, e in zip(segment.positions, segment.ends, strict=True)] == [
        batch[16:] for batch in sent
    ]
    assert (segment.offsets, segment.positions) == (built.offsets, built.positions)
    assert (segment.header.base_offset, segment.next_offset) == (base, built.next_offset)
    assert segment.header.message_count == built.message_count == sum(map(len, batches))
    assert segment.max_timestamp_ms == built.max_timestamp_ms == max(map(max, batches))
    assert (segment.header.epoch, segment.footer.crc) == (epoch, built.crc)
    assert verify_segment(built.data) == []


edits = st.lists(st.tuples(st.integers(0, len(SEGMENT.data) - 1), st.integers(0, 255)), max_size=6)


@given(edits=edits, cut=st.integers(0, len(SEGMENT.data)), reseal=st.booleans())
@settings(max_examples=400)
def test_no_segment_raises_anything_but_corrupt_data_and_reader_and_verifier_agree(
    edits: list[tuple[int, int]], cut: int, reseal: bool
) -> None:
    damaged = bytearray(SEGMENT.data)
    for at, value in edits:
        damaged[at] = value
    data = _resealed(damaged) if reseal else bytes(damaged[:cut])
    try:
        parse_segment(data, check_batches=True)
        accepted = True
    except CorruptData:
        accepted = False

    assert accepted == (verify_segment(data) == [])


@given(data=st.binary(max_size=300), offset=st.integers(0, 2**63 - 1), at_end=st.booleans())
@settings(max_examples=300)
def test_no_bytes_raise_anything_but_corrupt_data(data: bytes, offset: int, at_end: bool) -> None:
    for body in (data, SEGMENT.data[:HEADER_SIZE] + data, data + SEGMENT.data[-FOOTER_SIZE:]):
        for read in (
            lambda body=body: parse_segment(body),
            lambda body=body: list(scan_batches(body, IndexEntry(offset, HEADER_SIZE), at_end=at_end)),
            lambda body=body: parse_index(body),
        ):
            try:
                read()
            except CorruptData:
                continue
        verify_segment(body)
