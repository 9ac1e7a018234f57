"""The client side of Kafka's protocol for simulated clients, with topics by id or name."""

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, cast

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kafscale.kafka.wire import read_nullable_string, read_uvarint, skip_tags, uvarint

PRODUCE, FETCH, LIST_OFFSETS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 0, 1, 2, 19, 20, 21, 22
LEADER_EPOCH_ENDS, CREATE_PARTITIONS, ALTER_CONFIGS = 23, 37, 44
VERSIONS = {PRODUCE: 13, FETCH: 13, LIST_OFFSETS: 7, CREATE_TOPICS: 7, DELETE_TOPICS: 6, DELETE_RECORDS: 2}
OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 11, 12, 13, 14
VERSIONS |= {OFFSET_COMMIT: 9, OFFSET_FETCH: 8, JOIN_GROUP: 9, HEARTBEAT: 4, LEAVE_GROUP: 5, SYNC_GROUP: 5}
VERSIONS |= {INIT_PRODUCER_ID: 4, LEADER_EPOCH_ENDS: 4, CREATE_PARTITIONS: 3, ALTER_CONFIGS: 1}
BY_NAME = 12
"""The last versions of Produce and Fetch with topic names."""

_HEADER = struct.Struct(">ihhih")
_ACKS_TIMEOUT = struct.Struct(">hi")
_RESULT = struct.Struct(">ihqqq")
_FETCH_LIMITS = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqiqi")
_FETCHED = struct.Struct(">ihqqq")


Topic = bytes | str
"""A topic id, or a name, which requires version `BY_NAME`."""


def frame(api_key: int, correlation: int, body: bytes, version: int) -> bytes:
    """Return a complete request. All versions used here have flexible headers."""
    return _HEADER.pack(11 + len(body), api_key, version or VERSIONS[api_key], correlation, -1) + b"\0" + body


def _named(topic: Topic) -> bytes:
    return topic if isinstance(topic, bytes) else uvarint(len(topic) + 1) + topic.encode()


def _skip_name(body: memoryview, position: int, *, by_name: bool) -> int:
    if not by_name:
        return position + 16
    _, position = read_nullable_string(body, position, True)
    return position


def produce(topic: Topic, partition: int, records: bytes, *, acks: int, timeout_ms: int) -> bytes:
    return produce_many([(topic, partition, records)], acks=acks, timeout_ms=timeout_ms)


def produce_many(appends: Sequence[tuple[Topic, int, bytes]], *, acks: int, timeout_ms: int) -> bytes:
    """Return a request for several partitions, each as a separate topic."""
    out = [b"\0", _ACKS_TIMEOUT.pack(acks, timeout_ms), uvarint(len(appends) + 1)]
    for topic, partition, records in appends:
        out += [_named(topic), b"\2", struct.pack(">i", partition), uvarint(len(records) + 1), records, b"\0\0"]
    return b"".join((*out, b"\0"))


@dataclass(frozen=True, slots=True)
class Produced:
    error: int
    base_offset: int
    log_start: int
    message: str


def read_produced(body: memoryview, *, by_name: bool = False) -> Produced:
    """Return the answer for the only partition of a request."""
    (answer,) = read_produced_many(body, by_name=by_name)
    return answer


def read_produced_many(body: memoryview, *, by_name: bool = False) -> list[Produced]:
    """Return the answers in the order of the request, which had one partition per topic."""
    answers = []
    topics, position = read_uvarint(body, 0)
    for _ in range(topics - 1):
        position = _skip_name(body, position, by_name=by_name) + 1
        _, error, base, _, log_start = _RESULT.unpack_from(body, position)
        errors, position = read_uvarint(body, position + _RESULT.size)
        if errors > 1:
            raise ValueError("record errors are not expected")
        message, position = read_nullable_string(body, position, True)
        position = skip_tags(body, skip_tags(body, position))
        answers.append(Produced(error, base, log_start, message or ""))
    return answers


@dataclass(frozen=True, slots=True)
class Wanted:
    """A partition of a fetch. ``leader_epoch`` is the epoch that the client knows, or -1 for no check."""

    topic: Topic
    partition: int
    offset: int
    leader_epoch: int = -1


def fetch(wanted: Sequence[Wanted], *, max_bytes: int, max_wait_ms: int) -> bytes:
    """Return a request for several partitions, each as a separate topic."""
    out = [_FETCH_LIMITS.pack(-1, max_wait_ms, 1, max_bytes, 0, 0, -1), uvarint(len(wanted) + 1)]
    for one in wanted:
        limits = _FETCH_PARTITION.pack(one.partition, one.leader_epoch, one.offset, -1, -1, max_bytes)
        out += [_named(one.topic), b"\2", limits, b"\0\0"]
    return b"".join((*out, b"\1\1\0"))


@dataclass(frozen=True, slots=True)
class Fetched:
    error: int
    high_watermark: int
    log_start: int
    records: memoryview


def read_fetched(body: memoryview, asked: int, *, by_name: bool = False) -> list[Fetched]:
    """Return the answers in the order of the request, which had one partition for each of ``asked`` topics."""
    (top_error,) = struct.unpack_from(">h", body, 4)
    if top_error:
        return [Fetched(top_error, -1, -1, body[:0])] * asked
    answers = []
    topics, position = read_uvarint(body, 10)
    for _ in range(topics - 1):
        position = _skip_name(body, position, by_name=by_name) + 1
        _, error, high_watermark, _, log_start = _FETCHED.unpack_from(body, position)
        aborted, position = read_uvarint(body, position + _FETCHED.size)
        if aborted > 1:
            raise ValueError("aborted transactions are not expected")
        size, position = read_uvarint(body, position + 4)
        end = position + max(size - 1, 0)
        answers.append(Fetched(error, high_watermark, log_start, body[position:end]))
        position = skip_tags(body, skip_tags(body, end))
    return answers


def request(api_key: int, **values: Any) -> bytes:
    """Return any other request, with kio's field names."""
    schema = cast(Any, load_request_schema(api_key, VERSIONS[api_key]))
    out = io.BytesIO()
    cast(Any, entity_writer(schema))(out, schema(**values))
    return out.getvalue()


def response(api_key: int, body: memoryview) -> Any:
    return cast(Any, entity_reader(load_response_schema(api_key, VERSIONS[api_key])))(bytes(body), 0)[0]


def part(api_key: int, name: str, /, **values: Any) -> Any:
    """Return a nested part of a request."""
    module = import_module(load_request_schema(api_key, VERSIONS[api_key]).__module__)
    return getattr(module, name)(**values)


def milliseconds(number: int) -> Any:
    return timedelta(milliseconds=number)
