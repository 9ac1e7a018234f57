"""Connections of an HTTP client to a server on loopback."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import certifi
import pytest
import trio
import trustme
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale.objects.http_connections import Connections, HttpLimits, _tls
from kafscale.objects.http_wire import HttpError, Origin, Response
from kafscale.objects.s3_http import _SpreadBody

_HEAD = b"PUT / HTTP/1.1\r\nhost: x\r\n\r\n"
_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

Serve = Callable[[trio.SocketStream], Awaitable[None]]


class Server:
    """Calls ``serve`` with each connection."""

    def __init__(self, serve: Serve, limits: HttpLimits) -> None:
        self.accepted = 0
        self.open = 0
        self._serve = serve
        self._limits = limits

    @asynccontextmanager
    async def connections(self) -> AsyncIterator[Connections]:
        """Run the server, and yield a client's connections to it. They are closed first."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        origin = Origin("127.0.0.1", listeners[0].socket.getsockname()[1], tls=False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self._connected, listeners)
            async with Connections(origin, self._limits) as connections:
                yield connections
            await wait_all_tasks_blocked(0.05)
            assert self.open == 0
            nursery.cancel_scope.cancel()

    async def _connected(self, stream: trio.SocketStream) -> None:
        self.accepted += 1
        self.open += 1
        async with stream:
            try:
                await self._serve(stream)
            finally:
                self.open -= 1


async def _put(connections: Connections, body: bytes = b"") -> Response:
    return await connections.exchange("PUT", lambda: _HEAD, _SpreadBody(body, 0.0))


async def test_a_connection_is_used_again_unless_the_server_has_closed_it() -> None:
    answered = 0

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal answered
        async for _ in stream:
            await stream.send_all(_OK)
            answered += 1
            if answered == 2:
                return

    server = Server(serve, HttpLimits())
    async with server.connections() as connections:
        for expected in (1, 1, 2):
            assert (await _put(connections)).body == b"ok"
            await wait_all_tasks_blocked()
            assert server.accepted == expected


async def test_connections_that_are_idle_for_long_are_closed(mock_clock: MockClock) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        async for _ in stream:
            await stream.send_all(_OK)

    server = Server(serve, HttpLimits())
    async with server.connections() as connections:
        async with trio.open_nursery() as requests:
            for _ in range(2):
                requests.start_soon(_put, connections)
        mock_clock.jump(11)
        await _put(connections)
        await wait_all_tasks_blocked(0.05)
        assert (server.accepted, server.open) == (3, 1)


async def test_requests_share_no_connection_and_wait_for_a_free_one() -> None:
    release = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        async for _ in stream:
            await release.wait()
            await stream.send_all(_OK)

    server = Server(serve, HttpLimits(connections=2, pool=0.1))
    async with server.connections() as connections:
        async with trio.open_nursery() as requests:
            for _ in range(2):
                requests.start_soon(_put, connections)
            await wait_all_tasks_blocked(0.05)
            with pytest.raises(HttpError, match="all connections are in use"):
                await _put(connections)
            release.set()
        assert (await _put(connections)).body == b"ok"
        assert server.accepted == 2


async def test_a_response_is_read_although_the_connection_was_closed_before_the_body_was_sent() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\n\r\n")
        await trio.sleep(0.1)

    server = Server(serve, HttpLimits())
    async with server.connections() as connections:
        for expected in (1, 2):
            assert (await _put(connections, bytes(64 << 20))).status == 503
            assert server.accepted == expected


@pytest.mark.parametrize(
    ("limits", "size", "step"),
    [(HttpLimits(read=0.1), 1, "waiting for the response"), (HttpLimits(write=0.1), 64 << 20, "sending")],
)
async def test_a_server_that_makes_no_progress_is_given_up(limits: HttpLimits, size: int, step: str) -> None:
    async def serve(_: trio.SocketStream) -> None:
        await trio.sleep(0.3)

    async with Server(serve, limits).connections() as connections:
        with pytest.raises(HttpError, match=f"no progress for 0.1 s while {step}"):
            await _put(connections, bytes(size))
        await trio.sleep(0.3)


async def test_a_cancelled_request_closes_its_connection() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        async for _ in stream:
            pass

    server = Server(serve, HttpLimits())
    async with server.connections() as connections:
        with trio.move_on_after(0.1):
            await _put(connections)
        await wait_all_tasks_blocked(0.05)
        assert (server.accepted, server.open) == (1, 0)


async def test_a_server_with_tls_must_have_a_certificate_for_its_host_that_is_trusted(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    connected = 0

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        nonlocal connected
        connected += 1
        with suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                await stream.send_all(_OK)

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    secured = [trio.SSLListener(listener, context, https_compatible=True) for listener in listeners]
    nursery.start_soon(trio.serve_listeners, serve, secured)
    for trusted, host in ((True, "localhost"), (True, "127.0.0.1"), (False, "localhost")):
        _tls.cache_clear()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem" if trusted else certifi.where()))
        async with Connections(Origin(host, port, tls=True), HttpLimits()) as connections:
            if trusted and host == "localhost":
                assert [(await _put(connections, b"x")).body for _ in range(2)] == [b"ok"] * 2
                assert connected == 1
                continue
            with pytest.raises(HttpError, match="certificate verify failed"):
                await _put(connections)
    _tls.cache_clear()


async def test_nobody_listens() -> None:
    with trio.socket.socket() as free:
        await free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with Connections(Origin("127.0.0.1", port, tls=False), HttpLimits()) as connections:
        with pytest.raises(HttpError, match="all attempts to connect"):
            await _put(connections)
