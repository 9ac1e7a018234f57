"""Send the same request to two brokers and compare their answers."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args

import trio
from kio.index import load_request_schema

from tests.support.gateway.harness import Client, read_response
from tests.support.strategies.kio_types import written

CLOSED = "the connection was closed"


def encoded(api_key: int, version: int, values: Mapping[str, Any]) -> bytes:
    """Return the body of a request. ``values`` uses kio's names, with dictionaries for nested entities.

    Fields that this version of the request lacks are left out.
    """
    return written(_entity(load_request_schema(api_key, version), values))


def _entity(schema: Any, values: Mapping[str, Any]) -> Any:
    types = {field.name: field.type for field in fields(schema)}
    return schema(**{name: _value(types[name], value) for name, value in values.items() if name in types})


def _value(annotation: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _entity(next(kind for kind in (annotation, *get_args(annotation)) if is_dataclass(kind)), value)
    if isinstance(value, list):
        (element,) = (
            args[0] for kind in (annotation, *get_args(annotation)) if (args := get_args(kind)) and args[-1] is Ellipsis
        )
        return tuple(_value(element, item) for item in value)
    return value


def plain(entity: Any) -> Any:
    """Return a reply as dictionaries, without throttle times. Null messages become empty, as in Kafka's controller."""
    if is_dataclass(entity):
        values = {field.name: plain(getattr(entity, field.name)) for field in fields(entity)}
        values.pop("throttle_time", None)
        if "error_message" in values:
            values["error_message"] = values["error_message"] or None
        return values
    if isinstance(entity, tuple):
        return [plain(item) for item in entity]
    return entity


async def answer(bootstrap: str, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
    """Return the broker's reply to one request on a new connection."""
    host, _, port = bootstrap.partition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        client = Client(stream)
        try:
            body = await client.call(api_key, version, encoded(api_key, version, values))
        except (EOFError, trio.BrokenResourceError):
            return CLOSED
        return plain(read_response(api_key, version, body))
