import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    pack_header,
    peek,
    peek_one,
    seal,
    verify_crc,
    with_log_append_time,
)
from kafscale.records.codecs import Codec, compress
from kafscale.records.errors import CorruptBatch
from kafscale.records.record import (
    Record,
    build_batch,
    compress_batch,
    first_at_or_after,
    largest_timestamp,
    read_records,
    records_without_key,
)
from kafscale.records.varint import append_varint, read_varint
from tests.support.strategies.records import int64, record_lists

MAX = 1 << 20
RECORDS = [
    Record(10, 500, b"a", b"x"),
    Record(11, 900, None, b"y"),
    Record(13, 700, b"c", None),
    Record(14, 900, b"", b""),
]


def batch_of(data: bytes, *, count: int = 1, last_delta: int = 0, attributes: int = 0) -> bytes:
    """A sealed batch around hand-made record bytes."""
    header = BatchHeader(0, 0, -1, 2, 0, attributes, last_delta, 0, 0, -1, -1, -1, count)
    batch = bytearray(pack_header(header) + data)
    seal(batch)
    return bytes(batch)


@given(int64)
def test_varints_round_trip(value: int) -> None:
    out = bytearray()
    append_varint(out, value)
    assert read_varint(bytes(out) + b"\xff", 0) == (value, len(out))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (64, "8001"), (-65, "8101"), (8191, "fe7f"), (8192, "808001"),
     (2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01")],
)  # fmt: skip
def test_varints_are_kafkas(value: int, encoded: str) -> None:
    out = bytearray()
    append_varint(out, value)
    assert out.hex() == encoded


@pytest.mark.parametrize("encoded", ["ffffffffffffffffff02", "ffffffffffffffffffff01", "80" * 50])
def test_varints_of_more_than_64_bits_are_refused(encoded: str) -> None:
    with pytest.raises(CorruptBatch):
        read_varint(bytes.fromhex(encoded), 0)


@given(record_lists(), st.sampled_from(Codec))
def test_records_round_trip(records: list[Record], codec: Codec) -> None:
    base = records[0].offset - min(records[0].offset, 3)
    batch = build_batch(records, base_offset=base, codec=codec, leader_epoch=9)
    header = peek_one(batch)
    verify_crc(batch, 0, header)
    assert list(read_records(batch, max_bytes=MAX)) == records
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (base, records[-1].offset, 9)
    assert (header.record_count, header.codec) == (len(records), codec)
    assert header.max_timestamp == max(record.timestamp for record in records)


@given(record_lists(), st.sampled_from(Codec))
def test_compressing_a_batch_changes_nothing_else(records: list[Record], codec: Codec) -> None:
    plain = build_batch(
        records, base_offset=records[0].offset, leader_epoch=3, producer_id=7, producer_epoch=1, base_sequence=4
    )
    packed = compress_batch(plain, codec)
    header = peek_one(packed)
    verify_crc(packed, 0, header)
    assert list(read_records(packed, max_bytes=MAX)) == records
    same = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert header._replace(**same) == peek(plain)._replace(**same)
    assert packed is plain or (len(packed) < len(plain) and header.codec is codec)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_compressible_batch_becomes_smaller(codec: Codec) -> None:
    plain = build_batch([Record(i, 0, None, b"again " * 50) for i in range(20)], base_offset=0)
    assert len(compress_batch(plain, codec)) < len(plain) / 4


@pytest.mark.parametrize("codec", Codec)
def test_a_compressed_batch_is_not_changed(codec: Codec) -> None:
    packed = build_batch([Record(0, 0, None, bytes(5000))], base_offset=0, codec=Codec.SNAPPY)
    assert compress_batch(packed, codec) is packed


def test_a_control_batch_is_not_changed() -> None:
    control = bytearray(build_batch([Record(0, 0, bytes(4), bytes(600))], base_offset=0))
    control[22] |= 0x20
    seal(control)
    assert compress_batch(control, Codec.ZSTD) is control


