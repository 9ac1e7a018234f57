"""Torn and damaged ranges result in an error that names topic, partition, offset and object, or in the same rows."""

import struct
from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.errors import CorruptData
from kafscale.records.batch import HEADER_SIZE, BatchHeader, peek_one, walk
from kafscale.records.codecs import Codec, compress
from kafscale.records.record import Record, build_batch, read_records
from kafscale.records.varint import append_varint
from kafscale_spark.decode import Decoder, Limits
from kafscale_spark.pieces import Piece
from tests.support.golden_records import SMALL
from tests.support.strategies.mutated import mutated
from tests.unit.spark.logs import MAX_BYTES, PARTITION, SOURCE, Log, decoded, logs, sealed

PLAIN = build_batch(SMALL, base_offset=0)[HEADER_SIZE:]
LENGTHS = [0, 1, -1, -2, 2**31 - 1, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63)]


def _log() -> Log:
    parts = []
    for base, codec in ((100, Codec.NONE), (108, Codec.SNAPPY), (116, Codec.ZSTD)):
        records = [record._replace(offset=base + record.offset) for record in SMALL]
        parts.append(build_batch(records, base_offset=base, codec=codec, leader_epoch=3))
    return Log(b"".join(parts), 100, 124, gaps=False)


def test_every_damaged_byte_causes_an_error_or_changes_nothing() -> None:
    log = _log()
    expected = log.expected()
    starts = [position for position, _ in walk(log.data)]
    harmless = 0
    for position in range(len(log.data)):
        offset = 100 + 8 * (bisect_right(starts, position) - 1)
        for flip in (1 << position % 8, 0xFF):
            data = bytearray(log.data)
            data[position] ^= flip
            try:
                assert decoded(Piece(bytes(data), SOURCE, 100, epoch=3)) == expected
                harmless += 1
            except CorruptData as error:
                assert f"topic orders, partition 7, offset {offset} in {SOURCE}: " in str(error)  # noqa: PT017
    assert harmless == 0


@pytest.mark.parametrize("damaged", [(0,), (255,), (256, 599), (300, 302), (599,)])
def test_batches_before_the_first_damaged_one_are_read(damaged: tuple[int, ...]) -> None:
    batches = [bytearray(build_batch([Record(base, 0, None, b"some")], base_offset=base)) for base in range(600)]
    for number in damaged:
        batches[number][-1] ^= 1
    decoder = Decoder(PARTITION, ["offset"], limits=Limits(rows=1))
    found: list[int] = []
    with pytest.raises(CorruptData, match=f"^topic orders, partition 7, offset {damaged[0]} in {SOURCE}: .*CRC"):
        found.extend(row["offset"][0].as_py() for row in decoder.feed(Piece(b"".join(batches), SOURCE, 0)))
    found.extend(row["offset"][0].as_py() for row in decoder.finish())
    assert found == list(range(damaged[0]))


def test_every_truncation_causes_an_error() -> None:
    log = _log()
    sizes = [0]
    while sizes[-1] < len(log.data):
        sizes.append(sizes[-1] + peek_one_at(log.data, sizes[-1]).size)
    for end in range(1, len(log.data)):
        piece = Piece(log.data[:end], SOURCE, 100)
        if end in sizes:
            assert len(decoded(piece)) == 8 * sizes.index(end)
            continue
        offset = 100 + 8 * sum(size <= end for size in sizes[1:])
        with pytest.raises(CorruptData, match=f"^topic orders, partition 7, offset {offset} in {SOURCE}: "):
            decoded(piece)


def peek_one_at(data: bytes, position: int) -> BatchHeader:
    size = 12 + struct.unpack_from(">i", data, position + 8)[0]
    return peek_one(data[position : position + size])


def test_a_gap_between_batches_is_an_error_unless_gaps_are_allowed() -> None:
    parts = [build_batch([Record(n, 0, None, b"v")], base_offset=n) for n in (5, 6, 8)]
    holed = b"".join(parts)
    with pytest.raises(CorruptData, match=r"offset 7 in .*begins at offset 8, but 7 is next"):
        decoded(Piece(holed, SOURCE, 5))
    with pytest.raises(CorruptData, match=r"offset 4 in .*begins at offset 5, but 4 is next"):
        decoded(Piece(holed, SOURCE, 4, gaps=True))
    assert [row["offset"] for row in decoded(Piece(holed, SOURCE, 5, gaps=True))] == [5, 6, 8]
    with pytest.raises(CorruptData, match=r"offset 9 in .*begins at offset 8, but 9 is next"):
        decoded(Piece(holed + parts[-1], SOURCE, 5, gaps=True))


