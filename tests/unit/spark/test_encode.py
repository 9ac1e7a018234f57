"""Rows are encoded to batches that Kafka's clients and our decoder read back, in the partitions that Kafka chooses."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.records.batch import peek_one, verify_crc, walk
from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch
from kafscale_spark.encode import Encoder, Memory, RecordTooLarge
from kafscale_spark.pieces import Piece
from kafscale_spark.schema import HEADER_TYPE
from tests.support.judge import Judge, newest
from tests.unit.spark.logs import PARTITION, SOURCE, by_kafka, decoded

MAX_BYTES = 1_048_588
NOW = 1_700_000_000_000
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(HEADER_TYPE)),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("partition", pa.int32()),
    ]
)

_bytes = st.none() | st.binary(max_size=40) | st.binary(max_size=3).map(lambda some: some * 200)
_headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=8), "value": st.none() | st.binary(max_size=12)}), max_size=3
)


@st.composite
def rows(draw: st.DrawFn, partitions: int) -> list[dict[str, Any]]:
    one = st.fixed_dictionaries(
        {
            "key": _bytes,
            "value": _bytes,
            "headers": _headers,
            "timestamp": st.none() | st.integers(0, 2**52) | st.integers(NOW * 1000, NOW * 1000 + 10**6),
            "partition": st.none() | st.integers(0, partitions - 1),
        }
    )
    return draw(st.lists(one, max_size=40))


def _arrow(given_rows: list[dict[str, Any]], *, sliced: bool = False) -> list[pa.RecordBatch]:
    """Return the rows as one RecordBatch, or as a slice of a longer one and an empty one."""
    made = pa.RecordBatch.from_pylist(given_rows, schema=SCHEMA)
    if not sliced:
        return [made]
    extra = pa.RecordBatch.from_pylist([{"key": b"x", "value": b"y" * 9, "headers": [{"key": "z"}]}], schema=SCHEMA)
    joined = pa.Table.from_batches([extra, made, extra]).combine_chunks().to_batches()[0]
    return [joined.slice(1, made.num_rows), made.slice(0, 0)]


def _encoded(encoder: Encoder, batches: list[pa.RecordBatch]) -> dict[int, bytes]:
    """Return all chunks by partition. Checks that every batch is valid, begins at 0 and is accepted by brokers."""
    found: dict[int, bytes] = {}
    chunks = [chunk for batch in batches for chunk in encoder.feed(batch)]
    for _, partition, data, count in [*chunks, *encoder.finish()]:
        total = 0
        for position, header in walk(data):
            verify_crc(data, position, header)
            assert (header.base_offset, header.producer_id, header.leader_epoch) == (0, -1, -1)
            assert header.last_offset_delta == header.record_count - 1
            total += header.record_count
        assert total == count > 0
        found[partition] = found.get(partition, b"") + data
    return found


def _logged(data: bytes) -> bytes:
    """Return the batches with consecutive offsets, as an owner appends them."""
    out, offset = bytearray(data), 0
    for position, header in walk(data):
        out[position : position + 8] = offset.to_bytes(8, "big")
        offset += header.record_count
    return bytes(out)


def _expected(given_rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "key": row["key"],
            "value": row["value"],
            "topic": PARTITION.topic,
            "partition": PARTITION.number,
            "offset": offset,
            "timestamp": (NOW if row["timestamp"] is None else row["timestamp"] // 1000) * 1000,
            "timestampType": 0,
            "headers": row["headers"] or None,
        }
        for offset, row in enumerate(given_rows)
    ]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Judge]:
    with newest() as judge:
        yield judge


def _encoder(count: int, **options: Any) -> Encoder:
    usual: dict[str, Any] = {"memory": Memory(64 << 20), "max_message_bytes": MAX_BYTES, "clock": lambda: NOW}
    return Encoder("orders", count, **(usual | options))


def test_kafka_clients_and_the_decoder_read_the_encoded_rows(kafka: Judge) -> None:
    @settings(max_examples=60)
    @given(rows(3), st.sampled_from(Codec), st.sampled_from([200, 1000, 1 << 20]), st.booleans())
    def equal(given_rows: list[dict[str, Any]], codec: Codec, batch_bytes: int, sliced: bool) -> None:
        encoder = _encoder(3, compression=codec, batch_bytes=batch_bytes, chunk_bytes=2 * batch_bytes)
        found = _encoded(encoder, _arrow(given_rows, sliced=sliced))
        left = {partition: [row for row in given_rows if row["partition"] == partition] for partition in range(3)}
        for row in given_rows:
            if row["partition"] is None and row["key"] is not None:
                left[kafka.partition(row["key"], 3)].append(row)
        free = [row for row in given_rows if row["partition"] is None and row["key"] is None]
        seen = 0
        for partition, data in found.items():
            read = decoded(Piece(_logged(data), SOURCE, 0))
            assert read == by_kafka(kafka, _logged(data))
            order = {id(row): at for at, row in enumerate(given_rows)}
            mine = sorted(left[partition], key=lambda row: order[id(row)])
            if free:
                assert len(read) >= len(mine)
            else:
                assert read == _expected(mine)
            seen += len(read)
        assert seen == len(given_rows)

    equal()


@settings(max_examples=60)
@given(rows(1), st.sampled_from(Codec), st.sampled_from([100, 1000, 1 << 20]))
def test_rows_of_a_partition_keep_their_order(given_rows: list[dict[str, Any]], codec: Codec, batch_bytes: int) -> None:
    found = _encoded(_encoder(1, compression=codec, batch_bytes=batch_bytes), _arrow(given_rows))
    read = [row for data in found.values() for row in decoded(Piece(_logged(data), SOURCE, 0))]
    assert read == _expected(given_rows)


def test_a_batch_equals_that_of_the_record_writer() -> None:
    records = [Record(n, NOW + 7 * n, None if n % 3 == 0 else b"k%d" % n, b"v" * n) for n in range(300)]
    given_rows = [{"key": r.key, "value": r.value, "timestamp": r.timestamp * 1000} for r in records]
    assert _encoded(_encoder(1), _arrow(given_rows)) == {0: build_batch(records, base_offset=0)}


def test_keys_go_to_the_partition_that_kafkas_producer_chooses(kafka: Judge) -> None:
    @settings(max_examples=200)
    @given(st.lists(st.binary(max_size=70), min_size=1, max_size=20), st.integers(1, 2000))
    def equal(keys: list[bytes], count: int) -> None:
        given_rows = [{"key": key, "value": b"%d" % number} for number, key in enumerate(keys)]
        found = _encoded(_encoder(count, memory=Memory(1 << 20)), _arrow(given_rows))
        went = {int(row["value"]): p for p, data in found.items() for row in decoded(Piece(_logged(data), SOURCE, 0))}
        assert went == {number: kafka.partition(key, count) for number, key in enumerate(keys)}

    equal()


def test_rows_without_a_key_are_spread_evenly_for_any_input_order() -> None:
    given_rows = [{"value": bytes(90)}] * 5000
    whole = _encoded(_encoder(4, batch_bytes=2000, seed=6), _arrow(given_rows))
    parts = [_arrow(given_rows[at : at + 7])[0] for at in range(0, 5000, 7)]
    assert whole == _encoded(_encoder(4, batch_bytes=2000, seed=6), parts)
    counts = {partition: sum(header.record_count for _, header in walk(data)) for partition, data in whole.items()}
    assert sum(counts.values()) == 5000
    assert len(counts) == 4
    assert max(counts.values()) - min(counts.values()) <= 22
    first = next(_encoder(4, batch_bytes=2000, chunk_bytes=1, seed=6).feed(_arrow(given_rows)[0]))
    assert first.partition == 2


def test_text_values_and_missing_columns_are_encoded() -> None:
    values = pa.array(["é", None, ""], pa.string())
    for rows_of in (
        pa.RecordBatch.from_arrays([values], ["value"]),
        pa.RecordBatch.from_arrays(
            [pa.nulls(3), values.cast(pa.large_string()), pa.nulls(3)], ["key", "value", "headers"]
        ),
    ):
        read = decoded(Piece(_encoded(_encoder(1), [rows_of])[0], SOURCE, 0))
        assert [(row["key"], row["value"], row["timestamp"]) for row in read] == [
            (None, value, NOW * 1000) for value in ("é".encode(), None, b"")
        ]


def test_memory_and_chunks_stay_within_their_limits() -> None:
    chance = random.Random(1)
    memory = Memory(4 << 20)
    encoder = _encoder(40, memory=memory, chunk_bytes=1 << 20)
    sizes = []
    for _ in range(30):
        given_rows = [{"key": b"%d" % chance.randrange(10**6), "value": bytes(1000)} for _ in range(2000)]
        for chunk in encoder.feed(_arrow(given_rows)[0]):
            sizes.append(len(chunk.data))
            assert memory.held_bytes <= 4 << 20
    assert max(sizes) < (1 << 20) + (64 << 10)
    assert max(header.size for chunk in encoder.finish() for _, header in walk(chunk.data)) <= (4 << 20) // 80


@pytest.mark.parametrize(("topics", "partitions"), [(20, 6), (30, 40)])
def test_all_topics_share_one_memory_limit(topics: int, partitions: int) -> None:
    size = 4 << 20
    memory = Memory(size)
    encoders = [
        Encoder(f"t{number}", partitions, memory=memory, max_message_bytes=MAX_BYTES, batch_bytes=128 << 10)
        for number in range(topics)
    ]
    given_rows = _arrow([{"key": b"%d" % number, "value": bytes(2000)} for number in range(1000)])[0]
    most, records = size + (topics * partitions << 14), Counter[str]()
    for encoder in encoders * 3:
        for chunk in encoder.feed(given_rows):
            records[chunk.topic] += chunk.records
            assert memory.held_bytes <= most
    assert memory.held_bytes <= most
    for encoder in encoders:
        for chunk in encoder.finish():
            records[chunk.topic] += chunk.records
    assert records == {f"t{number}": 3000 for number in range(topics)}


def test_the_largest_chunk_of_any_topic_is_sent_first() -> None:
    memory = Memory(1 << 20)
    first, second = (
        Encoder(name, 1, memory=memory, max_message_bytes=MAX_BYTES, batch_bytes=1 << 14) for name in ("x", "y")
    )
    large, small = _arrow([{"value": bytes(1000)}] * 400)[0], _arrow([{"value": bytes(1000)}] * 200)[0]
    assert list(first.feed(large)) == []
    assert [chunk.topic for chunk in second.feed(small)] == ["x"]


@pytest.mark.parametrize("codec", Codec)
def test_a_large_record_gets_its_own_batch_up_to_the_topics_limit(codec: Codec) -> None:
    value = random.Random(2).randbytes(300_000)
    given_rows = [{"value": b"a"}, {"value": value}, {"value": b"b"}]
    found = _encoded(_encoder(1, compression=codec, batch_bytes=1000), _arrow(given_rows))[0]
    assert [header.record_count for _, header in walk(found)] == [1, 1, 1]
    assert [row["value"] for row in decoded(Piece(_logged(found), SOURCE, 0))] == [b"a", value, b"b"]
    size = max(header.size for _, header in walk(found))
    assert _encoded(_encoder(1, compression=codec, batch_bytes=1000, max_message_bytes=size), _arrow(given_rows))
    with pytest.raises(
        RecordTooLarge, match=rf"^topic orders, partition 0: .* {size} bytes, but the topic allows {size - 1}$"
    ):
        _encoded(_encoder(1, compression=codec, max_message_bytes=size - 1), _arrow(given_rows))


def test_a_record_that_is_small_enough_when_compressed_is_accepted() -> None:
    found = _encoded(_encoder(1, compression=Codec.ZSTD), _arrow([{"value": bytes(5_000_000)}]))[0]
    assert peek_one(found).size < 10_000
    assert len(decoded(Piece(found, SOURCE, 0))[0]["value"]) == 5_000_000


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"value": b"v", "partition": 3}, "no partition 3 of 3"),
        ({"value": b"v", "partition": -1}, "no partition -1 of 3"),
        ({"value": b"v", "headers": [{"key": None, "value": b"1"}]}, "a header has no key"),
    ],
)
def test_rows_that_cannot_be_written_are_refused(row: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        _encoded(_encoder(3), _arrow([row]))


def test_rows_without_values_are_refused() -> None:
    with pytest.raises(ValueError, match="no column value"):
        _encoded(_encoder(1), [pa.RecordBatch.from_arrays([pa.array([b"k"])], ["key"])])
    with pytest.raises(TypeError, match="int64 is neither text nor bytes"):
        _encoded(_encoder(1), [pa.RecordBatch.from_arrays([pa.array([1])], ["value"])])
