"""Live pages: WebSockets on the console's port, by trio-websocket.

A browser only reads. One that sends a message, does not read, or does not answer pings is disconnected.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, WebSocketServer

_MOST_BYTES_RECEIVED = 4096
_HANDSHAKE_SECONDS = 10.0
_CLOSE_SECONDS = 5.0
_PING_SECONDS = 20.0
_SEND_SECONDS = 20.0
_POLICY_VIOLATION = 1008

Send = Callable[[dict[str, Any] | str], Awaitable[None]]
"""Sends a message: what ``json.dumps`` accepts, or JSON."""


class _OneStream(trio.abc.Listener[trio.abc.Stream]):
    """Accepts one connection, which exists already. ``ended`` is set when it is closed."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream: trio.abc.Stream | None = stream
        self.ended = trio.Event()

    async def accept(self) -> trio.abc.Stream:
        if self._stream is None:
            await trio.sleep_forever()
        stream, self._stream = self._stream, None
        return _Watched(stream, self.ended)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class _Watched(trio.abc.Stream):
    def __init__(self, stream: trio.abc.Stream, ended: trio.Event) -> None:
        self._stream = stream
        self._ended = ended

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return bytes(await self._stream.receive_some(max_bytes))

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._ended.set()


async def serve_live(stream: trio.abc.Stream, talk: Callable[[Send], Awaitable[None]]) -> None:
    """Answer the WebSocket handshake that ``stream`` begins with, and run ``talk`` until either side ends.

    ``talk`` gets a function that sends a message, and waits while the browser is slow.
    """
    once = _OneStream(stream)

    async def handle(request: WebSocketRequest) -> None:
        await _converse(await request.accept(), talk)

    server = WebSocketServer(
        handle,
        [once],  # type: ignore[list-item]  # it accepts any listener
        message_queue_size=1,
        max_message_size=_MOST_BYTES_RECEIVED,
        connect_timeout=_HANDSHAKE_SECONDS,
        disconnect_timeout=_CLOSE_SECONDS,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        await once.ended.wait()
        nursery.cancel_scope.cancel()


async def _converse(connection: WebSocketConnection, talk: Callable[[Send], Awaitable[None]]) -> None:
    async def send(message: dict[str, Any] | str) -> None:
        text = message if isinstance(message, str) else json.dumps(message, separators=(",", ":"))
        with trio.move_on_after(_SEND_SECONDS) as patience:
            await connection.send_message(text)
        if patience.cancelled_caught:
            nursery.cancel_scope.cancel()

    async def speak() -> None:
        await talk(send)
        nursery.cancel_scope.cancel()

    async def listen() -> None:
        await connection.get_message()
        # It waits until the browser closes too.
        with trio.move_on_after(_CLOSE_SECONDS):
            await connection.aclose(_POLICY_VIOLATION, "this connection is only for reading")
        nursery.cancel_scope.cancel()

    async def ping() -> None:
        while True:
            await trio.sleep(_PING_SECONDS)
            with trio.move_on_after(_PING_SECONDS) as patience:
                await connection.ping()
            if patience.cancelled_caught:
                nursery.cancel_scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            for part in (speak, listen, ping):
                nursery.start_soon(part)
    except* ConnectionClosed:
        pass
