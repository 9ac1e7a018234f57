"""The client's side of Kafka's protocol, as far as simulated clients speak it: topics are named by id."""

import io
import struct
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, cast

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kafscale.kafka.wire import read_nullable_string, read_uvarint, skip_tags, uvarint

PRODUCE, FETCH, LIST_OFFSETS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 0, 1, 2, 19, 20, 21, 22
VERSIONS = {PRODUCE: 13, FETCH: 13, LIST_OFFSETS: 7, CREATE_TOPICS: 7, DELETE_TOPICS: 6, DELETE_RECORDS: 2}
VERSIONS[INIT_PRODUCER_ID] = 4

_HEADER = struct.Struct(">ihhih")
_ACKS_TIMEOUT = struct.Struct(">hi")
_RESULT = struct.Struct(">ihqqq")
_FETCH_LIMITS = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqiqi")
_FETCHED = struct.Struct(">ihqqq")


def frame(api_key: int, correlation: int, body: bytes) -> bytes:
    """A whole request; all versions used here have flexible headers."""
    return _HEADER.pack(11 + len(body), api_key, VERSIONS[api_key], correlation, -1) + b"\0" + body


def produce(topic_id: bytes, partition: int, records: bytes, *, acks: int, timeout_ms: int) -> bytes:
    return b"".join(
        (
            b"\0",
            _ACKS_TIMEOUT.pack(acks, timeout_ms),
            b"\2" + topic_id + b"\2",
            struct.pack(">i", partition),
            uvarint(len(records) + 1),
            records,
            b"\0\0\0",
        )
    )


@dataclass(frozen=True, slots=True)
class Produced:
    error: int
    base_offset: int
    log_start: int
    message: str


def read_produced(body: memoryview) -> Produced:
    """The answer for the one partition of a request."""
    position = 1 + 16 + 1
    _, error, base, _, log_start = _RESULT.unpack_from(body, position)
    errors, position = read_uvarint(body, position + _RESULT.size)
    if errors > 1:
        raise ValueError("record errors are not expected")
    message, position = read_nullable_string(body, position, True)
    skip_tags(body, position)
    return Produced(error, base, log_start, message or "")


def fetch(topic_id: bytes, partition: int, offset: int, *, max_bytes: int, max_wait_ms: int) -> bytes:
    return b"".join(
        (
            _FETCH_LIMITS.pack(-1, max_wait_ms, 1, max_bytes, 0, 0, -1),
            b"\2" + topic_id + b"\2",
            _FETCH_PARTITION.pack(partition, -1, offset, -1, -1, max_bytes),
            b"\0\0\1\1\0",
        )
    )


@dataclass(frozen=True, slots=True)
class Fetched:
    error: int
    high_watermark: int
    log_start: int
    records: memoryview


def read_fetched(body: memoryview) -> Fetched:
    """The answer for the one partition of a request."""
    (top_error,) = struct.unpack_from(">h", body, 4)
    if top_error:
        return Fetched(top_error, -1, -1, body[:0])
    position = 10 + 1 + 16 + 1
    _, error, high_watermark, _, log_start = _FETCHED.unpack_from(body, position)
    position += _FETCHED.size
    aborted, position = read_uvarint(body, position)
    if aborted > 1:
        raise ValueError("aborted transactions are not expected")
    position += 4
    size, position = read_uvarint(body, position)
    return Fetched(error, high_watermark, log_start, body[position : position + max(size - 1, 0)])


def request(api_key: int, **values: Any) -> bytes:
    """Any other request, by kio's names."""
    schema = cast(Any, load_request_schema(api_key, VERSIONS[api_key]))
    out = io.BytesIO()
    cast(Any, entity_writer(schema))(out, schema(**values))
    return out.getvalue()


def response(api_key: int, body: memoryview) -> Any:
    return cast(Any, entity_reader(load_response_schema(api_key, VERSIONS[api_key])))(bytes(body), 0)[0]


def part(api_key: int, name: str, /, **values: Any) -> Any:
    """A nested part of a request."""
    module = import_module(load_request_schema(api_key, VERSIONS[api_key]).__module__)
    return getattr(module, name)(**values)


def milliseconds(number: int) -> Any:
    return timedelta(milliseconds=number)
