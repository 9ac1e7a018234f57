"""Stored batches are decoded to the rows of Spark's Kafka source, and of reading record by record."""

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.errors import CorruptData
from kafscale.records.batch import peek_one
from kafscale.records.codecs import Codec, decompress
from kafscale.records.record import Record, build_batch
from kafscale_spark.decode import Decoder, Limits
from kafscale_spark.packed import Unpacker
from kafscale_spark.pieces import Piece, Wanted
from kafscale_spark.schema import COLUMNS, schema_of
from tests.support.golden_records import LARGE, SMALL, golden
from tests.support.judge import Judge, newest
from tests.unit.spark.logs import PARTITION, SOURCE, Log, aborted, append_time, by_kafka, decoded, logs, sealed

many = settings(max_examples=60)


@many
@given(logs())
def test_rows_equal_those_of_the_record_reader(log: Log) -> None:
    assert decoded(log.piece) == log.expected()


@many
@given(logs(), st.data())
def test_rows_are_limited_to_ranges_of_offsets_and_timestamps(log: Log, data: st.DataObject) -> None:
    start, end = sorted(data.draw(st.tuples(*[st.integers(log.first_offset - 1, log.end_offset + 1)] * 2)))
    times = [row["timestamp"] // 1000 for row in log.expected()] or [0]
    near = st.none() | st.sampled_from(times) | st.sampled_from(times).map(lambda time: time + 1)
    wanted = Wanted(start, end, data.draw(near), data.draw(near))
    assert decoded(log.piece, wanted=wanted) == log.expected(wanted)


@many
@given(
    logs(),
    st.lists(st.sampled_from(COLUMNS.names), min_size=1, unique=True),
    st.integers(1, 6),
    st.integers(1, 2000),
)
def test_record_batches_have_the_requested_columns_and_limited_sizes(
    log: Log, columns: list[str], rows: int, arrow_bytes: int
) -> None:
    limits = Limits(rows=rows, arrow_bytes=arrow_bytes)
    expected = [{name: row[name] for name in columns} for row in log.expected()]
    assert decoded(log.piece, columns=columns, limits=limits) == expected


def test_pieces_are_combined_into_one_record_batch() -> None:
    batches = [build_batch([Record(n, n, None, b"v")], base_offset=n) for n in range(50)]
    decoder = Decoder(PARTITION, ["offset", "value"], limits=Limits(rows=20))
    found = [made for n, batch in enumerate(batches) for made in decoder.feed(Piece(batch, SOURCE, n))]
    found += decoder.finish()
    assert [made.num_rows for made in found] == [20, 20, 10]
    assert pa.Table.from_batches(found).column("offset").to_pylist() == list(range(50))
    assert list(decoder.finish()) == []


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_of_the_java_client_are_decoded(codec: str) -> None:
    for size, records in (("small", SMALL), ("large", LARGE)):
        if (codec, size) == ("none", "large"):
            continue
        rows = decoded(Piece(golden(f"java-{codec}-{size}"), SOURCE, 0))
        assert [(row["offset"], row["timestamp"] // 1000, row["key"], row["value"]) for row in rows] == [
            tuple(record[:4]) for record in records
        ]
        assert [tuple((header["key"], header["value"]) for header in row["headers"] or ()) for row in rows] == [
            record.headers for record in records
        ]


def test_timestamps_beyond_the_range_of_microseconds_are_null() -> None:
    records = [Record(n, time, None, None) for n, time in enumerate((2**63 - 1, -(2**63), -1, 0, 5))]
    rows = decoded(Piece(build_batch(records, base_offset=0), SOURCE, 0), columns=["timestamp"])
    assert [row["timestamp"] for row in rows] == [None, None, -1000, 0, 5000]


def test_header_keys_that_are_not_utf_8_are_decoded_as_by_kafkas_clients() -> None:
    record = Record(0, 0, None, None, (("\udcff\udcfea", b"1"), ("é", b"2")))
    rows = decoded(Piece(build_batch([record], base_offset=0), SOURCE, 0), columns=["headers"])
    assert [header["key"] for header in rows[0]["headers"]] == ["\ufffd\ufffda", "é"]


def test_a_batch_above_the_size_limit_is_refused() -> None:
    packed = build_batch([Record(0, 0, None, bytes(100_000))], base_offset=0, codec=Codec.ZSTD)
    with pytest.raises(Exception, match="offset 0 in"):
        decoded(Piece(packed, SOURCE, 0), limits=Limits(batch_bytes=50_000))


def _zstd(data: bytes, *, sized: bool) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=sized, write_checksum=sized).compress(data)


@pytest.mark.parametrize(
    "packed",
    [
        _zstd(b"ab" * 50, sized=True),
        _zstd(b"ab" * 50, sized=False),
        _zstd(b"ab", sized=True) + _zstd(b"cd", sized=False),
        _zstd(b"ab", sized=False) + _zstd(b"cd", sized=False),
        _zstd(b"ab" * 50, sized=False) + _zstd(b"cd", sized=True),
        _zstd(b"", sized=True) + _zstd(b"cd", sized=True),
        _zstd(bytes(3_000_000), sized=True),
        _zstd(bytes(3_000_000), sized=False),
        _zstd(bytes(4_000_001), sized=True),
        _zstd(bytes(4_000_001), sized=False),
        _zstd(b"ab" * 50, sized=True)[:-1],
        _zstd(b"ab" * 50, sized=False) + b"x",
        b"\x50\x2a\x4d\x18\x01\x00\x00\x00x" + _zstd(b"cd", sized=True),
        b"",
    ],
)
def test_zstd_is_decompressed_as_by_the_codecs(packed: bytes) -> None:
    try:
        expected = decompress(Codec.ZSTD, packed, 4_000_000)
    except CorruptData:
        with pytest.raises(CorruptData):
            Unpacker(4_000_000).unpack(Codec.ZSTD, packed)
    else:
        assert Unpacker(4_000_000).unpack(Codec.ZSTD, packed) == expected


@pytest.mark.parametrize("columns", [[], ["keys"], ["key", "key"]])
def test_unknown_columns_are_refused(columns: list[str]) -> None:
    with pytest.raises(ValueError, match="one or more of"):
        schema_of(columns)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Judge]:
    with newest() as judge:
        yield judge


