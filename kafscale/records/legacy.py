"""Conversion of message sets of magic 0 and 1, which Kafka clients wrote before 0.11, into a magic-2 batch.

Format: https://kafka.apache.org/documentation/#messageset. A message is offset (8 bytes), size (4), CRC-32 (4), magic,
attributes, in magic 1 the timestamp (8), key and value with their lengths (4 each, -1 for null). A compressed message
holds a message set of its own magic, uncompressed, in its value.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from kafscale.records.batch import LOG_APPEND_TIME_BIT
from kafscale.records.checksum import Buffer
from kafscale.records.codecs import Codec, codec_of, decompress
from kafscale.records.errors import CorruptBatch, InvalidRecord, InvalidTimestamp
from kafscale.records.lz4_frame import with_right_header_checksum
from kafscale.records.record import Record, build_batch

_START = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")

_SIZE_COUNTS_FROM = 12
_CHECKED_AT = 16  # the first byte under the CRC
_NEWEST_MAGIC = 1
_NO_TIMESTAMP = -1


class _Message(NamedTuple):
    magic: int
    codec: Codec
    timestamp: int
    key: bytes | None
    value: bytes | None


def upconvert(message_set: Buffer, *, now_ms: int, max_bytes: int) -> bytes:
    """Return the messages of ``message_set`` as a magic-2 batch from offset 0, with the last codec used in it.

    Offsets are assigned again, as by a broker. Messages without a timestamp (all of magic 0) get ``now_ms``, because
    Kafka's retention of messages with -1 relies on file times, which an object store does not have.
    Raises CorruptBatch for damage, a wrong CRC-32, an incomplete message, or more than ``max_bytes`` decompressed;
    InvalidRecord for no messages, nested compression, mixed magics and zstd; InvalidTimestamp for LogAppendTime.
    """
    messages = list(_messages(bytes(message_set)))
    codec = next((message.codec for message in reversed(messages) if message.codec is not Codec.NONE), Codec.NONE)
    records = (
        Record(offset, now_ms if plain.timestamp == _NO_TIMESTAMP else plain.timestamp, plain.key, plain.value)
        for offset, plain in enumerate(_unwrapped(messages, max_bytes))
    )
    return build_batch(records, base_offset=0, codec=codec)


def _unwrapped(messages: list[_Message], max_bytes: int) -> Iterator[_Message]:
    remaining = max_bytes
    for message in messages:
        if message.codec is Codec.NONE:
            yield message
            continue
        inner = _decompressed(message, remaining)
        remaining -= len(inner)
        for plain in _messages(inner):
            if plain.codec is not Codec.NONE:
                raise InvalidRecord("a compressed message contains compressed messages")
            if plain.magic != message.magic:
                raise InvalidRecord(f"a message of magic {message.magic} contains messages of magic {plain.magic}")
            yield plain


def _decompressed(message: _Message, max_bytes: int) -> bytes:
    if message.value is None:
        raise CorruptBatch("a compressed message has no value")
    if message.codec is Codec.ZSTD:
        raise InvalidRecord(f"zstd is not allowed in a message of magic {message.magic}")
    data = message.value
    if message.codec is Codec.LZ4 and message.magic == 0:
        data = with_right_header_checksum(data)
    return decompress(message.codec, data, max_bytes)


def _messages(data: bytes) -> Iterator[_Message]:
    if not data:
        raise InvalidRecord("a message set has no messages")
    pos = 0
    while pos < len(data):
        message, pos = _message(data, pos)
        yield message


def _message(data: bytes, pos: int) -> tuple[_Message, int]:
    """Return the message at ``pos`` and the position after it."""
    try:
        _, size, crc, magic, attributes = _START.unpack_from(data, pos)
    except struct.error:
        raise CorruptBatch(f"{len(data) - pos} bytes at {pos} are too few for a message") from None
    end = pos + _SIZE_COUNTS_FROM + size
    if not pos + _START.size <= end <= len(data):
        raise CorruptBatch(f"the message at {pos} ends at {end}, but the data at {len(data)}")
    if not 0 <= magic <= _NEWEST_MAGIC:
        raise CorruptBatch(f"magic {magic} at {pos} in a message set of magic 0 or 1")
    found = zlib.crc32(memoryview(data)[pos + _CHECKED_AT : end])
    if found != crc:
        raise CorruptBatch(f"the message at {pos} has CRC {found:#010x}, not {crc:#010x}")
    if attributes & LOG_APPEND_TIME_BIT and magic > 0:
        raise InvalidTimestamp("producers must not set the timestamp type to LogAppendTime")
    at = pos + _START.size
    timestamp = _NO_TIMESTAMP
    try:
        if magic > 0:
            (timestamp,) = _TIMESTAMP.unpack_from(data, at)
            at += _TIMESTAMP.size
        key, at = _read_bytes(data, at)
        value, at = _read_bytes(data, at)
    except struct.error:
        raise CorruptBatch(f"the message at {pos} does not end within the message set") from None
    if at != end:
        raise CorruptBatch(f"the message at {pos} ends at {at}, not at {end}")
    return _Message(magic, codec_of(attributes), timestamp, key, value), end


def _read_bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(data, pos)
    start = pos + _LENGTH.size
    return (data[start : start + length], start + length) if length >= 0 else (None, start)
