"""Sends signed requests to S3 over HTTP/1.1 on Trio, with httpcore, the engine of httpx.

httpx itself reads 64 KiB at a time, without a setting for it, which doubles the CPU time for segments of some MiB.
"""

import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import httpcore
import trio

from kafscale.errors import Unavailable
from kafscale.objects.interface import Body
from kafscale.objects.s3_wire import Reply, Signer, failure

_READS = ("GET", "HEAD")
_USER_AGENT = "kafscale"
_READ_BYTES = 1 << 20
_PIECE_BYTES = 1 << 18
_HEAD_BYTES = 16 << 10
_END_OF_HEAD = b"\r\n\r\n"
_JOINED_BYTES = 128 << 10
"""A head is copied in front of a body of up to this size, because a second write costs more."""
_IDLE_SECONDS = 10.0  # the server may close connections that are idle for longer
_BROKEN = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError)


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


class NoAnswer(Unavailable):
    """The endpoint sent no complete reply: unknown host, no connection, a timeout or a broken reply."""


class S3Http:
    """Requests to one bucket. ``now`` returns the wall clock with a time zone. Created by ``open``."""

    def __init__(self, signer: Signer, now: Callable[[], datetime], limits: HttpLimits, lanes: "_Lanes") -> None:
        self.now = now
        self.clock_skew_seconds: float | None = None  # the server's clock minus ours, within about a second
        self._signer = signer
        self._lanes = lanes
        timeout = {"connect": limits.connect, "read": limits.read, "write": limits.write, "pool": limits.pool}
        self._extensions = {"timeout": timeout}

    @classmethod
    @asynccontextmanager
    async def open(cls, signer: Signer, now: Callable[[], datetime], limits: HttpLimits) -> AsyncIterator["S3Http"]:
        async with _pool(limits) as reads, _pool(limits) as writes:
            lanes = _Lanes(*(_Lane(pool, limits.connections, limits.pool) for pool in (reads, writes)))
            yield cls(signer, now, limits, lanes)

    async def request(
        self,
        method: str,
        key: str = "",
        *,
        expect: tuple[int, ...] = (200,),
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body = b"",
        send_seconds: float = 0.0,
        date: datetime | None = None,
    ) -> Reply:
        """Return the reply if its status is in ``expect``; otherwise raise the error of ``failure``. Raises NoAnswer.

        ``send_seconds``: over how many seconds the body is sent, if it has several pieces; 0: as fast as possible.

        A write is signed before the first await, with ``date`` or the current time, because callers rely on when it may
        take effect. A read is signed when it has a connection.
        """

        def sign() -> tuple[str, datetime]:
            at = date or self.now()
            return self._signer.url(method, key, query or {}, at), at

        lane, signed = (self._lanes.reads, None) if method in _READS else (self._lanes.writes, sign())
        sent = [("user-agent", _USER_AGENT), ("content-length", str(len(body))), *(headers or {}).items()]
        content = _Pieces(body, send_seconds)
        try:
            async with lane.turn():
                url, signed_at = signed or sign()
                async with lane.pool.stream(
                    method, url, headers=sent, content=content, extensions=self._extensions
                ) as response:
                    received_at = self.now()
                    received = await response.aread()
        except _BROKEN as error:
            raise NoAnswer(f"{method} {key or 'bucket'}: {type(error).__name__} {error}".rstrip()) from error
        reply = Reply(method, key, response.status, _decoded(response.headers), received, signed_at)
        self._note_skew(reply, received_at)
        if reply.status not in expect:
            raise failure(reply)
        return reply

    def _note_skew(self, reply: Reply, received_at: datetime) -> None:
        """Measure the clock skew. Only quick answers count, because Date is from any time between both readings."""
        if reply.date is not None and timedelta(0) <= received_at - reply.signed_at < timedelta(seconds=1):
            half_a_second = timedelta(seconds=0.5)  # Date is truncated to seconds
            self.clock_skew_seconds = (reply.date + half_a_second - received_at).total_seconds()


class _Lane:
    """A pool of connections, for which requests wait here, at most ``seconds``.

    If they waited in httpcore's pool, it would look at all of them for each one that ends.
    """

    def __init__(self, pool: httpcore.AsyncConnectionPool, connections: int, seconds: float) -> None:
        self.pool = pool
        self._turns = trio.CapacityLimiter(connections)
        self._seconds = seconds

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a free connection. Raises httpcore.PoolTimeout."""
        with trio.move_on_after(self._seconds) as waiting:
            await self._turns.acquire()
        if waiting.cancelled_caught:
            raise httpcore.PoolTimeout("all connections are in use")
        try:
            yield
        finally:
            self._turns.release()


@dataclass(frozen=True, slots=True)
class _Lanes:
    reads: _Lane
    writes: _Lane


def _pool(limits: HttpLimits) -> httpcore.AsyncConnectionPool:
    return httpcore.AsyncConnectionPool(
        max_connections=limits.connections, keepalive_expiry=_IDLE_SECONDS, network_backend=_Network()
    )


class _Pieces:
    """Iterates over a body, in pieces that fit in the CPU's cache, because httpcore copies anything but ``bytes``.

    ``seconds``: over how many the pieces are spread. An async generator would be left open when a request is cancelled.
    """

    def __init__(self, body: Body, seconds: float) -> None:
        self._left = [body] if isinstance(body, bytes) and not seconds else _views(body)
        self._pause = seconds / max(len(self._left), 1)
        self._due: float | None = None

    def __aiter__(self) -> "_Pieces":
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        if self._pause:
            # The first one is sent at once, because a signature expires and a connection must not be silent for long.
            self._due = trio.current_time() if self._due is None else self._due + self._pause
            await trio.sleep_until(self._due)
        return bytes(self._left.pop())


def _views(body: Body) -> list[Body]:
    view = memoryview(body)
    return [view[start : start + _PIECE_BYTES] for start in reversed(range(0, len(view), _PIECE_BYTES))]


def _decoded(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("ascii").lower(): value.decode("latin-1") for name, value in headers}


class _Network(httpcore.AsyncNetworkBackend):
    """httpcore's Trio backend with `_Stream`."""

    def __init__(self) -> None:
        self._inner = httpcore.TrioBackend()

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._inner.connect_tcp(*args, **kwargs))

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


class _Stream(httpcore.AsyncNetworkStream):
    """Reads up to _READ_BYTES at once, and sends the head of a request together with the start of its body."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        # The head of a request that was not sent yet.
        self._head = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        await self._send(b"", timeout)
        return await self._inner.read(max(max_bytes, _READ_BYTES), timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not self._head and len(buffer) <= _HEAD_BYTES and buffer.endswith(_END_OF_HEAD):
            self._head = buffer
        else:
            await self._send(buffer, timeout)

    async def _send(self, buffer: bytes, timeout: float | None) -> None:
        head, self._head = self._head, b""
        if head and len(buffer) > _JOINED_BYTES:
            await self._inner.write(head, timeout)
        elif head:
            buffer = head + buffer
        if buffer:
            await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
