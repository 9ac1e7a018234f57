"""API versions that Kafka 4 dropped and kio lacks: ListOffsets 0, CreateTopics 0 and 1, DeleteTopics 0,
OffsetForLeaderEpoch 0 and 1.

Produce 0 to 2 are in ``produce.py``. Requests are decoded into objects with kio's field names, so that handlers treat
old and new versions alike; replies are encoded from objects with the same names. None of these versions is flexible.
Source: the message definitions of Kafka 3.9, ``clients/src/main/resources/common/message``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kafscale.errors import CorruptData
from kafscale.kafka.wire import (
    DECODE_ERRORS,
    INT16,
    INT32,
    INT64,
    array_length,
    nullable_string,
    read_array_length,
    read_nullable_string,
    read_string,
    string,
)

_FLEXIBLE = False


@dataclass(slots=True)
class ListOffsetsPartition:
    partition_index: int
    timestamp: int
    max_num_offsets: int


@dataclass(slots=True)
class ListOffsetsTopic:
    name: str
    partitions: list[ListOffsetsPartition]


@dataclass(slots=True)
class ListOffsetsRequest:
    replica_id: int
    topics: list[ListOffsetsTopic]


@dataclass(slots=True)
class ReplicaAssignment:
    partition_index: int
    broker_ids: tuple[int, ...]


@dataclass(slots=True)
class TopicConfig:
    name: str
    value: str | None


@dataclass(slots=True)
class CreatableTopic:
    name: str
    num_partitions: int
    replication_factor: int
    assignments: list[ReplicaAssignment]
    configs: list[TopicConfig]


@dataclass(slots=True)
class CreateTopicsRequest:
    topics: list[CreatableTopic]
    timeout: timedelta
    validate_only: bool


@dataclass(slots=True)
class DeleteTopicsRequest:
    topic_names: list[str]
    timeout: timedelta


@dataclass(slots=True)
class OffsetForLeaderPartition:
    partition: int
    leader_epoch: int
    current_leader_epoch: int = -1


@dataclass(slots=True)
class OffsetForLeaderTopic:
    topic: str
    partitions: list[OffsetForLeaderPartition]


@dataclass(slots=True)
class OffsetForLeaderEpochRequest:
    topics: list[OffsetForLeaderTopic]


class _Cursor:
    """A position in a request, which every read advances."""

    __slots__ = ("_body", "_position")

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._position = 0

    def int8(self) -> int:
        self._position += 1
        return self._body[self._position - 1]

    def int16(self) -> int:
        self._position += 2
        return int(INT16.unpack_from(self._body, self._position - 2)[0])

    def int32(self) -> int:
        self._position += 4
        return int(INT32.unpack_from(self._body, self._position - 4)[0])

    def int64(self) -> int:
        self._position += 8
        return int(INT64.unpack_from(self._body, self._position - 8)[0])

    def string(self) -> str:
        value, self._position = read_string(self._body, self._position, _FLEXIBLE)
        return value

    def nullable_string(self) -> str | None:
        value, self._position = read_nullable_string(self._body, self._position, _FLEXIBLE)
        return value

    def items(self) -> range:
        count, self._position = read_array_length(self._body, self._position, _FLEXIBLE)
        return range(count)


def decode_list_offsets(body: memoryview, version: int) -> ListOffsetsRequest:
    """Decode ListOffsets version 0. Raises CorruptData, like all decoders here."""
    cursor = _Cursor(body)
    try:
        replica_id = cursor.int32()
        topics = []
        for _ in cursor.items():
            name = cursor.string()
            partitions = [ListOffsetsPartition(cursor.int32(), cursor.int64(), cursor.int32()) for _ in cursor.items()]
            topics.append(ListOffsetsTopic(name, partitions))
    except DECODE_ERRORS as error:
        raise CorruptData(f"a ListOffsets v{version} request is truncated: {error}") from error
    return ListOffsetsRequest(replica_id, topics)


def encode_list_offsets(topics: Sequence[Any]) -> bytes:
    """Encode ``topics`` with name and partitions, which have partition_index, error_code and old_style_offsets."""
    out = bytearray(array_length(len(topics), _FLEXIBLE))
    for topic in topics:
        out += string(topic.name, _FLEXIBLE) + array_length(len(topic.partitions), _FLEXIBLE)
        for partition in topic.partitions:
            out += INT32.pack(partition.partition_index) + INT16.pack(partition.error_code)
            out += array_length(len(partition.old_style_offsets), _FLEXIBLE)
            for offset in partition.old_style_offsets:
                out += INT64.pack(offset)
    return bytes(out)


def decode_create_topics(body: memoryview, version: int) -> CreateTopicsRequest:
    """Decode CreateTopics versions 0 and 1. Version 1 added validate_only."""
    cursor = _Cursor(body)
    try:
        topics = []
        for _ in cursor.items():
            name, partitions, replication = cursor.string(), cursor.int32(), cursor.int16()
            assignments = [
                ReplicaAssignment(cursor.int32(), tuple(cursor.int32() for _ in cursor.items())) for _ in cursor.items()
            ]
            configs = [TopicConfig(cursor.string(), cursor.nullable_string()) for _ in cursor.items()]
            topics.append(CreatableTopic(name, partitions, replication, assignments, configs))
        timeout = timedelta(milliseconds=cursor.int32())
        validate_only = bool(cursor.int8()) if version >= 1 else False
    except DECODE_ERRORS as error:
        raise CorruptData(f"a CreateTopics v{version} request is truncated: {error}") from error
    return CreateTopicsRequest(topics, timeout, validate_only)


def encode_create_topics(topics: Sequence[Any], version: int) -> bytes:
    """Encode ``topics`` with name, error_code and, for version 1, error_message."""
    out = bytearray(array_length(len(topics), _FLEXIBLE))
    for topic in topics:
        out += string(topic.name, _FLEXIBLE) + INT16.pack(topic.error_code)
        if version >= 1:
            out += nullable_string(topic.error_message, _FLEXIBLE)
    return bytes(out)


def decode_delete_topics(body: memoryview, version: int) -> DeleteTopicsRequest:
    """Decode DeleteTopics version 0, which is like 1 on the wire. Only the reply's throttle time was added later."""
    cursor = _Cursor(body)
    try:
        names = [cursor.string() for _ in cursor.items()]
        return DeleteTopicsRequest(names, timedelta(milliseconds=cursor.int32()))
    except DECODE_ERRORS as error:
        raise CorruptData(f"a DeleteTopics v{version} request is truncated: {error}") from error


