"""Logs each request and each response of a connection, to find out what a client does.

The log lines are decoded from the bytes on the wire, independently of handlers. Connections have a `WireLog` only if
the process logs at level debug.
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
    """``hex_bytes`` is the number of bytes of each body to log in hexadecimal."""

    def __init__(self, peer: str, hex_bytes: int) -> None:
        self._peer = peer
        self._hex_bytes = hex_bytes
        self._requests: dict[ReplySlot, tuple[Api, Request]] = {}

    def request(self, api: Api, request: Request) -> None:
        """Log a request that is about to be handled."""
        self._requests[request.slot] = api, request
        try:
            entity = codec.decode_request(api.key, request.api_version, request.body)
        except (CorruptData, *_UNKNOWN):
            entity = None
        self._line("request", api, request, entity, body=request.body, bytes=request.slot.request_bytes)

    def reply(self, slot: ReplySlot, size: int) -> None:
        """Log the response, of ``size`` bytes. An acks=0 request has no response and a size of 0."""
        found = self._requests.pop(slot, None)
        if found is None:
            return
        api, request = found
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
        if self._hex_bytes and api.key not in _WITH_SECRETS:
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


_WITH_SECRETS = (36, 51)
"""SaslAuthenticate and AlterUserScramCredentials, whose bytes contain passwords or what they can be guessed from."""
_UNKNOWN = (*DECODE_ERRORS, UnknownEntity, ValueError, OverflowError)
"""Errors that kio raises for unknown versions and undecodable bytes."""


def _partitions(entity: object) -> int:
    """The total number of items in all fields whose names begin with "partition", at any depth."""
    return sum(len(value) for name, value in _fields(entity) if name.startswith("partition") and _is_list(value))


def _errors(entity: object) -> Iterator[str]:
    return (ErrorCode(value).name.upper() for name, value in _fields(entity) if name == "error_code" and value)


def _fields(entity: object) -> Iterator[tuple[str, Any]]:
    """The names and values of all fields of an entity and of the entities in it."""
    for name in getattr(entity, "__dataclass_fields__", ()):
        value = getattr(entity, name)
        yield name, value
        for each in value if _is_list(value) else (value,):
            yield from _fields(each)


def _is_list(value: object) -> bool:
    return isinstance(value, tuple | list)
