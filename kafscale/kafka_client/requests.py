"""The requests of a minimal Kafka client, and the answers to them."""

import io
import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast, get_args

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from kafscale.errors import KafscaleError, Unavailable
from kafscale.kafka.wire import DECODE_ERRORS, string

PRODUCE, FETCH, LIST_OFFSETS, METADATA, SASL_HANDSHAKE, INIT_PRODUCER_ID, SASL_AUTHENTICATE = 0, 1, 2, 3, 17, 22, 36
_VERSIONS = {
    PRODUCE: 8,
    FETCH: 11,
    LIST_OFFSETS: 5,
    METADATA: 8,
    SASL_HANDSHAKE: 1,
    INIT_PRODUCER_ID: 1,
    SASL_AUTHENTICATE: 1,
}
"""The last versions without tagged fields, so that all headers have the same format."""
_HEADER = struct.Struct(">hhi")
_CLIENT = string("kafscale", False)
NOT_ALLOWED = frozenset(code for code in ErrorCode if code.name.endswith("_authorization_failed"))
"""The errors of requests that no ACL allows."""


class Refusal(KafscaleError):
    """A broker's answer is a Kafka error code."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or described(code))
        self.code = code

    @property
    def retriable(self) -> bool:
        """Whether a retry may succeed."""
        return bool(self.code.retriable)


def described(code: ErrorCode, message: str | None = None) -> str:
    """Return the name of an error with a broker's message about it, or what it means."""
    meaning = "no ACL allows it" if code in NOT_ALLOWED else ""
    return ": ".join(filter(None, (code.name.upper(), message or meaning)))


def header(api_key: int, correlation: int) -> bytes:
    """Return the header of a request."""
    return _HEADER.pack(api_key, _VERSIONS[api_key], correlation) + _CLIENT


def encoded(api_key: int, values: dict[str, Any]) -> bytes:
    """Return the body of a request. ``values``: its fields by kio's names."""
    return _written(_built(load_request_schema(api_key, _VERSIONS[api_key]), values))


def decoded(api_key: int, answer: bytes) -> Any:
    """Return the answer to a request as a kio entity. Raises Unavailable if it is none."""
    try:
        return _reader(api_key)(answer, 0)[0]
    except (*DECODE_ERRORS, ValueError) as error:
        raise Unavailable(f"the answer cannot be decoded: {error}") from error


def _written(entity: Any) -> bytes:
    out = io.BytesIO()
    cast(Any, entity_writer(type(entity)))(out, entity)
    return out.getvalue()


@cache
def _reader(api_key: int) -> Callable[[bytes, int], tuple[Any, int]]:
    reader: Any = entity_reader(load_response_schema(api_key, _VERSIONS[api_key]))
    return cast(Callable[[bytes, int], tuple[Any, int]], reader)


def _built(schema: Any, values: dict[str, Any]) -> Any:
    """Return a kio entity with these values. Other fields have their defaults."""
    kinds = {field.name: field.type for field in fields(schema)}
    return schema(**{name: _value(kinds[name], value) for name, value in values.items()})


def _value(kind: Any, value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    inner = next((each for each in _inner(kind) if is_dataclass(each)), None)
    return value if inner is None else tuple(_built(inner, each) for each in value)


def _inner(kind: Any) -> list[Any]:
    found = list(get_args(kind))
    return found + [each for outer in found for each in _inner(outer)]
