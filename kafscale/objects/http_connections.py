"""A client's HTTP/1.1 connections to one server, on Trio. Each carries one request at a time."""

import math
import select
import ssl
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Self

import certifi
import trio

from kafscale.errors import reason_of
from kafscale.objects.http_wire import HttpError, Origin, Response, ResponseParser
from kafscale.records.checksum import Buffer

_READ_BYTES = 1 << 20
_IDLE_SECONDS = 10.0  # the server may close connections that are idle for longer
_BROKEN = (OSError, trio.BrokenResourceError)

_Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Timeouts in seconds (``read`` and ``write``: without progress; ``pool``: wait for a connection), and connections.

    ``connections`` limits reads and writes separately, so that slow reads never delay a flush.
    """

    connect: float = 5.0
    read: float = 15.0
    write: float = 15.0
    pool: float = 10.0
    connections: int = 32


class _Patience:
    """Cancels ``scope`` if a step does not end, or make progress, in time."""

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.scope = trio.CancelScope()
        self.exceeded = ""

    def allow(self, step: str, seconds: float) -> None:
        """Allow ``seconds`` from now on."""
        self.scope.deadline = trio.current_time() + seconds
        self.exceeded = f"no progress for {seconds:g} s while {step}"


class Connections:
    """At most ``limits.connections`` connections to one server."""

    def __init__(self, origin: Origin, limits: HttpLimits) -> None:
        self._origin = origin
        self._limits = limits
        self._turns = trio.CapacityLimiter(limits.connections)
        # The one that was used last is at the end.
        self._idle: list[_Connection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections. No request may be in progress."""
        with trio.CancelScope(shield=True):
            while self._idle:
                await trio.aclose_forcefully(self._idle.pop().stream)

    async def exchange(self, method: str, head: Callable[[], bytes], body: AsyncIterable[Buffer]) -> Response:
        """Send a request and return the response. Raises HttpError. If it is cancelled, the connection is closed.

        ``head`` returns the request line and the headers. It is called when a connection is free.
        """
        await self._wait_for_turn()
        patience = _Patience(self._limits)
        try:
            with patience.scope:
                return await self._exchange(method, head(), body, patience)
        except _BROKEN as error:
            raise HttpError(reason_of(error)) from error
        finally:
            self._turns.release()
        raise HttpError(patience.exceeded)

    async def _wait_for_turn(self) -> None:
        try:
            self._turns.acquire_nowait()
        except trio.WouldBlock:
            with trio.move_on_after(self._limits.pool) as waiting:
                await self._turns.acquire()
            if waiting.cancelled_caught:
                raise HttpError("all connections are in use") from None

    async def _exchange(self, method: str, head: bytes, body: AsyncIterable[Buffer], patience: _Patience) -> Response:
        connection = await self._idle_one() or await self._opened(patience)
        parser = ResponseParser(method)
        try:
            await connection.send(head, body, patience)
            response = await connection.receive(parser, patience)
        except BaseException:
            await trio.aclose_forcefully(connection.stream)
            raise
        if parser.keeps_alive and not connection.broken:
            connection.idle_since = trio.current_time()
            self._idle.append(connection)
        else:
            await trio.aclose_forcefully(connection.stream)
        return response

    async def _idle_one(self) -> "_Connection | None":
        while self._idle and self._idle[0].is_old:
            await trio.aclose_forcefully(self._idle.pop(0).stream)
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            await trio.aclose_forcefully(connection.stream)
        return None

    async def _opened(self, patience: _Patience) -> "_Connection":
        patience.allow("connecting", self._limits.connect)
        transport = await trio.open_tcp_stream(self._origin.host, self._origin.port)
        if not self._origin.tls:
            return _Connection(transport, transport)
        secured = trio.SSLStream(transport, _tls(), server_hostname=self._origin.host, https_compatible=True)
        try:
            await secured.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(transport)
            raise
        return _Connection(secured, transport)


class _Connection:
    def __init__(self, stream: _Stream, transport: trio.SocketStream) -> None:
        self.stream = stream
        self.broken = False
        self.idle_since = 0.0
        self._poll = select.poll()
        self._poll.register(transport.socket.fileno(), select.POLLIN)

    @property
    def is_old(self) -> bool:
        """Whether it is idle for so long that the server may close it at any time."""
        return trio.current_time() >= self.idle_since + _IDLE_SECONDS

    @property
    def usable(self) -> bool:
        """Whether another request may be sent. The socket is readable if the server has closed the connection."""
        return not self.is_old and not self._poll.poll(0)

    async def send(self, head: bytes, body: AsyncIterable[Buffer], patience: _Patience) -> None:
        """Send a request. If the server closes the connection before that ends, its response may still be readable."""
        try:
            async for piece in body:
                patience.allow("sending", patience.limits.write)
                # To copy the first piece takes less time than a second system call.
                await self.stream.send_all(head + piece if head else piece)
                head = b""
                patience.scope.deadline = math.inf
            if head:
                patience.allow("sending", patience.limits.write)
                await self.stream.send_all(head)
        except trio.BrokenResourceError:
            self.broken = True

    async def receive(self, parser: ResponseParser, patience: _Patience) -> Response:
        """Receive the response. Raises HttpError."""
        while parser.response is None:
            patience.allow("waiting for the response", patience.limits.read)
            data = await self.stream.receive_some(_READ_BYTES)
            if data:
                parser.feed(data)
            else:
                parser.end()
        return parser.response


@cache
def _tls() -> ssl.SSLContext:
    """Return the context for all connections. It trusts the system's authorities and those of certifi."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context
