"""Compare a decoded message with Kafka's JSON of it."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

_NOBODY = base64.urlsafe_b64encode(bytes(16)).decode().rstrip("=")
_MILLISECOND = timedelta(milliseconds=1)


def differences(entity: Any, kafka_body: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Return every field that differs."""
    rest = dict(kafka_body)
    for field in fields(entity):
        value = getattr(entity, field.name)
        name = _json_name(field.name, rest)
        if name is not None:
            yield from _differ(value, rest.pop(name), f"{where}.{field.name}")
        elif value != field.default and value is not False:
            yield f"{where}.{field.name} is {value!r}, of which Kafka knows nothing"
    if rest:
        yield f"{where}: Kafka has also read {rest}"


def _json_name(name: str, kafka_body: Mapping[str, Any]) -> str | None:
    """Return Kafka's name of a field: times have the suffix Ms, and records are given by their size."""
    plain = name.replace("_", "").lower()
    for key in kafka_body:
        if key.lower() in (plain, f"{plain}ms", f"{plain}timestampms", f"{plain}sizeinbytes"):
            return key
    return None


def _differ(value: Any, kafka_body: Any, where: str) -> Iterator[str]:
    if is_dataclass(value) and isinstance(kafka_body, dict):
        yield from differences(value, kafka_body, where)
    elif isinstance(value, tuple | list) and isinstance(kafka_body, list) and len(value) == len(kafka_body):
        for index, (item, other) in enumerate(zip(value, kafka_body, strict=True)):
            yield from _differ(item, other, f"{where}[{index}]")
    elif kafka_body not in _as_json(value):
        yield f"{where} is {value!r}, Kafka has read {kafka_body!r}"


def _as_json(value: Any) -> tuple[Any, ...]:
    """Return the ways in which Kafka may write ``value`` as JSON."""
    if isinstance(value, timedelta):
        return (value // _MILLISECOND,)
    if isinstance(value, datetime):
        return ((value - datetime.fromtimestamp(0, UTC)) // _MILLISECOND,)
    if isinstance(value, UUID):
        return (base64.urlsafe_b64encode(value.bytes).decode().rstrip("="),)
    if isinstance(value, bytes | memoryview):
        return (base64.b64encode(value).decode(), len(value), base64.urlsafe_b64encode(value).decode().rstrip("="))
    if value is None:
        return (None, _NOBODY, -1)
    return (value,)
