import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.records.batch import check_produced, peek_one, verify_crc
from kafscale.records.codecs import Codec, compress
from kafscale.records.errors import CorruptBatch, InvalidRecord, InvalidTimestamp
from kafscale.records.legacy import upconvert
from kafscale.records.record import Record, read_records
from tests.support.strategies.records import int64, maybe_bytes, message

NOW = 1_700_000_000_000
MAX = 1 << 20
LEGACY_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def records_of(message_set: bytes) -> list[Record]:
    batch = upconvert(message_set, now_ms=NOW, max_bytes=MAX)
    header = peek_one(batch)
    verify_crc(batch, 0, header)
    check_produced(header)
    return list(read_records(batch, max_bytes=MAX))


def wrap(inner: bytes, codec: Codec, magic: int = 1) -> bytes:
    return message(compress(codec, inner), magic=magic, attributes=codec)


messages = st.lists(st.tuples(int64.filter(lambda at: at != -1), maybe_bytes, maybe_bytes), min_size=1, max_size=10)


@given(messages, st.sampled_from([0, 1]), st.sampled_from([Codec.NONE, *LEGACY_CODECS]))
def test_messages_become_records(plain: list[tuple[int, bytes, bytes]], magic: int, codec: Codec) -> None:
    inner = b"".join(message(value, key=key, magic=magic, timestamp=at) for at, key, value in plain)
    found = records_of(inner if codec is Codec.NONE else wrap(inner, codec, magic))
    assert found == [Record(i, at if magic else NOW, key, value) for i, (at, key, value) in enumerate(plain)]


def test_offsets_are_assigned_again_across_plain_and_compressed_messages() -> None:
    inner = message(b"b", offset=0) + message(b"c", offset=1)
    found = records_of(message(b"a", offset=7) + wrap(inner, Codec.GZIP) + message(b"d", offset=7, magic=0))
    assert [(record.offset, record.value) for record in found] == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_the_batch_keeps_the_codec_of_its_last_compressed_message(codec: Codec) -> None:
    first = wrap(message(b"a"), Codec.SNAPPY if codec is Codec.GZIP else Codec.GZIP)
    batch = upconvert(first + wrap(message(b"b" * 500), codec) + message(b"c"), now_ms=NOW, max_bytes=MAX)
    assert peek_one(batch).codec is codec


def test_messages_without_a_timestamp_get_the_time_of_their_arrival() -> None:
    assert [r.timestamp for r in records_of(message(b"a", magic=0) + message(b"b", timestamp=-1) + message(b"c"))] == [
        NOW,
        NOW,
        0,
    ]


@given(st.integers(12, 40), st.integers(1, 255))
def test_every_changed_byte_is_found(at: int, change: int) -> None:
    damaged = bytearray(message(b"value", key=b"key"))
    assert len(damaged) == 42
    damaged[at] ^= change
    with pytest.raises(CorruptBatch):
        upconvert(damaged, now_ms=NOW, max_bytes=MAX)


@pytest.mark.parametrize("magic", [0, 1])
def test_an_incomplete_message_is_refused(magic: int) -> None:
    whole = message(b"value", magic=magic)
    for length in range(1, len(whole)):
        with pytest.raises(CorruptBatch):
            upconvert(whole + whole[:length], now_ms=NOW, max_bytes=MAX)


def sealed(body: bytes) -> bytes:
    """A message with a hand-made body and a correct CRC."""
    return struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\x00",
        b"\x00\x00" + struct.pack(">ii", -1, 2**31 - 1),
        b"\x00\x00" + struct.pack(">ii", -1, 1),
        b"\x00\x00" + struct.pack(">ii", -1, -1) + b"x",
        b"\x00\x00" + struct.pack(">i", 2**31 - 1),
        b"\x01\x00" + struct.pack(">ii", -1, -1),
        b"\x02\x00" + struct.pack(">qii", 0, -1, -1),
        b"\xff\x00" + struct.pack(">qii", 0, -1, -1),
        b"\x00\x05" + struct.pack(">ii", -1, -1),
        b"\x00\x01" + struct.pack(">ii", -1, -1),
        b"\x00\x01" + struct.pack(">ii", -1, 3) + b"zip",
    ],
)
def test_messages_that_break_the_format_are_refused(body: bytes) -> None:
    with pytest.raises(CorruptBatch):
        upconvert(sealed(body), now_ms=NOW, max_bytes=MAX)


@pytest.mark.parametrize("size", [-(2**31), -13, -1, 0, 5, 2**31 - 1])
def test_a_wrong_size_is_refused(size: int) -> None:
    lie = bytearray(message(b"value"))
    struct.pack_into(">i", lie, 8, size)
    with pytest.raises(CorruptBatch, match="but the data at"):
        upconvert(lie, now_ms=NOW, max_bytes=MAX)


@pytest.mark.parametrize(
    "message_set",
    [
        b"",
        wrap(b"", Codec.GZIP),
        wrap(wrap(message(b"a"), Codec.GZIP), Codec.GZIP),
        wrap(message(b"a", magic=0), Codec.GZIP, magic=1),
        wrap(message(b"a", magic=1), Codec.GZIP, magic=0),
        message(compress(Codec.ZSTD, message(b"a")), attributes=Codec.ZSTD),
    ],
)
def test_messages_that_no_producer_may_send_are_refused(message_set: bytes) -> None:
    with pytest.raises(InvalidRecord):
        upconvert(message_set, now_ms=NOW, max_bytes=MAX)


def test_log_append_time_is_refused() -> None:
    with pytest.raises(InvalidTimestamp):
        upconvert(message(b"a", attributes=0x08), now_ms=NOW, max_bytes=MAX)


def test_the_bound_counts_all_compressed_messages_together() -> None:
    wrapped = wrap(message(bytes(1000)), Codec.GZIP)
    inner = len(message(bytes(1000)))
    assert len(list(read_records(upconvert(wrapped * 3, now_ms=NOW, max_bytes=3 * inner), max_bytes=MAX))) == 3
    with pytest.raises(CorruptBatch):
        upconvert(wrapped * 3, now_ms=NOW, max_bytes=3 * inner - 1)
