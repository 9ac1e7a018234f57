"""An HTTP proxy for S3 that rejects, loses, delays and truncates at configurable rates.

It forwards requests unchanged, because they are signed, including the Host header.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import h11
import trio

from tests.support.proxies.tcp import BROKEN, port_of, reset

_READ_BYTES = 1 << 18
_STALL_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class S3Faults:
    """The shares (0 to 1) of requests with each fault. Their sum is at most 1."""

    slow_down: float = 0.0
    """503 SlowDown. The request does not reach the server."""
    internal: float = 0.0
    """500 InternalError. The request does not reach the server."""
    lost: float = 0.0
    """The server executes the request, and the connection is closed without a response."""
    late: float = 0.0
    """The connection is closed at once. The server gets the request up to ``late_seconds`` later."""
    slow: float = 0.0
    """The response is delayed by up to ``slow_seconds``."""
    stalled: float = 0.0
    """No response on an open connection until the client gives up, for at most twenty seconds."""
    truncated: float = 0.0
    """The connection is closed in the middle of the response body. A response without a body is lost."""


LATE_SECONDS = 10.0
SLOW_SECONDS = 3.0
HEALTHY = S3Faults()


@dataclass(frozen=True)
class _Message:
    head: Any
    body: bytes


def _refusal(status: int, code: str) -> _Message:
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code></Error>'.encode()
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
    return _Message(h11.Response(status_code=status, headers=headers), body)


_REFUSALS = {"slow_down": _refusal(503, "SlowDown"), "internal": _refusal(500, "InternalError")}


class S3FaultProxy:
    """A proxy for the S3 server ``target`` (host:port). `run` listens on a free port. ``random`` returns 0 to 1."""

    def __init__(self, target: str, random: Callable[[], float]) -> None:
        self.target = target
        self.address = ""
        self.faults = HEALTHY
        self.met: dict[str, int] = {}
        """The number of requests with each fault."""
        self._random = random
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Reports `started` when ``address`` is set and connections are accepted."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.address = f"127.0.0.1:{port_of(listeners)}"
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.serve_listeners(self._serve, listeners)

    async def _serve(self, client: trio.SocketStream) -> None:
        parser = h11.Connection(h11.SERVER)
        try:
            while (request := await _receive(client, parser)) is not None:
                if not await self._answer(client, parser, request):
                    break
                if parser.our_state is not h11.DONE or parser.their_state is not h11.DONE:
                    break
                parser.start_next_cycle()
        except (*BROKEN, h11.RemoteProtocolError):
            pass  # the client or the server closed the connection; the RST below notifies the client
        finally:
            reset(client)

    async def _answer(self, client: trio.SocketStream, parser: h11.Connection, request: _Message) -> bool:
        """Answer a request. Return whether the connection stays open."""
        fault = self._choose()
        if fault in _REFUSALS:
            await client.send_all(_sent(parser, request, _REFUSALS[fault]))
            return True
        if fault == "late":
            assert self._nursery is not None
            self._nursery.start_soon(self._deliver_late, request, LATE_SECONDS * self._random())
            return False
        if fault == "stalled":
            await trio.sleep(_STALL_SECONDS)
            return False
        reply = await self._ask(request)
        if fault == "lost":
            return False
        if fault == "slow":
            await trio.sleep(SLOW_SECONDS * self._random())
        whole = _sent(parser, request, reply)
        if fault == "truncated":
            await client.send_all(whole[: len(whole) - (len(reply.body) + 1) // 2] if reply.body else b"")
            return False
        await client.send_all(whole)
        return True

    def _choose(self) -> str | None:
        chance = self._random()
        for field in fields(S3Faults):
            chance -= getattr(self.faults, field.name)
            if chance < 0:
                self.met[field.name] = self.met.get(field.name, 0) + 1
                return field.name
        return None

    async def _deliver_late(self, request: _Message, seconds: float) -> None:
        await trio.sleep(seconds)
        try:
            await self._ask(request)
        except (*BROKEN, h11.RemoteProtocolError):
            pass  # no one waits for the response

    async def _ask(self, request: _Message) -> _Message:
        """Return the server's response. Raise an error of BROKEN, or RemoteProtocolError if it is truncated."""
        host, _, port = self.target.rpartition(":")
        server = await trio.open_tcp_stream(host, int(port))
        async with server:
            parser = h11.Connection(h11.CLIENT)
            head = h11.Request(
                method=request.head.method, target=request.head.target, headers=request.head.headers.raw_items()
            )
            sent = parser.send(head) or b""
            if request.body:
                sent += parser.send(h11.Data(data=request.body)) or b""
            await server.send_all(sent + (parser.send(h11.EndOfMessage()) or b""))
            reply = await _receive(server, parser)
            if reply is None:
                raise h11.RemoteProtocolError("closed without a response")
            return reply


async def _receive(stream: trio.SocketStream, parser: h11.Connection) -> _Message | None:
    """Return the next complete message, or None if the peer closed before one began."""
    head: Any = None
    body = bytearray()
    while True:
        event = parser.next_event()
        if event is h11.NEED_DATA:
            parser.receive_data(await stream.receive_some(_READ_BYTES))
        elif isinstance(event, h11.Request | h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return _Message(head, bytes(body))
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            return None


def _sent(parser: h11.Connection, request: _Message, reply: _Message) -> bytes:
    """Return the bytes of ``reply``, without the body for HEAD."""
    headers = reply.head.headers.raw_items()
    parts = [parser.send(h11.Response(status_code=reply.head.status_code, headers=headers, reason=reply.head.reason))]
    if request.head.method != b"HEAD":
        parts.append(parser.send(h11.Data(data=reply.body)))
    return b"".join(part or b"" for part in (*parts, parser.send(h11.EndOfMessage())))