def test_records_of_aborted_transactions_are_returned_but_not_their_markers(kafka: Judge) -> None:
    """Like consumers that read uncommitted records, the default of all, including Spark's Kafka source."""
    data = aborted(build_batch([Record(n, n, None, b"v") for n in range(3)], base_offset=0))
    data += build_batch([Record(4, 4, None, b"w")], base_offset=4)
    rows = decoded(Piece(data, SOURCE, 0))
    assert [row["offset"] for row in rows] == [0, 1, 2, 4]
    assert rows == by_kafka(kafka, data)


def test_decoding_equals_that_of_kafka_clients(kafka: Judge) -> None:
    @settings(max_examples=60)
    @given(logs())
    def equal(log: Log) -> None:
        assert decoded(log.piece) == by_kafka(kafka, log.data)

    equal()


@pytest.mark.parametrize("codec", Codec)
def test_values_of_900_kb_and_header_keys_of_any_bytes_equal_those_of_kafka_clients(kafka: Judge, codec: Codec) -> None:
    large = random.Random(codec).randbytes(90_000) * 10
    headers = (("\udcff\udcfe", None), ("a\udc80b", b"2"), ("", b""))
    records = [Record(3, -1, b"", large, headers), Record(5, -(10**12), None, b""), Record(9, 10**12, large, None)]
    data = build_batch(records, base_offset=3, codec=codec)
    header = peek_one(data)
    stamped = sealed(append_time(header._replace(base_offset=10)), data[61:])
    piece = Piece(data + stamped, SOURCE, 3)
    assert decoded(piece) == by_kafka(kafka, data + stamped)
    assert [row["timestamp"] for row in decoded(piece)][3:] == [10**15] * 3


def test_a_row_larger_than_a_record_batch_gets_its_own() -> None:
    sizes = [10, 5000, 10, 10]
    batch = build_batch([Record(n, 0, None, bytes(size)) for n, size in enumerate(sizes)], base_offset=0)
    decoder = Decoder(PARTITION, ["value"], limits=Limits(arrow_bytes=1000))
    found = [*decoder.feed(Piece(batch, SOURCE, 0)), *decoder.finish()]
    assert [made.num_rows for made in found] == [1, 1, 2]