def _read(batch: bytes) -> list[Record] | None:
    """Read with the Python reader. Return None for damage."""
    try:
        return list(read_records(batch, max_bytes=MAX_BYTES))
    except CorruptData:
        return None


def _agree(batch: bytes) -> None:
    header = peek_one(batch)
    if header.is_control or header.record_count == 0 or header.last_offset_delta < 0 or header.record_count < 0:
        return
    expected = _read(batch)
    piece = Piece(batch, SOURCE, header.base_offset)
    if expected is None:
        with pytest.raises(CorruptData, match=f"offset {header.base_offset} in {SOURCE}"):
            decoded(piece)
    else:
        rows = decoded(piece)
        assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
            (record.offset, record.key, record.value) for record in expected
        ]
        assert [len(row["headers"] or ()) for row in rows] == [len(record.headers) for record in expected]


def _wrapped(records: bytes, codec: Codec, count: int, last_delta: int) -> bytes:
    header = BatchHeader(0, 0, 3, 2, 0, codec, last_delta, 0, 2**62, -1, -1, -1, count)
    return sealed(header, compress(codec, records))


@settings(max_examples=200)
@given(mutated([PLAIN]), st.sampled_from(Codec), st.integers(1, 10), st.integers(0, 10))
def test_damage_below_a_correct_checksum_is_handled_as_by_the_record_reader(
    records: bytes, codec: Codec, count: int, last_delta: int
) -> None:
    _agree(_wrapped(records, codec, count, last_delta))
    _agree(_wrapped(records, codec, len(SMALL), len(SMALL) - 1))


def test_changed_bytes_below_a_correct_checksum_are_read_as_by_the_record_reader() -> None:
    for position in range(len(PLAIN)):
        for value in (0, 0x7F, 0x80, 0xFF):
            records = bytearray(PLAIN)
            records[position] = value
            _agree(_wrapped(bytes(records), Codec.NONE, len(SMALL), len(SMALL) - 1))


@pytest.mark.parametrize("field", range(7))
@pytest.mark.parametrize("number", LENGTHS)
def test_no_length_or_count_leads_out_of_bounds(field: int, number: int) -> None:
    # length, timestamp delta, offset delta, key, value, header count, header key
    numbers = [0, 0, 0, 0, 0, 1, 0]
    numbers[field] = number
    body = bytearray(b"\x00")
    for value in numbers[1:]:
        append_varint(body, value)
    append_varint(body, -1)
    record = bytearray()
    append_varint(record, len(body) if field else number)
    _agree(_wrapped(bytes(record + body), Codec.NONE, 1, 0))


def _with_timestamp_delta(varint: str) -> bytes:
    body = b"\x00" + bytes.fromhex(varint) + b"\x00\x01\x01\x00"
    return _wrapped(bytes([2 * len(body)]) + body, Codec.NONE, 1, 0)


@pytest.mark.parametrize("varint", ["ff" * 9 + "02", "ff" * 9 + "80", "ff" * 10 + "01"])
def test_varints_of_more_than_64_bits_are_refused(varint: str) -> None:
    with pytest.raises(CorruptData, match="a varint is longer than 64 bits"):
        decoded(Piece(_with_timestamp_delta(varint), SOURCE, 0))


@pytest.mark.parametrize("varint", ["ff" * 9 + "01", "80" * 9 + "00"])
def test_varints_of_ten_bytes_can_have_64_bits(varint: str) -> None:
    batch = _with_timestamp_delta(varint)
    assert _read(batch) is not None
    _agree(batch)


@settings(max_examples=60)
@given(logs(gaps=False), st.data())
def test_any_damage_causes_an_error_or_changes_nothing(log: Log, data: st.DataObject) -> None:
    damaged = bytearray(log.data)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    piece = Piece(bytes(damaged), SOURCE, log.first_offset)
    try:
        rows = decoded(piece)
    except CorruptData:
        return
    assert rows == log.expected()
