"""One line in the log for each request and each reply of a connection, for finding out what a client does.

Lines are made from what is on the wire, so they show what the client sent and what it is sent, whatever a handler makes
of it. Only connections of a process that logs at level debug have a `WireLog`.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import structlog
from kio.index import UnknownEntity, load_response_schema
from kio.schema.errors import ErrorCode

from kafscale.errors import CorruptData
from kafscale.kafka import codec
from kafscale.kafka.connection import ReplySlot, Request
from kafscale.kafka.schema_reader import entity_reader
from kafscale.kafka.wire import DECODE_ERRORS, Buffer
from services.gateway.api import Api

_log = structlog.get_logger(__name__)


class WireLog:
    """``hex_bytes``: how much of each body is shown in hexadecimal."""

    def __init__(self, peer: str, hex_bytes: int) -> None:
        self._peer = peer
        self._hex_bytes = hex_bytes
        self._asked: dict[ReplySlot, tuple[Api, Request]] = {}

    def request(self, api: Api, request: Request) -> None:
        """A request that is to be carried out."""
        self._asked[request.slot] = api, request
        try:
            entity = codec.decode_request(api.key, request.api_version, request.body)
        except (CorruptData, *_UNKNOWN):
            entity = None
        self._line("request", api, request, entity, body=request.body, bytes=request.slot.request_bytes)

    def reply(self, slot: ReplySlot, size: int) -> None:
        """Its reply is made; an acks=0 request has none, and 0 bytes."""
        asked = self._asked.pop(slot, None)
        if asked is None:
            return
        api, request = asked
        body = b"".join(slot.buffers[1:])
        # An ApiVersions request of an unknown version is answered in version 0.
        version = request.api_version if request.api_version in api.versions else 0
        try:
            entity = entity_reader(load_response_schema(api.key, version))(memoryview(body), 0)[0] if body else None
        except (CorruptData, *_UNKNOWN):
            entity = None
        errors = Counter(_errors(entity))
        more = {"errors": dict(errors)} if errors else {}
        self._line("reply", api, request, entity, body=body, bytes=size, **more)

    def _line(self, event: str, api: Api, request: Request, entity: object, *, body: Buffer, **more: object) -> None:
        if self._hex_bytes:
            more["hex"] = bytes(body[: self._hex_bytes]).hex(" ")
        _log.debug(
            event,
            peer=self._peer,
            api=api.name,
            version=request.api_version,
            correlation_id=request.correlation_id,
            client_id=request.client_id,
            partitions=None if entity is None else _partitions(entity),
            **more,
        )


_UNKNOWN = (*DECODE_ERRORS, UnknownEntity, ValueError, OverflowError)
"""What kio raises for versions that it does not have, and what else does not decode."""


def _partitions(entity: object) -> int:
    """The items of all fields that are named for partitions, at any depth."""
    return sum(len(value) for name, value in _fields(entity) if name.startswith("partition") and _is_list(value))


def _errors(entity: object) -> Iterator[str]:
    return (ErrorCode(value).name.upper() for name, value in _fields(entity) if name == "error_code" and value)


def _fields(entity: object) -> Iterator[tuple[str, Any]]:
    """Of an entity and of all that are in it."""
    for name in getattr(entity, "__dataclass_fields__", ()):
        value = getattr(entity, name)
        yield name, value
        for each in value if _is_list(value) else (value,):
            yield from _fields(each)


def _is_list(value: object) -> bool:
    return isinstance(value, tuple | list)
