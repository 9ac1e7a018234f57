"""A minimal Kafka client for reading and writing records, with one connection per broker and one request at a time."""

import io
import struct
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast, get_args

import trio
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from kafscale.errors import KafscaleError, Unavailable
from kafscale.kafka.wire import DECODE_ERRORS, string

PRODUCE, FETCH, LIST_OFFSETS, METADATA, INIT_PRODUCER_ID = 0, 1, 2, 3, 22
_VERSIONS = {PRODUCE: 8, FETCH: 11, LIST_OFFSETS: 5, METADATA: 8, INIT_PRODUCER_ID: 1}
"""The last versions without tagged fields, so that all headers have the same format."""
_HEADER = struct.Struct(">hhi")
_MOST_REPLY_BYTES = 256 << 20
_CLIENT = string("kafscale", False)

Address = tuple[str, int]


class Refusal(KafscaleError):
    """A broker's answer is a Kafka error code."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name.upper())
        self.code = code

    @property
    def retriable(self) -> bool:
        """Whether a retry may succeed."""
        return bool(self.code.retriable)


class _Connection:
    """A connection for one request at a time. It is not used again after a failed request."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._correlation = 0

    async def ask(self, api_key: int, body: bytes) -> bytes:
        """Send a request and return the answer. Raises Unavailable if the outcome is unknown."""
        self._correlation += 1
        header = _HEADER.pack(api_key, _VERSIONS[api_key], self._correlation) + _CLIENT
        try:
            await self._stream.send_all(struct.pack(">i", len(header) + len(body)) + header + body)
            (size,) = struct.unpack(">i", await self._exactly(4))
            if not 4 <= size <= _MOST_REPLY_BYTES:
                raise Unavailable(f"invalid answer of {size} bytes: not a Kafka listener, or one with TLS")
            reply = await self._exactly(size)
        except trio.BrokenResourceError as error:
            raise Unavailable("connection lost") from error
        if struct.unpack_from(">i", reply)[0] != self._correlation:
            raise Unavailable("the answer belongs to another request")
        return reply[4:]

    async def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = await self._stream.receive_some(min(size - len(data), 1 << 20))
            if not part:
                raise Unavailable("the broker closed the connection")
            data += part
        return bytes(data)

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


class Brokers:
    """The brokers of a cluster, found through ``bootstrap``. An async context manager, which closes the connections.

    Each broker gets one request at a time. ``seconds`` is the time limit for one answer.
    """

    def __init__(self, bootstrap: Sequence[Address], *, seconds: float) -> None:
        self.seconds = seconds
        self._bootstrap = list(bootstrap)
        self._known: dict[int, Address] = {}
        self._connections: dict[Address, _Connection] = {}

    async def __aenter__(self) -> "Brokers":
        return self

    async def __aexit__(self, *_: object) -> None:
        with trio.CancelScope(shield=True):
            for connection in self._connections.values():
                await connection.aclose()

    async def leaders(self, topic: str) -> dict[int, int]:
        """Return the leaders' broker ids by partition, -1 if there is none. Raises Refusal, Unavailable."""
        request = {
            "topics": ({"name": topic},),
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        reply = await self.ask_any(METADATA, request)
        self._known = {int(each.node_id): (each.host, int(each.port)) for each in reply.brokers}
        (found,) = reply.topics
        if found.error_code is ErrorCode.unknown_topic_or_partition:
            raise Refusal(found.error_code, f"The topic {topic} does not exist.")
        if found.error_code is not ErrorCode.none:
            refusal = Refusal(found.error_code)
            raise Unavailable(str(refusal)) if refusal.retriable else refusal
        return {int(each.partition_index): int(each.leader_id) for each in found.partitions}

    async def ask(self, node_id: int, api_key: int, values: dict[str, Any]) -> Any:
        """Send a request and return the reply as a kio entity. ``values`` are the request's fields by kio's names.

        Raises Unavailable if the outcome is unknown.
        """
        if node_id not in self._known:
            raise Unavailable(f"broker {node_id} is not available")
        return await self._ask(self._known[node_id], api_key, values)

    async def ask_any(self, api_key: int, values: dict[str, Any]) -> Any:
        """Send a request that is safe to repeat to one broker after another until one answers."""
        failures = []
        for address in dict.fromkeys([*self._known.values(), *self._bootstrap]):
            try:
                return await self._ask(address, api_key, values)
            except Unavailable as error:
                failures.append(f"{address[0]}:{address[1]}: {error}")
        raise Unavailable("no broker answers: " + "; ".join(failures))

    async def _ask(self, address: Address, api_key: int, values: dict[str, Any]) -> Any:
        body = _written(_built(load_request_schema(api_key, _VERSIONS[api_key]), values))
        with trio.move_on_after(self.seconds):
            # Removed during the request, so that a failed connection is not used again.
            connection = self._connections.pop(address, None) or await _connected(address)
            try:
                reply = await connection.ask(api_key, body)
            except BaseException:
                with trio.CancelScope(shield=True):
                    await connection.aclose()
                raise
            self._connections[address] = connection
            try:
                return _reader(api_key)(reply, 0)[0]
            except (*DECODE_ERRORS, ValueError) as error:
                raise Unavailable(f"the answer cannot be decoded: {error}") from error
        raise Unavailable(f"no answer within {self.seconds:g} s")


async def _connected(address: Address) -> _Connection:
    """Connect to a broker. Raises Unavailable."""
    try:
        return _Connection(await trio.open_tcp_stream(*address))
    except OSError as error:
        raise Unavailable(str(error)) from error


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
