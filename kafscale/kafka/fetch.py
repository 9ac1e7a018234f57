"""Hand-written codec of Fetch (API key 1), versions 4 to 18: the hot path. Record bytes are passed on without a copy.

Changes on the wire: 5 adds the log start; 7 sessions; 9 the leader epoch; 11 the rack and the preferred replica; 12 is
flexible; 13 identifies topics by id; 15 moves the replica id into a tag; 16 to 18 only add tags.
Source: https://kafka.apache.org/protocol#The_Messages_Fetch.
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
    read_array_length,
    read_string,
    skip_tags,
    string,
    tags,
    uvarint,
)

API_KEY = 1
FLEXIBLE_FROM = 12
NAMES_BY_ID_FROM = 13

_LIMITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")
_RESULT_V4 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
_TOP_V7 = struct.Struct(">ihi")

_REPLICA_STATE_TAG = 1
_CONSUMER = -1


@dataclass(slots=True)
class FetchPartition:
    """``current_leader_epoch`` is -1 if the client does not send one."""

    index: int
    current_leader_epoch: int
    offset: int
    max_bytes: int


@dataclass(slots=True)
class FetchTopic:
    """Identified by ``name`` before version 13 and by ``topic_id`` (16 bytes) since; the other one is empty."""

    name: str
    topic_id: bytes
    partitions: list[FetchPartition]


@dataclass(slots=True)
class FetchRequest:
    """``forgotten`` lists the partitions to remove from the session: name, topic id (as in `FetchTopic`) and index."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: Sequence[tuple[str, bytes, int]] = ()


@dataclass(slots=True)
class FetchResult:
    """The result for a partition. ``records`` are consecutive pieces of the log."""

    index: int
    error_code: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    records: Sequence[Buffer] = ()


@dataclass(slots=True)
class FetchTopicResults:
    name: str
    topic_id: bytes
    results: Sequence[FetchResult] = field(default_factory=list)


def decode_request(body: memoryview, version: int) -> FetchRequest:
    """Decode the request in ``body``. Raises CorruptData."""
    try:
        return _decode(body, version)
    except DECODE_ERRORS as error:
        raise CorruptData(f"a Fetch v{version} request is truncated: {error}") from error


def _decode(body: memoryview, version: int) -> FetchRequest:
    flexible = version >= FLEXIBLE_FROM
    position = 0
    replica_id = _CONSUMER
    if version < 15:
        (replica_id,) = INT32.unpack_from(body, position)
        position += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _LIMITS.unpack_from(body, position)
    position += _LIMITS.size
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(body, position)
        position += _SESSION.size
    count, position = read_array_length(body, position, flexible)
    topics = []
    for _ in range(count):
        name, topic_id, position = _read_topic(body, position, version)
        partitions: list[FetchPartition] = []
        partition_count, position = read_array_length(body, position, flexible)
        for _ in range(partition_count):
            partition, position = _decode_partition(body, position, version)
            partitions.append(partition)
        if flexible:
            position = skip_tags(body, position)
        topics.append(FetchTopic(name, topic_id, partitions))
    forgotten: list[tuple[str, bytes, int]] = []
    if version >= 7:
        forgotten, position = _read_forgotten(body, position, version)
    if version >= 11:
        _, position = read_string(body, position, flexible)
    if flexible and body[position]:
        for tag, start, _ in tags(body, position):
            if tag == _REPLICA_STATE_TAG and version >= 15:
                (replica_id,) = INT32.unpack_from(body, start)
    return FetchRequest(
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics, forgotten
    )


def _decode_partition(body: memoryview, position: int, version: int) -> tuple[FetchPartition, int]:
    epoch = -1
    if version >= FLEXIBLE_FROM:
        index, epoch, offset, _, _, max_bytes = _PARTITION_V12.unpack_from(body, position)
        end = skip_tags(body, position + _PARTITION_V12.size)
    elif version >= 9:
        index, epoch, offset, _, max_bytes = _PARTITION_V9.unpack_from(body, position)
        end = position + _PARTITION_V9.size
    elif version >= 5:
        index, offset, _, max_bytes = _PARTITION_V5.unpack_from(body, position)
        end = position + _PARTITION_V5.size
    else:
        index, offset, max_bytes = _PARTITION_V4.unpack_from(body, position)
        end = position + _PARTITION_V4.size
    return FetchPartition(index, epoch, offset, max_bytes), end


def _read_topic(body: memoryview, position: int, version: int) -> tuple[str, bytes, int]:
    """Return the topic's name or id, depending on the version, and the position after it."""
    if version >= NAMES_BY_ID_FROM:
        return "", bytes(body[position : position + 16]), position + 16
    name, position = read_string(body, position, version >= FLEXIBLE_FROM)
    return name, b"", position


def _read_forgotten(body: memoryview, position: int, version: int) -> tuple[list[tuple[str, bytes, int]], int]:
    flexible = version >= FLEXIBLE_FROM
    count, position = read_array_length(body, position, flexible)
    forgotten = []
    for _ in range(count):
        name, topic_id, position = _read_topic(body, position, version)
        partitions, position = read_array_length(body, position, flexible)
        for _ in range(partitions):
            (index,) = INT32.unpack_from(body, position)
            position += 4
            forgotten.append((name, topic_id, index))
        if flexible:
            position = skip_tags(body, position)
    return forgotten, position


def encode_response(
    topics: Sequence[FetchTopicResults],
    version: int,
    *,
    error_code: int = 0,
    session_id: int = 0,
    aborted: int | None = None,
    throttle_ms: int = 0,
) -> list[Buffer]:
    """Encode the body of a Fetch response as pieces, without copying records.

    ``aborted`` is the number of aborted transactions: None (null) or 0, because there are no transactions.
    """
    flexible = version >= FLEXIBLE_FROM
    pieces: list[Buffer] = []
    head = bytearray(_TOP_V7.pack(throttle_ms, error_code, session_id) if version >= 7 else INT32.pack(throttle_ms))
    head += array_length(len(topics), flexible)
    no_aborted = array_length(-1 if aborted is None else aborted, flexible)
    for topic in topics:
        head += topic.topic_id if version >= NAMES_BY_ID_FROM else string(topic.name, flexible)
        head += array_length(len(topic.results), flexible)
        for result in topic.results:
            watermark = result.high_watermark
            if version >= 5:
                head += _RESULT_V5.pack(result.index, result.error_code, watermark, watermark, result.log_start_offset)
            else:
                head += _RESULT_V4.pack(result.index, result.error_code, watermark, watermark)
            head += no_aborted
            if version >= 11:
                head += b"\xff\xff\xff\xff"
            size = sum(map(len, result.records))
            head += uvarint(size + 1) if flexible else INT32.pack(size)
            if size:
                pieces.append(head)
                pieces.extend(result.records)
                head = bytearray()
            if flexible:
                head += b"\0"
        if flexible:
            head += b"\0"
    if flexible:
        head += b"\0"
    pieces.append(head)
    return pieces
