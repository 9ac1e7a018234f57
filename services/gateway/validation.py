"""What the gateway checks of produced records before storage gets them: Kafka's rules, from batch headers alone."""

from kio.schema.errors import ErrorCode

from kafscale.errors import KafscaleError
from kafscale.records.batch import MAGIC, check_produced, magic_at, verify_crc, walk
from kafscale.records.codecs import Codec
from kafscale.records.errors import CorruptBatch, InvalidRecord, InvalidTimestamp
from kafscale.records.legacy import upconvert
from kafscale.topics.configs import TopicConfig

_ONLY_MAGIC_2_FROM = 3
_ZSTD_FROM = 7


class RefusedRecords(KafscaleError):
    """The records of one partition are refused with Kafka's ``code``; those of others are not touched."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def is_legacy(records: memoryview | None, version: int) -> bool:
    """Whether these are messages of magic 0 or 1, which Produce before version 3 may carry."""
    if records is None or version >= _ONLY_MAGIC_2_FROM:
        return False
    try:
        return magic_at(records) < MAGIC
    except CorruptBatch:
        return False


def check_records(records: memoryview | None, config: TopicConfig, *, version: int, now_ms: int) -> None:
    """Accept one or more whole batches of magic 2, each within the topic's limits. Raises RefusedRecords."""
    if not records:
        raise RefusedRecords(ErrorCode.invalid_record, "a partition without record batches")
    try:
        if version >= _ONLY_MAGIC_2_FROM and magic_at(records) != MAGIC:
            raise RefusedRecords(ErrorCode.invalid_record, f"Produce v{version} takes batches of magic {MAGIC} only")
        for position, header in walk(records):
            if header.size > config.max_message_bytes:
                _refuse_size(header.size, config)
            verify_crc(records, position, header)
            check_produced(header)
            if header.codec is Codec.ZSTD and version < _ZSTD_FROM:
                raise RefusedRecords(
                    ErrorCode.unsupported_compression_type, f"Produce v{version} does not take zstd, v{_ZSTD_FROM} does"
                )
            config.check_timestamps(header, now_ms)
    except InvalidTimestamp as error:
        raise RefusedRecords(ErrorCode.invalid_timestamp, str(error)) from error
    except InvalidRecord as error:
        raise RefusedRecords(ErrorCode.invalid_record, str(error)) from error
    except CorruptBatch as error:
        raise RefusedRecords(ErrorCode.corrupt_message, str(error)) from error


def convert_legacy(records: memoryview, config: TopicConfig, *, now_ms: int, max_bytes: int) -> bytes:
    """Old messages as one magic-2 batch; ``max_bytes`` is what they may decompress to.

    Takes its time: for a worker thread. Raises RefusedRecords.
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
    return batch


def _refuse_size(size: int, config: TopicConfig) -> None:
    raise RefusedRecords(
        ErrorCode.message_too_large,
        f"a batch of {size} bytes, the topic's max.message.bytes is {config.max_message_bytes}",
    )