def test_header_keys_that_are_not_utf8_are_kept() -> None:
    body = b"\x00\x00\x00\x01\x01\x02" + b"\x06\xff\xfe\x00\x01"
    batch = batch_of(bytes((len(body) * 2,)) + body)
    (record,) = read_records(batch, max_bytes=MAX)
    assert record.headers == (("\udcff\udcfe\x00", None),)
    assert build_batch([record], base_offset=0)[HEADER_SIZE:] == batch[HEADER_SIZE:]


def test_a_delta_beyond_64_bits_wraps_around_as_in_kafka() -> None:
    records = [Record(0, -(2**63), None, None), Record(1, 2**63 - 1, None, None)]
    assert list(read_records(build_batch(records, base_offset=0), max_bytes=MAX)) == records


def test_reading_decompresses_at_once_and_not_beyond_the_bound() -> None:
    batch = build_batch([Record(0, 0, None, bytes(5000))], base_offset=0, codec=Codec.ZSTD)
    with pytest.raises(CorruptBatch):
        read_records(batch, max_bytes=5000)
    plain = build_batch([Record(0, 0, None, bytes(5000))], base_offset=0)
    with pytest.raises(CorruptBatch):
        read_records(plain, max_bytes=5000)


@pytest.mark.parametrize("offsets", [[], [4], [5, 5], [6, 5], [5, 5 + 2**31]])
def test_building_refuses_offsets_that_do_not_fit(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="batch"):
        build_batch([Record(offset, 0, None, None) for offset in offsets], base_offset=5)


GOOD_BODY = b"\x00\x00\x00\x01\x01\x00"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x0c" + GOOD_BODY[:-1],
        b"\x0c" + GOOD_BODY + b"\x00",
        b"\x0a" + GOOD_BODY,
        b"\x0e" + GOOD_BODY,
        b"\x0d" + GOOD_BODY,
        b"\xfe\xff\xff\xff\x0f" + GOOD_BODY,
        b"\x0c\x00\x00\x02\x01\x01\x00",
        b"\x0c\x00\x00\x01\x01\x01\x00",
        b"\x0c\x00\x00\x00\x02\x01\x00",
        b"\x14\x00\x00\x00\xfe\xff\xff\xff\x0f\x01\x00",
        b"\x0c\x00\x00\x00\x01\x01\x01",
        b"\x0c\x00\x00\x00\x01\x01\x02",
        b"\x14\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f",
        b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",
        b"\x0c" + b"\xff" * 12,
    ],
)
def test_records_that_break_the_format_are_refused(data: bytes) -> None:
    assert list(read_records(batch_of(b"\x0c" + GOOD_BODY), max_bytes=MAX)) == [Record(0, 0, None, None)]
    with pytest.raises(CorruptBatch):
        list(read_records(batch_of(data), max_bytes=MAX))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x0c" + GOOD_BODY[:-1],
        b"\x0c" + GOOD_BODY + b"\x00",
        b"\x0e" + GOOD_BODY,
        b"\xfe\xff\xff\xff\x0f" + GOOD_BODY,
        # A key that ends at the end of the record leaves no room for a value.
        b"\x0c\x00\x00\x00\x04kk",
        b"\x0c\x00\x00\x00\xfe\xff\xff\xff\x0f",
        b"\x0c" + b"\xff" * 12,
    ],
)
def test_the_search_for_keys_refuses_records_that_do_not_fit_in_their_batch(data: bytes) -> None:
    assert records_without_key(batch_of(b"\x0c" + GOOD_BODY), max_bytes=MAX) == [0]
    with pytest.raises(CorruptBatch):
        records_without_key(batch_of(data), max_bytes=MAX)


@given(record_lists(), st.sampled_from(Codec))
def test_records_without_a_key_are_the_same_as_found_by_reading_all(records: list[Record], codec: Codec) -> None:
    batch = build_batch(records, base_offset=records[0].offset, codec=codec)
    expected = [place for place, record in enumerate(records) if record.key is None]
    assert records_without_key(batch, max_bytes=MAX) == expected


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [-1, -(2**31), 0, 1, 3, 2**31 - 1])
def test_a_wrong_record_count_is_refused(count: int, codec: Codec) -> None:
    two = (b"\x0c" + GOOD_BODY) + (b"\x0c\x00\x00\x02\x01\x01\x00")
    batch = batch_of(compress(codec, two), count=count, last_delta=max(count, 2) - 1, attributes=codec)
    with pytest.raises(CorruptBatch):
        list(read_records(batch, max_bytes=MAX))
    with pytest.raises(CorruptBatch):
        largest_timestamp(batch, max_bytes=MAX)


