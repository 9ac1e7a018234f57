"""Encoding and decoding of the APIs that are not on the hot path, by kio's schemas.

A reply is described once, as an object with the fields of all versions (kio's names), and `encode_response` takes those
of the version. Values are plain: error codes and times in ms are integers, topic ids 16 bytes.
"""

import io
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from functools import cache
from typing import Any, cast, get_args
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer
from kio.static.constants import EntityType

from kafscale.errors import CorruptData
from kafscale.kafka.schema_reader import entity_reader
from kafscale.kafka.wire import DECODE_ERRORS

NO_TOPIC_ID = bytes(16)

# Versions that Kafka 4 dropped but KafScale supports. None of them is flexible.
_LEGACY = {0: range(3), 2: range(1), 19: range(2), 20: range(1), 23: range(2)}


@cache
def is_flexible(api_key: int, version: int) -> bool:
    """Return whether the API's version has tagged fields. A version above all known ones is treated as the newest."""
    name = api_key_map.get(api_key)
    if name is None or version in _LEGACY.get(api_key, ()):
        return False
    known = [number for number, kinds in schema_name_map[name].items() if EntityType.request in kinds]
    if not known or version < min(known):
        return False
    return bool(load_request_schema(api_key, min(version, max(known))).__flexible__)


def decode_request(api_key: int, version: int, body: memoryview) -> Any:
    """Decode the request into kio's entity of this version. Raises CorruptData."""
    try:
        return entity_reader(load_request_schema(api_key, version))(body, 0)[0]
    except (*DECODE_ERRORS, ValueError, OverflowError) as error:
        raise CorruptData(f"a {api_key_map[api_key]} v{version} request cannot be decoded: {error}") from error


def encode_response(api_key: int, version: int, reply: object) -> bytes:
    """Encode a response body. ``reply`` must have all fields of this version that have no default."""
    narrow, write = _response_writer(api_key, version)
    buffer = io.BytesIO()
    write(buffer, narrow(reply))
    return buffer.getvalue()


@cache
def _response_writer(api_key: int, version: int) -> tuple[Callable[[Any], Any], Callable[[io.BytesIO, Any], None]]:
    schema = load_response_schema(api_key, version)
    return _narrower(schema), cast(Any, entity_writer(schema))


@cache
def _narrower(schema: Any) -> Callable[[Any], Any]:
    """Return a function that converts an object with fields of the same names to an entity of ``schema``."""
    plan = [
        (field.name, _converter(field.type, field.metadata.get("kafka_type")), field.default is not MISSING)
        for field in fields(schema)
    ]

    def narrow(source: Any) -> Any:
        values = {}
        for name, convert, has_default in plan:
            try:
                value = getattr(source, name)
            except AttributeError:
                if has_default:
                    continue
                raise
            values[name] = value if convert is None else convert(value)
        return schema(**values)

    return narrow


def _converter(annotation: Any, kafka_type: str | None) -> Callable[[Any], Any] | None:
    """Return the conversion from a plain value to the entity's, or None if they are the same."""
    for inner in (annotation, *get_args(annotation)):
        elements = get_args(inner)
        if len(elements) == 2 and elements[1] is Ellipsis:
            element = _converter(elements[0], kafka_type)
            return lambda items: items if items is None else tuple(map(element, items) if element else items)
        if is_dataclass(inner):
            narrow = _narrower(cast(type, inner))
            return lambda value: None if value is None else narrow(value)
    return _PLAIN.get(kafka_type or "")


def _topic_id(value: bytes) -> UUID | None:
    return None if value == NO_TOPIC_ID else UUID(bytes=value)


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "error_code": ErrorCode,
    "timedelta_i32": lambda value: timedelta(milliseconds=value),
    "uuid": _topic_id,
}
