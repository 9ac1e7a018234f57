import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    check_produced,
    magic_at,
    pack_header,
    peek,
    peek_one,
    place,
    placed_prefix,
    verify_crc,
    walk,
    with_log_append_time,
)
from kafscale.records.checksum import crc32c
from kafscale.records.codecs import Codec
from kafscale.records.errors import CorruptBatch, InvalidRecord, InvalidTimestamp
from kafscale.records.record import Record, build_batch, read_records
from tests.support.strategies.records import int32, int64, record_lists

ONE = build_batch([Record(5, 1000, b"k", b"v")], base_offset=5)
TWO = build_batch([Record(6, 2000, b"k", b"v"), Record(7, 1500, b"k", b"v")], base_offset=6, codec=Codec.GZIP)
GOOD = peek(TWO)


def test_crc32c_gives_the_check_value_of_the_standard() -> None:
    # RFC 3720 appendix B.4: 32 bytes of zeros; and the usual check value of CRC catalogues.
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"123456789") == 0xE3069283


def test_crc32c_continues_from_a_value() -> None:
    assert crc32c(b"456789", crc32c(b"123")) == crc32c(b"123456789")


def test_peek_reads_every_header_field() -> None:
    fields = BatchHeader(1, 49, 3, 2, 5, 0x3C, 7, 8, 9, 10, 11, 12, 13)
    header = peek(pack_header(fields))
    assert header == fields
    assert (header.size, header.last_offset, header.next_offset) == (61, 8, 9)
    assert header.codec is Codec.ZSTD
    assert (header.is_log_append_time, header.is_transactional, header.is_control) == (True, True, True)


def test_peek_needs_only_the_header_and_any_kind_of_buffer() -> None:
    for buffer in (TWO[:HEADER_SIZE], bytearray(TWO), memoryview(TWO)):
        assert peek(buffer) == GOOD
    assert peek(b"junk" + TWO, 4) == GOOD


@pytest.mark.parametrize("length", [0, 1, 16, HEADER_SIZE - 1])
def test_peek_refuses_less_than_a_header(length: int) -> None:
    with pytest.raises(CorruptBatch):
        peek(TWO[:length])
    with pytest.raises(CorruptBatch):
        peek(ONE + TWO[:length], len(ONE))


@pytest.mark.parametrize("change", [{"magic": 0}, {"magic": 1}, {"magic": 3}, {"magic": -1}])
def test_peek_refuses_other_magics(change: dict[str, int]) -> None:
    with pytest.raises(CorruptBatch, match="magic"):
        peek(pack_header(GOOD._replace(**change)))


@pytest.mark.parametrize("length", [48, 0, -1, -(2**31)])
def test_peek_refuses_a_length_less_than_a_header(length: int) -> None:
    with pytest.raises(CorruptBatch, match="length"):
        peek(pack_header(GOOD._replace(batch_length=length)))


def test_magic_at_reads_the_magic_of_any_format() -> None:
    assert magic_at(b"x" + TWO, 1) == 2
    with pytest.raises(CorruptBatch):
        magic_at(TWO[:16])


def test_peek_one_refuses_less_or_more_than_one_batch() -> None:
    assert peek_one(TWO) == GOOD
    for wrong in (TWO[:-1], TWO + b"x", TWO + TWO):
        with pytest.raises(CorruptBatch):
            peek_one(wrong)


@given(st.integers(17, len(TWO) - 1), st.integers(1, 255))
def test_verify_crc_finds_every_changed_byte_from_the_crc_on(at: int, change: int) -> None:
    damaged = bytearray(TWO)
    damaged[at] ^= change
    with pytest.raises(CorruptBatch, match="CRC"):
        verify_crc(damaged, 0, peek(damaged))


def test_verify_crc_refuses_an_incomplete_batch() -> None:
    with pytest.raises(CorruptBatch, match="ends at"):
        verify_crc(TWO[:-1], 0, GOOD)


@given(st.lists(record_lists(), max_size=5), st.binary(max_size=10))
def test_walk_yields_every_batch_of_a_concatenation(lists: list[list[Record]], before: bytes) -> None:
    batches = [build_batch(records, base_offset=records[0].offset) for records in lists]
    buffer = before + b"".join(batches)
    found = list(walk(buffer, len(before)))
    assert [buffer[pos : pos + header.size] for pos, header in found] == batches
    for pos, header in found:
        verify_crc(buffer, pos, header)


@given(st.integers(1, len(TWO) - 1))
def test_walk_yields_complete_batches_and_refuses_the_rest(kept: int) -> None:
    walking = walk(ONE + TWO[:kept])
    assert next(walking) == (0, peek(ONE))
    with pytest.raises(CorruptBatch):
        next(walking)


@given(int64, int32)
def test_placing_changes_offset_and_epoch_and_keeps_the_crc_right(offset: int, epoch: int) -> None:
    joined = b"".join((placed_prefix(GOOD, offset, epoch), memoryview(TWO)[16:]))
    placed = bytearray(ONE + TWO)
    place(placed, len(ONE), offset, epoch)
    assert placed == ONE + joined
    header = peek_one(joined)
    verify_crc(joined, 0, header)
    assert header == GOOD._replace(base_offset=offset, leader_epoch=epoch)


@given(record_lists(), st.sampled_from(Codec), int64)
def test_log_append_time_gives_every_record_the_same_time(records: list[Record], codec: Codec, now: int) -> None:
    batch = build_batch(records, base_offset=records[0].offset, codec=codec)
    stamped = with_log_append_time(batch, now)
    verify_crc(stamped, 0, peek_one(stamped))
    assert peek(stamped).is_log_append_time
    assert list(read_records(stamped, max_bytes=1 << 20)) == [r._replace(timestamp=now) for r in records]


def test_check_produced_accepts_what_producers_send() -> None:
    for change in ({}, {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}, {"base_timestamp": -1}):
        check_produced(GOOD._replace(**change))


@pytest.mark.parametrize(
    "change",
    [
        {"attributes": 0x20},
        {"attributes": 0x10},
        {"attributes": 5},
        {"attributes": 7},
        {"record_count": 0, "last_offset_delta": -1},
        {"record_count": -1, "last_offset_delta": -2},
        {"record_count": 3},
        {"record_count": 2**31 - 1},
        {"last_offset_delta": 0},
        {"last_offset_delta": -(2**31)},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1},
        {"producer_id": 5, "producer_epoch": -1, "base_sequence": 0},
    ],
)
def test_check_produced_refuses_what_a_client_must_not_send(change: dict[str, int]) -> None:
    with pytest.raises(InvalidRecord):
        check_produced(GOOD._replace(**change))


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_cannot_claim_more_records_than_fit_in_its_bytes(codec: Codec) -> None:
    densest = [Record(number, 1, None, None) for number in range(50_000)]
    header = peek(build_batch(densest, base_offset=0, codec=codec))
    check_produced(header)
    # A segment's header holds the sum of the counts in 32 bits.
    for count in (header.size * 4, 2**31 - 1):
        with pytest.raises(InvalidRecord, match="do not fit"):
            check_produced(header._replace(record_count=count, last_offset_delta=count - 1))


def test_check_produced_refuses_log_append_time() -> None:
    with pytest.raises(InvalidTimestamp):
        check_produced(peek(with_log_append_time(TWO, 5)))


def test_header_has_the_layout_of_the_specification() -> None:
    assert struct.calcsize(">qiibIhiqqqhii") == HEADER_SIZE
    assert int.from_bytes(TWO[17:21], "big") == crc32c(TWO[21:])
    assert TWO[57:61] == (2).to_bytes(4, "big")