@pytest.mark.parametrize("count", [-1, 3, 2**31 - 1])
def test_an_impossible_record_count_is_refused_before_decoding(count: int) -> None:
    with pytest.raises(CorruptBatch, match="do not fit"):
        read_records(batch_of(b"" if count < 0 else bytes(20), count=count, last_delta=5), max_bytes=MAX)


def test_look_ups_refuse_a_record_that_extends_into_the_next() -> None:
    reaching = bytes.fromhex("020016000002") + bytes(8)
    with pytest.raises(CorruptBatch, match="ends at"):
        largest_timestamp(batch_of(reaching, count=2, last_delta=1), max_bytes=MAX)


def test_a_batch_emptied_by_compaction_has_no_records() -> None:
    empty = batch_of(b"", count=0, last_delta=5)
    assert list(read_records(empty, max_bytes=MAX)) == []
    assert largest_timestamp(empty, max_bytes=MAX) is None
    assert first_at_or_after(empty, -5, max_bytes=MAX) is None


@pytest.mark.parametrize("codec", Codec)
def test_first_at_or_after_finds_the_record_inside_the_batch(codec: Codec) -> None:
    batch = build_batch(RECORDS, base_offset=10, codec=codec)
    found = [first_at_or_after(batch, at, max_bytes=MAX) for at in (0, 500, 501, 900, 901)]
    assert found == [(10, 500), (10, 500), (11, 900), (11, 900), None]
    assert first_at_or_after(batch, 600, min_offset=12, max_bytes=MAX) == (13, 700)
    assert first_at_or_after(batch, 0, min_offset=15, max_bytes=MAX) is None


@pytest.mark.parametrize("codec", Codec)
def test_largest_timestamp_finds_its_first_record(codec: Codec) -> None:
    batch = build_batch(RECORDS, base_offset=10, codec=codec)
    assert largest_timestamp(batch, max_bytes=MAX) == (11, 900)
    assert largest_timestamp(batch, min_offset=12, max_bytes=MAX) == (14, 900)
    assert largest_timestamp(batch, min_offset=15, max_bytes=MAX) is None


def test_look_ups_in_log_append_time_use_the_batchs_time() -> None:
    batch = with_log_append_time(build_batch(RECORDS, base_offset=10), 5000)
    assert first_at_or_after(batch, 4000, min_offset=11, max_bytes=MAX) == (11, 5000)
    assert first_at_or_after(batch, 5001, max_bytes=MAX) is None
    assert largest_timestamp(batch, max_bytes=MAX) == (10, 5000)


@given(record_lists(), int64, st.sampled_from([Codec.NONE, Codec.LZ4]))
def test_look_ups_agree_with_reading_all_records(records: list[Record], at: int, codec: Codec) -> None:
    batch = build_batch(records, base_offset=records[0].offset, codec=codec)
    middle = records[len(records) // 2].offset
    late = [(r.offset, r.timestamp) for r in records if r.timestamp >= at and r.offset >= middle]
    assert first_at_or_after(batch, at, min_offset=middle, max_bytes=MAX) == (late[0] if late else None)
    best = max(records, key=lambda r: r.timestamp)
    assert largest_timestamp(batch, max_bytes=MAX) == (best.offset, best.timestamp)


def test_a_batch_that_is_older_by_its_header_is_not_decompressed() -> None:
    header = peek(build_batch(RECORDS, base_offset=10, codec=Codec.GZIP))
    hollow = pack_header(header._replace(batch_length=struct.calcsize(">q") + 49)) + b"not gzip"
    assert first_at_or_after(hollow, 901, max_bytes=MAX) is None
    with pytest.raises(CorruptBatch):
        first_at_or_after(hollow, 900, max_bytes=MAX)
