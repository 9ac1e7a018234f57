"""Sends signed requests to S3 over HTTP/1.1."""

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import trio

from kafscale.errors import Unavailable
from kafscale.objects.http_connections import Connections, HttpLimits
from kafscale.objects.http_wire import HttpError
from kafscale.objects.interface import Body, whole
from kafscale.objects.s3_wire import Reply, Signer, failure
from kafscale.records.checksum import Buffer

_READS = ("GET", "HEAD")
_USER_AGENT = "kafscale"
_PIECE_BYTES = 1 << 18
_SKEW_SECONDS = 1.0
"""How long a measured clock skew is used, because parsing a date takes longer than parsing the rest of a response."""


class NoAnswer(Unavailable):
    """The endpoint sent no complete reply: unknown host, no connection, a timeout or a broken reply."""


class S3Http:
    """Requests to one bucket. ``now`` returns the wall clock with a time zone. Created by ``open``."""

    def __init__(self, signer: Signer, now: Callable[[], datetime], reads: Connections, writes: Connections) -> None:
        self.now = now
        self.clock_skew_seconds: float | None = None  # the server's clock minus ours, within about a second
        self._skew_known_until = -math.inf
        self._signer = signer
        self._reads, self._writes = reads, writes

    @classmethod
    @asynccontextmanager
    async def open(cls, signer: Signer, now: Callable[[], datetime], limits: HttpLimits) -> AsyncIterator["S3Http"]:
        async with Connections(signer.origin, limits) as reads, Connections(signer.origin, limits) as writes:
            yield cls(signer, now, reads, writes)

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
            return self._signer.target(method, key, query or {}, at), at

        connections, signed = (
            (self._reads, list[tuple[str, datetime]]()) if method in _READS else (self._writes, [sign()])
        )

        def head() -> bytes:
            signed[:] = signed or [sign()]
            target, _ = signed[0]
            fields = {
                "host": self._signer.netloc,
                "user-agent": _USER_AGENT,
                "content-length": len(body),
                **(headers or {}),
            }
            lines = (f"{name}: {value}\r\n" for name, value in fields.items())
            return f"{method} {target} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("ascii")

        try:
            response = await connections.exchange(method, head, _SpreadBody(whole(body), send_seconds))
        except HttpError as error:
            raise NoAnswer(f"{method} {key or 'bucket'}: {error}") from error
        received_at = self.now()
        reply = Reply(method, key, response.status, response.headers, response.body, signed[0][1])
        self._note_skew(reply, received_at)
        if reply.status not in expect:
            raise failure(reply)
        return reply

    def _note_skew(self, reply: Reply, received_at: datetime) -> None:
        """Measure the clock skew. Only quick answers count, because Date is from any time between both readings."""
        now = trio.current_time()
        if now < self._skew_known_until:
            return
        if reply.date is not None and timedelta(0) <= received_at - reply.signed_at < timedelta(seconds=1):
            half_a_second = timedelta(seconds=0.5)  # Date is truncated to seconds
            self._skew_known_until = now + _SKEW_SECONDS
            self.clock_skew_seconds = (reply.date + half_a_second - received_at).total_seconds()


class _SpreadBody:
    """Iterates over a body in pieces, so that progress is noticed. ``seconds``: over how many they are spread.

    An async generator would be left open when a request is cancelled.
    """

    def __init__(self, body: Buffer, seconds: float) -> None:
        view = memoryview(body)
        self._left = [view[start : start + _PIECE_BYTES] for start in reversed(range(0, len(view), _PIECE_BYTES))]
        self._pause = seconds / max(len(self._left), 1)
        self._due: float | None = None

    def __aiter__(self) -> "_SpreadBody":
        return self

    async def __anext__(self) -> memoryview:
        if not self._left:
            raise StopAsyncIteration
        if self._pause:
            # The first one is sent at once, because a signature expires and a connection must not be silent for long.
            self._due = trio.current_time() if self._due is None else self._due + self._pause
            await trio.sleep_until(self._due)
        return self._left.pop()
