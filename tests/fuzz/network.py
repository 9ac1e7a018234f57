"""Attacks on the ports of a running process. An attack is one connection; its random numbers decide what it sends."""

import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import trio
from kio.index import load_response_schema
from kio.serial import entity_reader

from kafscale.errors import CorruptData
from kafscale.kafka import codec
from kafscale.kafka.connection import KafkaConnection, Request
from tests.fuzz.broker import Attacked
from tests.fuzz.requests import FIRST_OF_KIO

Attack = Callable[[Attacked, Random], Awaitable[None]]
"""Raises `Wrong` if the process answers with something that it must not send."""

_SILENCE_SECONDS = 0.2
"""How long an attack waits for more of an answer. Some requests are answered after minutes only."""
_MOST_ANSWERED = 64 << 20
_READ_BYTES = 1 << 16


class Wrong(Exception):
    """An answer that the process must not send."""


async def connect(target: Attacked, port: str) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", target.ports[port])


async def send_in_pieces(stream: trio.abc.Stream, random: Random, data: bytes) -> None:
    """Send data at once or in pieces, with pauses of some ms."""
    if random.random() < 0.8:
        await stream.send_all(data)
        return
    start = 0
    for _ in range(8):
        end = start + random.randint(1, max(1, len(data) // 3))
        await stream.send_all(data[start:end])
        await trio.sleep(random.random() / 100)
        start = end
    await stream.send_all(data[start:])


async def answer(stream: trio.abc.Stream) -> bytes:
    """Return what the process answers until it is silent or closes the connection."""
    received = bytearray()
    try:
        while len(received) < _MOST_ANSWERED:
            with trio.move_on_after(_SILENCE_SECONDS) as patience:
                data = await stream.receive_some(_READ_BYTES)
            if patience.cancelled_caught or not data:
                break
            received += data
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    return bytes(received)


def check_replies(sent: bytes, received: bytes) -> None:
    """Check that complete replies belong to requests in ``sent``, in their order, and can be decoded."""
    asked = _requests_in(sent)
    position = 0
    while len(received) - position >= 8:
        size, correlation_id = struct.unpack_from(">ii", received, position)
        if size < 4:
            raise Wrong(f"a reply of {size} bytes")
        body = memoryview(received)[position + 8 : position + 4 + size]
        if len(body) < size - 4:
            return
        position += 4 + size
        while asked and asked[0].correlation_id != correlation_id:
            # A Produce request with acks=0 has no reply.
            if asked.pop(0).api_key != 0:
                raise Wrong(f"the reply {correlation_id} has no request, or comes too early")
        if not asked:
            raise Wrong(f"the reply {correlation_id} has no request")
        _check_reply(asked.pop(0), body)


def _check_reply(request: Request, body: memoryview) -> None:
    key, version = request.api_key, request.api_version
    if version < FIRST_OF_KIO.get(key, 0) or (key, version) == (19, 1):
        return
    if key == 18 and not 0 <= version <= 4:
        version = 0
    start = 1 if codec.is_flexible(key, version) and key != 18 else 0
    try:
        _, end = entity_reader(load_response_schema(key, version))(bytes(body[start:]), 0)
    except Exception as error:
        raise Wrong(f"the reply to {key} v{version} cannot be decoded: {error!r}") from error
    if end != len(body) - start:
        raise Wrong(f"the reply to {key} v{version} has {len(body) - start} bytes, of which {end} are read")


def _requests_in(sent: bytes) -> list[Request]:
    connection = KafkaConnection(
        flexible=codec.is_flexible,
        on_ready=lambda: None,
        on_reply=lambda _, __: None,
        max_request_bytes=32 << 20,
        max_in_flight=100_000,
        max_in_flight_bytes=1 << 40,
    )
    found: list[Request] = []
    # What comes before a wrong size is received.
    with suppress(CorruptData):
        connection.receive_data(sent)
    with suppress(CorruptData):
        while (request := connection.next_request()) is not None:
            found.append(request)
    return found
