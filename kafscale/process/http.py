"""A small HTTP/1.1 server on Trio and h11.

The number of connections, the size of each request, and the time for each handshake, request and reply are bounded.
"""

import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

import h11
import structlog
import trio

from kafscale.errors import ConfigError
from kafscale.process.tls_stream import TlsStream

_MAX_HEADER_BYTES = 16 << 10
_READ_BYTES = 4096
_HANDSHAKE_SECONDS = 10.0
"""A connection whose TLS handshake takes longer is closed."""
_IDLE_SECONDS = 30.0
"""A connection on which no complete request arrives for this long is closed."""
_SEND_SECONDS = 10.0
_PIECE_BYTES = 64 << 10
"""A client that takes less than this in _SEND_SECONDS is disconnected."""
_JSON = "application/json"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """``path`` and ``query`` as the client sent them, ``headers`` by lower-case name.

    A header that was sent several times has its values joined by commas, as RFC 9110 says.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    body: bytes
    content_type: str = _JSON
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Handover:
    """Instead of a response: ``take`` gets the connection, from which the bytes of the request can be read again.

    It is closed when ``take`` returns.
    """

    take: Callable[[trio.abc.Stream], Awaitable[None]]


Route = Callable[[], Response]
Handler = Callable[[Request], Awaitable[Response | Handover]]
_Stream = trio.SocketStream | TlsStream


def routed(routes: Mapping[str, Route]) -> Handler:
    """Return a handler of GET and HEAD requests, whose responses ``routes`` make by path."""

    async def handle(request: Request) -> Response:
        route = routes.get(request.path)
        if route is None:
            return text(HTTPStatus.NOT_FOUND, "not found; available paths: " + ", ".join(sorted(routes)))
        if request.method not in ("GET", "HEAD"):
            return text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are allowed")
        return route()

    return handle


def text(status: HTTPStatus, message: str) -> Response:
    return Response(f"{message}\n".encode(), "text/plain; charset=utf-8", status)


class HttpServer:
    """Serves the responses of ``handler``. Requests have bodies of up to ``max_body_bytes``.

    ``setting`` is the name of the setting with the address, for errors.

    A connection beyond ``max_connections`` takes the place of the one whose client has been silent for the longest
    time, so that silent clients do not keep probes out. If all others are being answered, it is closed.

    ``context`` returns the TLS context for a new connection. None: connections are not encrypted.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        setting: str,
        max_connections: int,
        max_body_bytes: int = 0,
        context: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._handler = handler
        self._setting = setting
        self._max_connections = max_connections
        self._max_body_bytes = max_body_bytes
        self._context = context
        self._connections = 0
        self._silent: dict[trio.CancelScope, None] = {}

    async def run(self, host: str, port: int, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. An empty ``host`` means all interfaces. ``started`` reports the port.

        Raises ConfigError if it cannot listen on the address.
        """
        try:
            listeners = await trio.open_tcp_listeners(port, host=host or None)
        except OSError as error:
            raise ConfigError(f"{self._setting}: cannot listen on {host}:{port}: {error}") from error
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self._serve, listeners)
            task_status.started(int(listeners[0].socket.getsockname()[1]))

    async def _serve(self, stream: trio.SocketStream) -> None:
        if self._connections >= self._max_connections and not self._close_a_silent_one():
            await trio.aclose_forcefully(stream)
            return
        self._connections += 1
        try:
            if self._context is None:
                async with stream:
                    await self._converse(stream)
            else:
                await self._converse_by_tls(stream, self._context())
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        except Exception:  # noqa: BLE001  one failed connection must not end the process
            _log.exception("HTTP connection failed")
        finally:
            self._connections -= 1

    def _close_a_silent_one(self) -> bool:
        longest = next(iter(self._silent), None)
        if longest is None:
            return False
        del self._silent[longest]
        longest.cancel()
        return True

    @contextmanager
    def _silence(self, seconds: float) -> Iterator[trio.CancelScope]:
        """Bound the time in which nothing is owed to the client."""
        with trio.move_on_after(seconds) as scope:
            self._silent[scope] = None
            try:
                yield scope
            finally:
                self._silent.pop(scope, None)

    async def _converse_by_tls(self, stream: trio.SocketStream, context: ssl.SSLContext) -> None:
        async with stream:
            secured: TlsStream | None = None
            with self._silence(_HANDSHAKE_SECONDS):
                secured = await TlsStream.handshake(stream, lambda _: context)
            if secured is not None:
                async with secured:
                    await self._converse(secured)

    async def _converse(self, stream: _Stream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEADER_BYTES)
        incoming = _Incoming(connection, stream, self._max_body_bytes)
        while True:
            request: Request | None
            try:
                with self._silence(_IDLE_SECONDS) as patience:
                    request = await incoming.next_request()
                if patience.cancelled_caught or request is None:
                    return
            except h11.RemoteProtocolError as error:
                # h11 permits one response even to a client that has not sent valid HTTP. It has no body, because the
                # request may have been a HEAD.
                request, response = None, Response(b"", status=HTTPStatus(error.error_status_hint))
            else:
                answer = await self._answer(request)
                if isinstance(answer, Handover):
                    await answer.take(_Replayed(bytes(incoming.read), stream))
                    return
                response = answer
            if not await _sent(stream, _encoded(connection, request, response)):
                return
            try:
                connection.start_next_cycle()
            except h11.LocalProtocolError:
                return  # the client or the server closes the connection

    async def _answer(self, request: Request) -> Response | Handover:
        try:
            return await self._handler(request)
        except Exception:  # noqa: BLE001  a failed request must not end the server
            _log.exception("request failed", path=request.path)
            return text(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the log")


class _Incoming:
    """Reads requests. ``read`` are the bytes of the last one, and of what came after it."""

    def __init__(self, connection: h11.Connection, stream: _Stream, max_body_bytes: int) -> None:
        self._connection = connection
        self._stream = stream
        self._max_body_bytes = max_body_bytes
        # Chunks have more bytes than the body.
        self._most_bytes = _MAX_HEADER_BYTES + 2 * max_body_bytes + _READ_BYTES
        self.read = bytearray()

    async def next_request(self) -> Request | None:
        """Read one request to its end. Return None if the client has disconnected. Raises RemoteProtocolError."""
        head: h11.Request | None = None
        body = bytearray()
        self.read = bytearray(self._connection.trailing_data[0])
        while True:
            event = self._connection.next_event()
            if event is h11.NEED_DATA:
                data = await self._stream.receive_some(_READ_BYTES)
                self.read += data
                if len(self.read) > self._most_bytes:
                    raise _too_large()
                self._connection.receive_data(data)
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > self._max_body_bytes:
                    raise _too_large()
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return _request(head, bytes(body))
            else:
                return None


def _too_large() -> h11.RemoteProtocolError:
    return h11.RemoteProtocolError("too large", error_status_hint=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


class _Replayed(trio.abc.Stream):
    """A stream from which ``first`` is received first."""

    def __init__(self, first: bytes, stream: _Stream) -> None:
        self._first = first
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if not self._first:
            return bytes(await self._stream.receive_some(max_bytes or _READ_BYTES))
        await trio.lowlevel.checkpoint()
        size = len(self._first) if max_bytes is None else max_bytes
        received, self._first = self._first[:size], self._first[size:]
        return received

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _sent(stream: _Stream, data: bytes) -> bool:
    """Send ``data`` unless the client is too slow, and return whether all of it was sent."""
    view = memoryview(data)
    for start in range(0, len(view), _PIECE_BYTES):
        with trio.move_on_after(_SEND_SECONDS) as patience:
            await stream.send_all(view[start : start + _PIECE_BYTES])
        if patience.cancelled_caught:
            return False
    return True


def _request(head: h11.Request, body: bytes) -> Request:
    headers: dict[str, str] = {}
    for name, value in head.headers:
        key, shown = name.decode("ascii"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {shown}" if key in headers else shown
    path, _, query = head.target.decode("ascii", "replace").partition("?")
    return Request(head.method.decode("ascii", "replace"), path, query, headers, body)


def _encoded(connection: h11.Connection, request: Request | None, response: Response) -> bytes:
    headers = [
        ("content-type", response.content_type),
        ("content-length", str(len(response.body))),
        ("cache-control", "no-store"),
        *response.headers,
    ]
    if request is None:
        headers.append(("connection", "close"))
    reason = response.status.phrase.encode()
    head = connection.send(h11.Response(status_code=response.status, headers=headers, reason=reason)) or b""
    if request is not None and request.method == "HEAD":
        return head + (connection.send(h11.EndOfMessage()) or b"")
    body = connection.send(h11.Data(data=response.body)) or b""
    return head + body + (connection.send(h11.EndOfMessage()) or b"")
