"""Reads requests by kio's schemas into kio's entities, with bounds that kio's own reader lacks.

kio's native reader allocates as many array items as a request claims to have, so six bytes from any client can abort
the process. Here, an array never has more items than there are bytes left.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import timedelta
from functools import cache
from struct import Struct
from types import NoneType, UnionType
from typing import Any, cast, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode

from kafscale.errors import CorruptData
from kafscale.kafka.wire import INT32, check_length, read_nullable_string, read_uvarint, tags

Reader = Callable[[memoryview, int], tuple[Any, int]]

_NO_ID = bytes(16)


@cache
def entity_reader(schema: type) -> Reader:
    """Return a reader of ``schema``'s entities, which raises CorruptData or one of `wire.DECODE_ERRORS`."""
    make = cast(Callable[..., Any], schema)
    flexible: bool = cast(Any, schema).__flexible__
    plain: list[tuple[str, Reader]] = []
    tagged: dict[int, tuple[str, Reader]] = {}
    for field in fields(cast(Any, schema)):
        tag = field.metadata.get("tag")
        reader = _field_reader(field.type, field.metadata.get("kafka_type"), flexible)
        if tag is None:
            plain.append((field.name, reader))
        else:
            tagged[tag] = field.name, reader

    def read(body: memoryview, position: int) -> tuple[Any, int]:
        values = {}
        for name, reader in plain:
            values[name], position = reader(body, position)
        if flexible:
            if body[position] == 0:
                position += 1
            else:
                for tag, start, end in tags(body, position):
                    position = end
                    if tag in tagged:
                        name, reader = tagged[tag]
                        values[name], _ = reader(body, start)
        return make(**values), position

    return read


def _field_reader(annotation: Any, kafka_type: str | None, flexible: bool) -> Reader:
    nullable = get_origin(annotation) is UnionType and NoneType in get_args(annotation)
    if nullable:
        annotation = next(inner for inner in get_args(annotation) if inner is not NoneType)
    if get_origin(annotation) is tuple:
        return _array_reader(_field_reader(get_args(annotation)[0], kafka_type, flexible), flexible, nullable)
    if is_dataclass(annotation):
        reader = entity_reader(cast(type, annotation))
        return _nullable_entity(reader) if nullable else reader
    if kafka_type in ("string", "bytes", "records"):
        return _sized_reader(kafka_type, flexible, nullable)
    return _FIXED[kafka_type or ""]


def _array_reader(item: Reader, flexible: bool, nullable: bool) -> Reader:
    def read(body: memoryview, position: int) -> tuple[tuple[Any, ...] | None, int]:
        if flexible:
            length, position = read_uvarint(body, position)
            length -= 1
        else:
            (length,) = INT32.unpack_from(body, position)
            position += 4
        if length < 0:
            if not nullable:
                raise CorruptData("an array is null")
            return None, position
        check_length(length, len(body) - position)
        items = []
        for _ in range(length):
            value, position = item(body, position)
            items.append(value)
        return tuple(items), position

    return read


def _sized_reader(kafka_type: str, flexible: bool, nullable: bool) -> Reader:
    def read_bytes(body: memoryview, position: int) -> tuple[bytes | None, int]:
        if flexible:
            length, position = read_uvarint(body, position)
            length -= 1
        else:
            (length,) = INT32.unpack_from(body, position)
            position += 4
        if length > len(body) - position:
            raise CorruptData("bytes extend past the end of their request")
        return (bytes(body[position : position + length]), position + length) if length >= 0 else (None, position)

    def read_string(body: memoryview, position: int) -> tuple[str | None, int]:
        return read_nullable_string(body, position, flexible)

    read: Reader = read_string if kafka_type == "string" else read_bytes

    def read_present(body: memoryview, position: int) -> tuple[Any, int]:
        value, position = read(body, position)
        if value is None:
            raise CorruptData("a value is null")
        return value, position

    return read if nullable else read_present


def _nullable_entity(reader: Reader) -> Reader:
    def read(body: memoryview, position: int) -> tuple[Any, int]:
        return (None, position + 1) if body[position] == 0xFF else reader(body, position + 1)

    return read


def _fixed(form: str, convert: Callable[[Any], Any] | None = None) -> Reader:
    struct = Struct(form)

    def read(body: memoryview, position: int) -> tuple[Any, int]:
        (value,) = struct.unpack_from(body, position)
        return value if convert is None else convert(value), position + struct.size

    return read


_MILLISECOND = timedelta(milliseconds=1)
_SHORTEST_MS, _LONGEST_MS = timedelta.min // _MILLISECOND, timedelta.max // _MILLISECOND


def _milliseconds(value: int) -> timedelta:
    # timedelta holds 2.7 million years, less than 64 bits of milliseconds. That is as good as forever.
    return timedelta(milliseconds=min(max(value, _SHORTEST_MS), _LONGEST_MS))


_FIXED: dict[str, Reader] = {
    "bool": _fixed(">?"),
    "int8": _fixed(">b"),
    "int16": _fixed(">h"),
    "int32": _fixed(">i"),
    "int64": _fixed(">q"),
    "uint16": _fixed(">H"),
    "uint32": _fixed(">I"),
    "float64": _fixed(">d"),
    "error_code": _fixed(">h", ErrorCode),
    "timedelta_i32": _fixed(">i", _milliseconds),
    "timedelta_i64": _fixed(">q", _milliseconds),
    "datetime_i64": _fixed(">q"),  # only in replies; -1 means none
    "uuid": _fixed(">16s", lambda raw: None if raw == _NO_ID else UUID(bytes=raw)),
}
