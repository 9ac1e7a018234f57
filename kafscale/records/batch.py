"""Kafka's record batch of magic 2, without its records: the header, the checksum, and the fields that a broker sets.

Format: https://kafka.apache.org/documentation/#recordbatch. Nothing here decompresses or decodes records. The CRC
covers everything from the attributes on, so base offset and leader epoch can change without a new CRC.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kafscale.records.checksum import Buffer, crc32c
from kafscale.records.codecs import Codec, codec_of
from kafscale.records.errors import CorruptBatch, InvalidRecord, InvalidTimestamp

HEADER_SIZE = 61
MAGIC = 2

LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
HORIZON_BIT = 0x40
"""The base timestamp of the batch is its delete horizon, which compaction has set (KIP-534)."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qii")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")

_LENGTH_AT = 8
_EPOCH_AT = 12
_MAGIC_AT = 16
_CRC_AT = 17
_CHECKED_AT = 21  # the first byte under the CRC
_MAX_TIMESTAMP_AT = 35
_LENGTH_COUNTS_FROM = 12
_MIN_LENGTH = HEADER_SIZE - _LENGTH_COUNTS_FROM
SMALLEST_RECORD = 7
"""Bytes: one each for length, attributes, two deltas, two lengths and the header count."""
_MOST_PER_BYTE = 3
"""Records in a byte of a compressed batch. Each has another offset, so even empty ones take half a byte with zstd's
highest level. So the counts of a segment's batches add up to less than its header can hold, whatever clients claim."""


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, in their order on the wire. Timestamps are ms since 1970."""

    base_offset: int
    batch_length: int  # bytes after this field
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return _LENGTH_COUNTS_FROM + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """The compression codec. Raises CorruptBatch for the undefined ids 5 to 7."""
        return codec_of(self.attributes)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_horizon(self) -> bool:
        """Whether the base timestamp is the time from which tombstones and markers of the batch may be removed."""
        return bool(self.attributes & HORIZON_BIT)


def magic_at(buf: Buffer, pos: int = 0) -> int:
    """Return the magic byte of the batch or legacy message at ``pos``. Its position is the same in every format."""
    if len(buf) - pos <= _MAGIC_AT:
        raise CorruptBatch(f"{len(buf) - pos} bytes at {pos} are too few for a batch")
    return buf[pos + _MAGIC_AT]


def peek(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Return the header at ``pos``. The rest of the batch need not be present.

    Raises CorruptBatch if there are fewer than 61 bytes, the magic is not 2, or the length is less than a header's.
    """
    if len(buf) - pos < HEADER_SIZE:
        raise CorruptBatch(f"{len(buf) - pos} bytes at {pos} are too few for a batch header")
    header = BatchHeader._make(_HEADER.unpack_from(buf, pos))
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic} at {pos} instead of {MAGIC}")
    if header.batch_length < _MIN_LENGTH:
        raise CorruptBatch(f"batch length {header.batch_length} at {pos} is less than a header's {_MIN_LENGTH}")
    return header


def peek_one(batch: Buffer) -> BatchHeader:
    """Return the header of a buffer that holds exactly one batch. Raises CorruptBatch if it holds less or more."""
    header = peek(batch)
    if header.size != len(batch):
        raise CorruptBatch(f"a batch of {header.size} bytes in a buffer of {len(batch)}")
    return header


def verify_crc(buf: Buffer, pos: int, header: BatchHeader) -> None:
    """Raise CorruptBatch if the batch at ``pos`` is incomplete or does not match the header's CRC."""
    end = pos + _LENGTH_COUNTS_FROM + header.batch_length
    if end > len(buf):
        raise CorruptBatch(f"batch at {pos} ends at {end}, but the data at {len(buf)}")
    found = crc32c(memoryview(buf)[pos + _CHECKED_AT : end])
    if found != header.crc:
        raise CorruptBatch(
            f"batch at {pos} (offset {header.base_offset}) has CRC {found:#010x}, not {header.crc:#010x}"
        )


def walk(buf: Buffer, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every batch from ``start`` to the end of ``buf``. CRCs are not checked.

    After the valid batches before it, raises CorruptBatch at bytes that are not a batch or an incomplete one.
    """
    pos, end = start, len(buf)
    while pos < end:
        header = peek(buf, pos)
        following = pos + _LENGTH_COUNTS_FROM + header.batch_length
        if following > end:
            raise CorruptBatch(f"batch at {pos} ends at {following}, but the data at {end}")
        yield pos, header
        pos = following


def check_producers(records: Buffer) -> None:
    """Check that none of several batches is from an idempotent producer: sequences are checked one batch at a time.

    Raises InvalidRecord, CorruptBatch.
    """
    if any(header.producer_id >= 0 for _, header in walk(records)):
        raise InvalidRecord("an idempotent producer must send only one batch per partition in a request")


def check_produced(header: BatchHeader) -> None:
    """Check Kafka's rules for produced batches, as far as they concern the header (``LogValidator.validateBatch``).

    Raises InvalidRecord for control and transactional batches, no records, a count that does not match the offsets or
    the size, an unknown codec, and a producer id without epoch or sequence; InvalidTimestamp for the LogAppendTime bit.
    Timestamps may have any value, as in Kafka; -1 means none.
    """
    attributes = header.attributes
    if attributes & CONTROL_BIT:
        raise InvalidRecord("clients must not write control batches")
    if attributes & TRANSACTIONAL_BIT:
        raise InvalidRecord("transactional batches are not supported")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"{header.record_count} records do not match a last offset delta of {header.last_offset_delta}"
        )
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecord(
            f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}"
        )
    if attributes & LOG_APPEND_TIME_BIT:
        raise InvalidTimestamp("producers must not set the timestamp type to LogAppendTime")
    try:
        found = codec_of(attributes)
    except CorruptBatch as error:
        raise InvalidRecord(str(error)) from error
    size = header.size
    in_records = size - HEADER_SIZE
    if header.record_count > (in_records // SMALLEST_RECORD if found is Codec.NONE else size * _MOST_PER_BYTE):
        raise InvalidRecord(f"{header.record_count} records do not fit in {in_records} bytes")


def placed_prefix(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """Return the batch's first 16 bytes (base offset, length, leader epoch) at its place in the log."""
    return _PREFIX.pack(base_offset, header.batch_length, leader_epoch)


def place(buf: bytearray, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at ``pos``, which the caller has peeked."""
    _TIMESTAMP.pack_into(buf, pos, base_offset)
    _EPOCH.pack_into(buf, pos + _EPOCH_AT, leader_epoch)


def with_log_append_time(batch: Buffer, timestamp_ms: int) -> bytes:
    """Return a copy of a batch in which all records have the time ``timestamp_ms``, with a new CRC.

    As in Kafka, only attribute bit 3 and the max timestamp are set. The records keep their timestamp deltas.
    """
    header = peek_one(batch)
    out = bytearray(batch)
    _ATTRIBUTES.pack_into(out, _CHECKED_AT, header.attributes | LOG_APPEND_TIME_BIT)
    _TIMESTAMP.pack_into(out, _MAX_TIMESTAMP_AT, timestamp_ms)
    seal(out)
    return bytes(out)


def pack_header(header: BatchHeader) -> bytes:
    """Return the header's 61 bytes, with its length and CRC unchanged."""
    return _HEADER.pack(*header)


def seal(batch: bytearray | memoryview) -> None:
    """Set the length and CRC of the single batch in ``batch`` from its bytes."""
    struct.pack_into(">i", batch, _LENGTH_AT, len(batch) - _LENGTH_COUNTS_FROM)
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_CHECKED_AT:]))
