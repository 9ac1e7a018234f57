"""For any bytes, public functions raise only CorruptData, and every call ends."""

import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.errors import CorruptData
from kafscale.records import batch as batches
from kafscale.records.codecs import Codec, compress, decompress
from kafscale.records.legacy import upconvert
from kafscale.records.lz4_frame import with_right_header_checksum
from kafscale.records.record import build_batch, compress_batch, first_at_or_after, largest_timestamp, read_records
from tests.support.golden_records import HERE, SMALL
from tests.support.strategies.mutated import mutated
from tests.support.strategies.records import int32, int64, message

MAX = 1 << 16
BATCHES = [path.read_bytes() for path in sorted(HERE.glob("*-small.bin")) if "magic" not in path.name]
MESSAGE_SETS = [path.read_bytes() for path in sorted(HERE.glob("*magic*-small.bin"))]
PLAIN_RECORDS = build_batch(SMALL, base_offset=0)[batches.HEADER_SIZE :]
PLAIN_MESSAGES = [
    b"".join(message(r.value, key=r.key, magic=magic, timestamp=r.timestamp) for r in SMALL) for magic in (0, 1)
]

FUNCTIONS: dict[str, Callable[[bytes], object]] = {
    "magic_at": batches.magic_at,
    "peek": batches.peek,
    "peek_one": batches.peek_one,
    "codec": lambda data: batches.peek(data).codec,
    "walk": lambda data: list(batches.walk(data)),
    "verify_crc": lambda data: batches.verify_crc(data, 0, batches.peek(data)),
    "check_produced": lambda data: batches.check_produced(batches.peek(data)),
    "placed_prefix": lambda data: batches.placed_prefix(batches.peek(data), 1, 2),
    "with_log_append_time": lambda data: batches.with_log_append_time(data, 3),
    "read_records": lambda data: list(read_records(data, max_bytes=MAX)),
    "first_at_or_after": lambda data: first_at_or_after(data, 0, max_bytes=MAX),
    "largest_timestamp": lambda data: largest_timestamp(data, max_bytes=MAX),
    "upconvert": lambda data: upconvert(data, now_ms=1, max_bytes=MAX),
    "with_right_header_checksum": with_right_header_checksum,
    **{f"decompress {codec.name}": lambda data, codec=codec: decompress(codec, data, MAX) for codec in Codec},  # type: ignore[misc]
    **{f"compress_batch {codec.name}": lambda data, codec=codec: compress_batch(data, codec) for codec in Codec},  # type: ignore[misc]
}


def exercise(data: bytes) -> None:
    for name, function in FUNCTIONS.items():
        try:
            result = function(data)
        except CorruptData:
            continue
        if name.startswith("decompress"):
            assert isinstance(result, bytes)
            assert len(result) <= MAX


many = settings(max_examples=300)


@many
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    exercise(data)


@many
@given(mutated(BATCHES + MESSAGE_SETS))
def test_damaged_record_sets(data: bytes) -> None:
    exercise(data)


@many
@given(mutated([data[batches.HEADER_SIZE :] for data in BATCHES]), st.sampled_from(Codec))
def test_damaged_compressed_data(data: bytes, codec: Codec) -> None:
    exercise(data)
    exercise(wrapped_batch(data, codec, len(SMALL), len(SMALL) - 1))
    if codec is not Codec.NONE:
        exercise(message(data, magic=1, attributes=codec) + message(data, magic=0, attributes=codec))


@many
@given(mutated([PLAIN_RECORDS]), st.sampled_from(Codec), int32 | st.integers(0, 10), int32 | st.integers(0, 10))
def test_damaged_records_inside_a_sound_batch(data: bytes, codec: Codec, count: int, last_delta: int) -> None:
    exercise(wrapped_batch(compress(codec, data), codec, count, last_delta))
    exercise(wrapped_batch(compress(codec, data), codec, len(SMALL), len(SMALL) - 1))


@many
@given(mutated(PLAIN_MESSAGES), st.sampled_from([Codec.GZIP, Codec.SNAPPY, Codec.LZ4]), st.sampled_from([0, 1]))
def test_damaged_messages_inside_a_sound_message(data: bytes, codec: Codec, magic: int) -> None:
    exercise(data)
    exercise(message(compress(codec, data), magic=magic, attributes=codec))


@many
@given(st.binary(max_size=60), st.integers(-1, 3), st.integers(-128, 127))
def test_sound_messages_with_any_content(content: bytes, magic: int, attributes: int) -> None:
    body = struct.pack(">bb", magic, attributes) + content
    exercise(struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body)


@many
@given(st.tuples(int64, int32, int64, int64, int64, st.integers(-(2**15), 2**15 - 1), int32, int32), st.data())
def test_sound_records_under_any_header(numbers: tuple[int, ...], data: st.DataObject) -> None:
    base, epoch, first, largest, producer, small, sequence, count = numbers
    last_delta = data.draw(int32)
    header = batches.BatchHeader(
        base, 49 + len(PLAIN_RECORDS), epoch, 2, 0, small, last_delta, first, largest, producer, small, sequence, count
    )
    exercise(batches.pack_header(header) + PLAIN_RECORDS)


def wrapped_batch(records: bytes, codec: Codec, count: int, last_delta: int) -> bytes:
    """A batch with correct length and CRC around any ``records``."""
    header = batches.BatchHeader(0, 0, -1, 2, 0, codec, last_delta, 0, 2**62, -1, -1, -1, count)
    out = bytearray(batches.pack_header(header) + records)
    batches.seal(out)
    return bytes(out)


@pytest.mark.parametrize("source", BATCHES + MESSAGE_SETS)
def test_every_truncation(source: bytes) -> None:
    for length in range(len(source)):
        exercise(source[:length])