def encode_delete_topics(responses: Sequence[Any]) -> bytes:
    """Encode ``responses`` with name and error_code."""
    out = bytearray(array_length(len(responses), _FLEXIBLE))
    for response in responses:
        out += string(response.name, _FLEXIBLE) + INT16.pack(response.error_code)
    return bytes(out)


def decode_offset_for_leader_epoch(body: memoryview, version: int) -> OffsetForLeaderEpochRequest:
    """Decode OffsetForLeaderEpoch versions 0 and 1, whose requests are the same."""
    cursor = _Cursor(body)
    try:
        topics = []
        for _ in cursor.items():
            name = cursor.string()
            partitions = [OffsetForLeaderPartition(cursor.int32(), cursor.int32()) for _ in cursor.items()]
            topics.append(OffsetForLeaderTopic(name, partitions))
    except DECODE_ERRORS as error:
        raise CorruptData(f"an OffsetForLeaderEpoch v{version} request is truncated: {error}") from error
    return OffsetForLeaderEpochRequest(topics)


def encode_offset_for_leader_epoch(topics: Sequence[Any], version: int) -> bytes:
    """Encode ``topics`` with topic and partitions: error_code, partition, leader_epoch (version 1) and end_offset."""
    out = bytearray(array_length(len(topics), _FLEXIBLE))
    for topic in topics:
        out += string(topic.topic, _FLEXIBLE) + array_length(len(topic.partitions), _FLEXIBLE)
        for partition in topic.partitions:
            out += INT16.pack(partition.error_code) + INT32.pack(partition.partition)
            if version >= 1:
                out += INT32.pack(partition.leader_epoch)
            out += INT64.pack(partition.end_offset)
    return bytes(out)
