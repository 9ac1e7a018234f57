"""Every byte of a small segment and of its index, changed to every other value."""

from collections.abc import Iterator

import pytest

from kafscale.errors import CorruptData
from kafscale.segment.format import HEADER_SIZE, CorruptSegment
from kafscale.segment.index import CorruptIndex, Index, IndexEntry, build_index, parse_index
from kafscale.segment.reader import START_SIZE, parse_segment, parse_start, scan_batches
from kafscale.segment.verify import verify_index, verify_segment
from kafscale.segment.writer import build_segment
from tests.support.samples.segments import EPOCH, placed, small_segment

# No checksum covers flags (2 bytes) and creation time (8). They are for information only; no answer depends on them.
HARMLESS = {6, 7, *range(20, 28)}
SEGMENT = small_segment()
ENTRY = IndexEntry(SEGMENT.base_offset, HEADER_SIZE)


def _damaged(data: bytes) -> Iterator[tuple[int, bytes]]:
    for at, right in enumerate(data):
        for wrong in range(256):
            if wrong != right:
                yield at, data[:at] + bytes([wrong]) + data[at + 1 :]


def test_every_damaged_byte_of_a_segment_is_detected_or_harmless() -> None:
    intact = parse_segment(SEGMENT.data)
    undetected = set()
    for at, data in _damaged(SEGMENT.data):
        try:
            read = parse_segment(data)
        except CorruptSegment:
            continue
        undetected.add(at)
        assert data[HEADER_SIZE:] == SEGMENT.data[HEADER_SIZE:]
        assert (read.offsets, read.next_offsets, read.positions) == (
            intact.offsets,
            intact.next_offsets,
            intact.positions,
        )
        assert read.header.epoch == intact.header.epoch

    assert undetected == HARMLESS


def test_a_damaged_base_offset_or_epoch_in_the_header_is_detected() -> None:
    intact = parse_start(SEGMENT.data[:START_SIZE])
    for _, data in _damaged(SEGMENT.data[:START_SIZE]):
        try:
            read = parse_start(data)
        except CorruptSegment:
            continue
        assert (read.base_offset, read.epoch) == (intact.base_offset, intact.epoch)


def test_every_damaged_byte_of_a_ranged_read_is_detected_or_harmless() -> None:
    """The footer's checksum cannot be verified on a part of the body, but everything else of the piece can."""
    piece = SEGMENT.data[HEADER_SIZE:]
    crc = set(range(len(piece) - 16, len(piece) - 12))
    undetected = set()
    for at, data in _damaged(piece):
        try:
            list(scan_batches(data, ENTRY, at_end=True, epoch=EPOCH))
        except CorruptSegment:
            continue
        undetected.add(at)

    assert undetected == crc


def test_a_ranged_read_inside_the_body_never_yields_a_damaged_batch() -> None:
    """A length that extends past the piece ends the scan without a batch, and the reader requests more bytes."""
    piece = SEGMENT.data[HEADER_SIZE : SEGMENT.positions[2]]
    intact = [found for _, found in scan_batches(piece, ENTRY, at_end=False, epoch=EPOCH)]
    assert len(intact) == 2
    for _, data in _damaged(piece):
        read = []
        try:
            for _, found in scan_batches(data, ENTRY, at_end=False, epoch=EPOCH):
                read.append(found)
        except CorruptSegment:
            pass
        assert read in (intact[:0], intact[:1])


def test_the_verifier_finds_what_the_reader_refuses() -> None:
    for at, data in _damaged(SEGMENT.data):
        assert bool(verify_segment(data)) == (at not in HARMLESS), at


@pytest.mark.parametrize("length", range(len(SEGMENT.data)))
def test_a_segment_truncated_anywhere_is_detected(length: int) -> None:
    with pytest.raises(CorruptSegment):
        parse_segment(SEGMENT.data[:length])
    assert verify_segment(SEGMENT.data[:length])


def test_a_missing_or_an_added_byte_anywhere_is_detected() -> None:
    for at in range(len(SEGMENT.data)):
        with pytest.raises(CorruptSegment):
            parse_segment(SEGMENT.data[:at] + SEGMENT.data[at + 1 :])
        with pytest.raises(CorruptSegment):
            parse_segment(SEGMENT.data[:at] + b"\x00" + SEGMENT.data[at:])


def test_batches_damaged_before_the_segment_was_built_are_found_by_the_full_check() -> None:
    pieces = placed([bytes(SEGMENT.data[SEGMENT.positions[0] : SEGMENT.positions[1]])], base_offset=0)
    prefix, rest = pieces[0]
    broken = bytearray(rest)
    broken[-1] ^= 1
    data = build_segment([(prefix, broken)], epoch=EPOCH, created_ms=0).data

    parse_segment(data)
    assert len(verify_segment(data)) == 1
    with pytest.raises(CorruptSegment, match="CRC"):
        parse_segment(data, check_batches=True)


INDEXED = small_segment(batches=6)
INDEX = build_index(INDEXED.offsets, INDEXED.positions, interval=4)


def _look_up(index: Index, offset: int) -> int | None:
    """The base offset of the batch that contains ``offset``, found in the way of a reader."""
    entry = index.entry_for(offset)
    for _, found in scan_batches(INDEXED.data[entry.position :], entry, at_end=True, epoch=EPOCH):
        if found.next_offset > offset:
            return found.base_offset
    return None


def test_every_damaged_byte_of_an_index_is_detected_or_causes_no_wrong_answer() -> None:
    segment = parse_segment(INDEXED.data)
    offsets = range(INDEXED.base_offset, INDEXED.next_offset)
    right = {offset: _look_up(parse_index(INDEX), offset) for offset in offsets}
    assert set(right.values()) == set(INDEXED.offsets)
    outcomes = {"refused": 0, "caught in use": 0, "right": 0}
    for _, data in _damaged(INDEX):
        try:
            index = parse_index(data)
        except CorruptIndex:
            outcomes["refused"] += 1
            continue
        # A damaged interval alone may still describe the same entries.
        assert verify_index(index, segment) or index.offsets == parse_index(INDEX).offsets
        for offset in offsets:
            try:
                assert _look_up(index, offset) == right[offset]
                outcomes["right"] += 1
            except CorruptData:
                outcomes["caught in use"] += 1

    assert all(outcomes.values())


@pytest.mark.parametrize("length", range(len(INDEX)))
def test_an_index_truncated_anywhere_is_refused(length: int) -> None:
    with pytest.raises(CorruptIndex):
        parse_index(INDEX[:length])


@pytest.mark.parametrize("positions", [[200, 300], [INDEXED.positions[4], INDEXED.positions[5]]])
def test_the_index_of_another_owners_segment_is_detected_in_use(positions: list[int]) -> None:
    """A's batches end at other positions than B's. Its index must never lead a reader of B's to a wrong batch."""
    index_of_a = parse_index(build_index([1000, 1004, 1008], [32, *positions], interval=4))
    for offset in range(INDEXED.base_offset, INDEXED.next_offset):
        entry = index_of_a.entry_for(offset)
        if entry == (1000, 32):
            assert _look_up(index_of_a, offset) is not None
        else:
            with pytest.raises(CorruptSegment):
                _look_up(index_of_a, offset)

    assert verify_index(index_of_a, parse_segment(INDEXED.data))
