"""Hypothesis strategies for kio's schemas."""

import io
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any, cast, get_args

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

_SIGNED = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED = {"uint16": 16, "uint32": 32}


def entities(schema: Any, **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Generate entities of ``schema``. ``fixed`` has strategies for fields with these names at any depth."""
    values = {}
    for field in fields(schema):
        strategy = fixed.get(field.name)
        if strategy is None:
            strategy = _values(field.type, field.metadata.get("kafka_type"), fixed)
        values[field.name] = strategy
    return st.builds(schema, **values)


def _values(annotation: Any, kafka_type: str | None, fixed: dict[str, st.SearchStrategy[Any]]) -> Any:
    arguments = get_args(annotation)
    if NoneType in arguments:
        inner = next(argument for argument in arguments if argument is not NoneType)
        if kafka_type == "uuid":
            return st.uuids()
        return st.none() | _values(inner, kafka_type, fixed)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return st.lists(_values(arguments[0], kafka_type, fixed), max_size=3).map(tuple)
    if is_dataclass(annotation):
        return entities(annotation, **fixed)
    return _plain(kafka_type or "")


def _plain(kafka_type: str) -> st.SearchStrategy[Any]:
    if kafka_type in _SIGNED:
        half = 1 << (_SIGNED[kafka_type] - 1)
        return st.integers(-half, half - 1)
    if kafka_type in _UNSIGNED:
        return st.integers(0, (1 << _UNSIGNED[kafka_type]) - 1)
    if kafka_type == "bool":
        return st.booleans()
    if kafka_type == "string":
        return st.text(max_size=200)
    if kafka_type in ("bytes", "records"):
        return st.binary(max_size=200)
    if kafka_type == "error_code":
        return st.sampled_from(ErrorCode)
    if kafka_type == "timedelta_i32":
        return st.integers(-(1 << 31), (1 << 31) - 1).map(lambda ms: timedelta(milliseconds=ms))
    if kafka_type == "timedelta_i64":
        return st.integers(-(1 << 40), 1 << 40).map(lambda ms: timedelta(milliseconds=ms))
    if kafka_type == "float64":
        return st.floats(allow_nan=False)
    if kafka_type == "datetime_i64":
        return st.integers(0, 1 << 31).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
    if kafka_type == "uuid":
        return st.uuids()
    raise ValueError(f"no strategy for the type {kafka_type} of a newer kio")


def written(entity: Any) -> bytes:
    """Return the bytes that kio writes for ``entity``."""
    out = io.BytesIO()
    cast(Any, entity_writer(type(entity)))(out, entity)
    return out.getvalue()


def milliseconds(delta: timedelta) -> int:
    return round(delta / timedelta(milliseconds=1))
