"""Hand-written codec of Produce (API key 0), versions 0 to 13, as it is a hot path and kio lacks versions 0 to 2.

Changes on the wire: 1 adds the throttle time; 2 the append time in the reply; 3 the transactional id; 5 the log start
in the reply; 8 record errors and a message in the reply; 9 is flexible; 10 adds leader hints (tagged, never sent here);
13 identifies topics by id. Source: https://kafka.apache.org/protocol#The_Messages_Produce.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from kafscale.errors import CorruptData
from kafscale.kafka.wire import (
    DECODE_ERRORS,
    INT32,
    Buffer,
    array_length,
    nullable_string,
    read_array_length,
    read_nullable_string,
    read_string,
    read_uvarint,
    skip_tags,
    string,
)

API_KEY = 0
FLEXIBLE_FROM = 9
NAMES_BY_ID_FROM = 13

_UNLIMITED = 1 << 31

_ACKS_TIMEOUT = struct.Struct(">hi")
_INDEX_LENGTH = struct.Struct(">ii")
_RESULT = struct.Struct(">ihqqq")
_RESULT_V2 = struct.Struct(">ihqq")
_RESULT_V0 = struct.Struct(">ihq")
_NO_ERRORS = array_length(0, flexible=False) + nullable_string(None, flexible=False)
"""The end of the result of most partitions."""
_FLEXIBLE_NO_ERRORS = array_length(0, flexible=True) + nullable_string(None, flexible=True) + b"\0"


@dataclass(slots=True)
class ProducePartition:
    """``records`` is a view of the request's bytes, or None for null."""

    index: int
    records: memoryview | None


@dataclass(slots=True)
class ProduceTopic:
    """Identified by ``name`` before version 13 and by ``topic_id`` (16 bytes) since; the other one is empty."""

    name: str
    topic_id: bytes
    partitions: list[ProducePartition]


@dataclass(slots=True)
class ProduceRequest:
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


@dataclass(slots=True)
class ProduceResult:
    """The result for a partition. ``log_append_time_ms`` is in ms since 1970, or -1 if the log sets no timestamps."""

    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()
    """0-based positions of records in the batch, each with an error message."""


@dataclass(slots=True)
class ProduceTopicResults:
    name: str
    topic_id: bytes
    results: Sequence[ProduceResult] = field(default_factory=list)


def decode_request(body: memoryview, version: int, *, most_without_records: int = _UNLIMITED) -> ProduceRequest:
    """Decode the request in ``body``. Raises CorruptData, also if it has more than ``most_without_records`` bytes
    besides its records."""
    try:
        flexible = version >= FLEXIBLE_FROM
        transactional_id, position = read_nullable_string(body, 0, flexible) if version >= 3 else (None, 0)
        acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
        count, position = read_array_length(body, position + _ACKS_TIMEOUT.size, flexible)
        topics = []
        limit = most_without_records
        for _ in range(count):
            name, topic_id = "", b""
            if version >= NAMES_BY_ID_FROM:
                topic_id = bytes(body[position : position + 16])
                position += 16
            else:
                name, position = read_string(body, position, flexible)
            partitions: list[ProducePartition] = []
            partition_count, position = read_array_length(body, position, flexible)
            for _ in range(partition_count):
                if flexible:
                    (index,) = INT32.unpack_from(body, position)
                    length, position = read_uvarint(body, position + 4)
                    length -= 1
                else:
                    index, length = _INDEX_LENGTH.unpack_from(body, position)
                    position += _INDEX_LENGTH.size
                records = None
                if length >= 0:
                    records = body[position : position + length]
                    if len(records) < length:
                        raise CorruptData("records extend past the end of their request")
                    position += length
                    limit += length
                if flexible:
                    position = skip_tags(body, position)
                _check_size(position, limit)
                partitions.append(ProducePartition(index, records))
            if flexible:
                position = skip_tags(body, position)
            _check_size(position, limit)
            topics.append(ProduceTopic(name, topic_id, partitions))
        if flexible:
            skip_tags(body, position)
        return ProduceRequest(transactional_id, acks, timeout_ms, topics)
    except DECODE_ERRORS as error:
        raise CorruptData(f"a Produce v{version} request is truncated: {error}") from error


def _check_size(position: int, limit: int) -> None:
    if position > limit:
        raise CorruptData(f"a request has more bytes besides its records than the limit, {limit} with them")


def encode_response(topics: Sequence[ProduceTopicResults], version: int, throttle_ms: int = 0) -> list[Buffer]:
    """Encode the body of a Produce response as one piece."""
    flexible = version >= FLEXIBLE_FROM
    parts = [array_length(len(topics), flexible)]
    for topic in topics:
        parts.append(topic.topic_id if version >= NAMES_BY_ID_FROM else string(topic.name, flexible))
        parts.append(array_length(len(topic.results), flexible))
        parts.extend(_encode_result(result, version) for result in topic.results)
        if flexible:
            parts.append(b"\0")
    if version >= 1:
        parts.append(INT32.pack(throttle_ms))
    if flexible:
        parts.append(b"\0")
    return [b"".join(parts)]


def _encode_result(result: ProduceResult, version: int) -> bytes:
    index, error, base = result.index, result.error_code, result.base_offset
    if version < 2:
        return _RESULT_V0.pack(index, error, base)
    if version < 5:
        return _RESULT_V2.pack(index, error, base, result.log_append_time_ms)
    fixed = _RESULT.pack(index, error, base, result.log_append_time_ms, result.log_start_offset)
    if version < 8:
        return fixed
    flexible = version >= FLEXIBLE_FROM
    if not result.record_errors and result.error_message is None:
        return fixed + (_FLEXIBLE_NO_ERRORS if flexible else _NO_ERRORS)
    no_tags = b"\0" if flexible else b""
    parts = [fixed, array_length(len(result.record_errors), flexible)]
    for place, message in result.record_errors:
        parts += (INT32.pack(place), nullable_string(message, flexible), no_tags)
    parts += (nullable_string(result.error_message, flexible), no_tags)
    return b"".join(parts)
