"""Validates produced records by Kafka's rules before they are sent to storage.

Only batch headers are read, except for compacted topics, whose records must have keys.
"""

from collections.abc import Sequence
from typing import TypeVar

from kio.schema.errors import ErrorCode

from kafscale.errors import KafscaleError
from kafscale.records.batch import MAGIC, BatchHeader, check_produced, check_producers, magic_at, verify_crc, walk
from kafscale.records.codecs import Codec
from kafscale.records.errors import CorruptBatch, InvalidRecord, InvalidTimestamp
from kafscale.records.legacy import upconvert
from kafscale.records.record import records_without_key
from kafscale.topics.configs import TopicConfig

_ONLY_MAGIC_2_FROM = 3
_ZSTD_FROM = 7
_CHEAP_RECORDS = 500
_SHOWN = 3

B = TypeVar("B", bytes, memoryview)


class RefusedRecords(KafscaleError):
    """The records of one partition are refused with Kafka's ``code``. Other partitions are not affected."""

    def __init__(self, code: ErrorCode, message: str, records: Sequence[tuple[int, str]] = ()) -> None:
        """``records`` holds the indexes of the invalid records in the batch, each with a message."""
        super().__init__(message)
        self.code = code
        self.records = records


def is_legacy(records: memoryview | None, version: int) -> bool:
    """Whether these are messages of magic 0 or 1, which Produce requests before version 3 may contain."""
    if records is None or version >= _ONLY_MAGIC_2_FROM:
        return False
    try:
        return magic_at(records) < MAGIC
    except CorruptBatch:
        return False


def check_records(records: memoryview, config: TopicConfig, *, version: int, now_ms: int) -> BatchHeader | None:
    """Check that ``records`` are one or more complete batches of magic 2 within the topic's limits.

    Return the header if they are one batch, as all are that idempotent producers send. Raises RefusedRecords.
    """
    if not records:
        raise RefusedRecords(ErrorCode.invalid_record, "a partition without record batches")
    try:
        if version >= _ONLY_MAGIC_2_FROM and magic_at(records) != MAGIC:
            raise RefusedRecords(ErrorCode.invalid_record, f"Produce v{version} takes batches of magic {MAGIC} only")
        only = None
        for position, header in walk(records):
            size = header.size
            if size > config.max_message_bytes:
                _refuse_size(size, config)
            verify_crc(records, position, header)
            check_produced(header)
            if version < _ZSTD_FROM and header.codec is Codec.ZSTD:
                raise RefusedRecords(
                    ErrorCode.unsupported_compression_type,
                    f"Produce v{version} does not support zstd; v{_ZSTD_FROM} and later do",
                )
            config.check_timestamps(header, now_ms)
            if size == len(records):
                only = header
            elif header.producer_id >= 0:
                check_producers(records)
    except InvalidTimestamp as error:
        raise RefusedRecords(ErrorCode.invalid_timestamp, str(error)) from error
    except InvalidRecord as error:
        raise RefusedRecords(ErrorCode.invalid_record, str(error)) from error
    except CorruptBatch as error:
        raise RefusedRecords(ErrorCode.corrupt_message, str(error)) from error
    return only


def is_cheap(records: memoryview) -> bool:
    """Whether `with_keys` is fast enough to run on the event loop."""
    count = 0
    for _, header in walk(records):
        count += header.record_count
        if header.codec is not Codec.NONE or count > _CHEAP_RECORDS:
            return False
    return True


def with_keys(records: B, partition: str, *, max_bytes: int) -> B:
    """Return ``records``, which passed `check_records`, if each has a key. Raises RefusedRecords otherwise.

    ``max_bytes`` is the maximum decompressed size of a batch. Run this in a worker thread unless `is_cheap`.
    """
    for position, header in walk(records):
        try:
            keyless = records_without_key(memoryview(records)[position : position + header.size], max_bytes=max_bytes)
        except CorruptBatch as error:
            # The CRC is valid, so the producer sent the batch like this and a retry would not help.
            raise RefusedRecords(ErrorCode.invalid_record, str(error)) from error
        if keyless:
            reason = f"Compacted topic cannot accept message without key in topic partition {partition}"
            places = ", ".join(map(str, keyless[:_SHOWN])) + (", ..." if len(keyless) > _SHOWN else "")
            message = f"{reason}: {len(keyless)} of {header.record_count} records have none ({places})"
            raise RefusedRecords(ErrorCode.invalid_record, message, [(place, reason) for place in keyless])
    return records


def convert_legacy(records: memoryview, config: TopicConfig, partition: str, *, now_ms: int, max_bytes: int) -> bytes:
    """Convert old messages to one batch of magic 2. ``max_bytes`` is their maximum decompressed size.

    This is slow, so run it in a worker thread. Raises RefusedRecords.
    """
    try:
        batch = upconvert(records, now_ms=now_ms, max_bytes=max_bytes)
    except InvalidTimestamp as error:
        raise RefusedRecords(ErrorCode.invalid_timestamp, str(error)) from error
    except InvalidRecord as error:
        raise RefusedRecords(ErrorCode.invalid_record, str(error)) from error
    except CorruptBatch as error:
        raise RefusedRecords(ErrorCode.corrupt_message, str(error)) from error
    if len(batch) > config.max_message_bytes:
        _refuse_size(len(batch), config)
    if config.compacted:
        return with_keys(batch, partition, max_bytes=max_bytes)
    return batch


def _refuse_size(size: int, config: TopicConfig) -> None:
    raise RefusedRecords(
        ErrorCode.message_too_large,
        f"a batch of {size} bytes exceeds the topic's max.message.bytes of {config.max_message_bytes}",
    )
