"""A small HTTP/1.1 server on Trio and h11 for health checks and metrics.

It accepts GET and HEAD without a body. The number of connections and the time for each handshake, request and reply are
bounded.
"""

import ssl
from collections.abc import Callable, Iterator, Mapping
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
_JSON = "application/json"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Response:
    body: bytes
    content_type: str = _JSON
    status: HTTPStatus = HTTPStatus.OK


Route = Callable[[], Response]
_Stream = trio.SocketStream | TlsStream


class HttpServer:
    """Serves ``routes`` by path.

    A connection beyond ``max_connections`` takes the place of the one whose client has been silent for the longest
    time, so that silent clients do not keep probes out. If all others are being answered, it is closed.

    ``context`` returns the TLS context for a new connection. None: connections are not encrypted.
    """

    def __init__(
        self,
        routes: Mapping[str, Route],
        *,
        max_connections: int,
        context: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._routes = dict(routes)
        self._max_connections = max_connections
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
            raise ConfigError(f"KAFSCALE_HTTP_ADDR: cannot listen on {host}:{port}: {error}") from error
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
        while True:
            try:
                with self._silence(_IDLE_SECONDS) as patience:
                    request = await _next_request(connection, stream)
                if patience.cancelled_caught or request is None:
                    return
                response = self._answer(request)
            except h11.RemoteProtocolError as error:
                # h11 permits one response even to a client that has not sent valid HTTP. It has no body, because the
                # request may have been a HEAD.
                request, response = None, Response(b"", status=HTTPStatus(error.error_status_hint))
            with trio.move_on_after(_SEND_SECONDS) as patience:
                await stream.send_all(_encoded(connection, request, response))
            if patience.cancelled_caught:
                return
            try:
                connection.start_next_cycle()
            except h11.LocalProtocolError:
                return  # the client or the server closes the connection

    def _answer(self, request: h11.Request) -> Response:
        path = request.target.partition(b"?")[0].decode("ascii", "replace")
        route = self._routes.get(path)
        if route is None:
            return _text(HTTPStatus.NOT_FOUND, "not found; available paths: " + ", ".join(sorted(self._routes)))
        if request.method not in (b"GET", b"HEAD"):
            return _text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are allowed")
        try:
            return route()
        except Exception:  # noqa: BLE001  a failed request must not end the server
            _log.exception("request failed", path=path)
            return _text(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the log")


async def _next_request(connection: h11.Connection, stream: _Stream) -> h11.Request | None:
    """Read one request to its end. Return None if the client has disconnected. Requests with a body are refused."""
    request: h11.Request | None = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(_READ_BYTES))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            raise h11.RemoteProtocolError("has a body", error_status_hint=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        elif isinstance(event, h11.EndOfMessage):
            return request
        else:
            return None


def _encoded(connection: h11.Connection, request: h11.Request | None, response: Response) -> bytes:
    headers = [
        ("content-type", response.content_type),
        ("content-length", str(len(response.body))),
        ("cache-control", "no-store"),
    ]
    if request is None:
        headers.append(("connection", "close"))
    reason = response.status.phrase.encode()
    head = connection.send(h11.Response(status_code=response.status, headers=headers, reason=reason)) or b""
    if request is not None and request.method == b"HEAD":
        return head + (connection.send(h11.EndOfMessage()) or b"")
    body = connection.send(h11.Data(data=response.body)) or b""
    return head + body + (connection.send(h11.EndOfMessage()) or b"")


def _text(status: HTTPStatus, text: str) -> Response:
    return Response(f"{text}\n".encode(), "text/plain; charset=utf-8", status)
