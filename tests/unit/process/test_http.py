"""The HTTP server of a process: its answers, and its protection from clients."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpcore
import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import ConfigError
from kafscale.process.http import Handover, HttpServer, Request, Response, routed

HOST = "127.0.0.1"


def _broken() -> Response:
    raise ValueError("a bug")


@asynccontextmanager
async def serving(*, max_connections: int = 8, body: bytes = b"{}") -> AsyncIterator[int]:
    routes = {"/x": lambda: Response(body), "/broken": _broken}
    server = HttpServer(routed(routes), setting="KAFSCALE_HTTP_ADDR", max_connections=max_connections)
    async with trio.open_nursery() as nursery:
        yield await nursery.start(server.run, HOST, 0)
        nursery.cancel_scope.cancel()


async def raw(port: int, data: bytes) -> bytes:
    """Return everything up to the close by the server, or up to a reset while it has unread bytes."""
    got = b""
    async with await trio.open_tcp_stream(HOST, port) as stream:
        with trio.fail_after(5), suppress(trio.BrokenResourceError):
            await stream.send_all(data)
            while piece := await stream.receive_some(65536):
                got += piece
        return got


async def test_it_answers_several_requests_on_one_connection() -> None:
    async with serving() as port, httpcore.AsyncConnectionPool(max_connections=1) as pool:
        for _ in range(3):
            found = await pool.request("GET", f"http://{HOST}:{port}/x?a=b")
            assert (found.status, found.content) == (200, b"{}")
        assert (await pool.request("HEAD", f"http://{HOST}:{port}/x")).content == b""
        assert len(pool.connections) == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/y", b"", 404),
        ("POST", "/x", b"", 405),
        ("POST", "/x", b"z" * 100, 413),
        ("GET", "/broken", b"", 500),
    ],
)
async def test_unanswerable_requests_get_an_error_status(method: str, path: str, body: bytes, status: int) -> None:
    async with serving() as port, httpcore.AsyncConnectionPool() as pool:
        found = await pool.request(method, f"http://{HOST}:{port}{path}", content=body)
        assert found.status == status
        assert (await pool.request("GET", f"http://{HOST}:{port}/x")).status == 200


@pytest.mark.parametrize(
    "data",
    [b"\x00\x01 nonsense\r\n\r\n", b"GET /x HTTP/1.1\r\nhost: x\r\na: " + b"b" * 100_000, b"GET /x HTTP/9\r\n\r\n"],
)
async def test_invalid_http_is_refused_and_the_connection_closed(data: bytes) -> None:
    async with serving() as port:
        assert (await raw(port, data))[:10] in (b"HTTP/1.1 4", b"")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"HEAD /x HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc", b"413"),
        (b"HEAD /x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b"400"),
    ],
)
async def test_a_head_request_with_a_body_ends_only_its_connection(data: bytes, status: bytes) -> None:
    async with serving() as port:
        assert (await raw(port, data))[9:12] == status
        assert (await raw(port, b"GET /x HTTP/1.0\r\n\r\n")).endswith(b"{}")


async def test_a_new_connection_replaces_the_one_that_has_been_silent_for_the_longest_time() -> None:
    request = b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n"
    async with serving(max_connections=2) as port:
        first, second = [await trio.open_tcp_stream(HOST, port) for _ in range(2)]
        async with first, second:
            await trio.sleep(0.05)
            await first.send_all(request)
            assert (await first.receive_some(100)).startswith(b"HTTP/1.1 200")
            assert (await raw(port, request.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")))[9:12] == b"200"
            assert await second.receive_some(100) == b""
            await first.send_all(request)
            assert (await first.receive_some(100)).startswith(b"HTTP/1.1 200")


async def test_connections_are_refused_while_all_others_are_being_answered() -> None:
    request = b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n"
    async with (
        serving(max_connections=1, body=b"x" * (64 << 20)) as port,
        await trio.open_tcp_stream(HOST, port) as slow,
    ):
        await slow.send_all(request)
        assert await slow.receive_some(10)
        assert await raw(port, request) == b""


async def test_silent_and_slow_clients_are_disconnected_after_a_timeout(autojump_clock: MockClock) -> None:
    async with serving() as port, await trio.open_tcp_stream(HOST, port) as stream:
        began = trio.current_time()
        await stream.send_all(b"GET /x HTTP/1.1\r\n")
        assert await stream.receive_some(100) == b""
        assert trio.current_time() - began < 60


async def test_a_client_that_does_not_read_blocks_neither_others_nor_the_stop() -> None:
    with trio.fail_after(5):
        async with serving(body=b"x" * (64 << 20)) as port:
            stream = await trio.open_tcp_stream(HOST, port)
            await stream.send_all(b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n")
            assert await stream.receive_some(10)
            async with httpcore.AsyncConnectionPool() as pool:
                assert (await pool.request("GET", f"http://{HOST}:{port}/y")).status == 404
    await stream.aclose()


async def test_an_error_for_an_unusable_address_names_the_setting() -> None:
    async with serving() as port:
        with pytest.raises(ConfigError, match="KAFSCALE_HTTP_ADDR"):
            await HttpServer(routed({}), setting="KAFSCALE_HTTP_ADDR", max_connections=1).run(HOST, port)


async def test_a_body_is_passed_on_up_to_the_limit() -> None:
    async def count(request: Request) -> Response:
        return Response(f"{request.method} {request.path} {request.query} {len(request.body)}".encode())

    server = HttpServer(count, setting="KAFSCALE_HTTP_ADDR", max_connections=8, max_body_bytes=100_000)
    async with trio.open_nursery() as nursery, httpcore.AsyncConnectionPool() as pool:
        port = await nursery.start(server.run, HOST, 0)
        for size, status in ((100_000, 200), (100_001, 413), (0, 200)):
            found = await pool.request("POST", f"http://{HOST}:{port}/a?b=c", content=b"x" * size)
            assert found.status == status
            assert found.content == (b"POST /a b=c %d" % size if status == 200 else b"")
        nursery.cancel_scope.cancel()


async def test_chunks_with_more_framing_than_content_end_with_the_limit_of_a_request() -> None:
    async def answer(_: Request) -> Response:
        return Response(b"{}")

    server = HttpServer(answer, setting="KAFSCALE_HTTP_ADDR", max_connections=8, max_body_bytes=1000)
    head = b"POST /x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    async with trio.open_nursery() as nursery:
        port = await nursery.start(server.run, HOST, 0)
        chunk = b"1;" + b"e" * 5000 + b"\r\nx\r\n"
        assert (await raw(port, head + chunk * 10))[9:12] in (b"413", b"")
        assert (
            await raw(
                port,
                head + chunk + b"0\r\n\r\n" + head.replace(b"host: x", b"host: x\r\nconnection: close") + b"0\r\n\r\n",
            )
        ).endswith(b"{}")
        nursery.cancel_scope.cancel()


async def test_a_connection_is_handed_over_with_the_bytes_of_its_request() -> None:
    taken: list[bytes] = []

    async def take(stream: trio.abc.Stream) -> None:
        while len(b"".join(taken)) < len(sent):
            taken.append(bytes(await stream.receive_some(7)))
        await stream.send_all(b"done")

    async def handle(request: Request) -> Response | Handover:
        return Handover(take) if "upgrade" in request.headers else Response(b"{}")

    sent = b"GET /y HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: z\r\n\r\nand more"
    server = HttpServer(handle, setting="KAFSCALE_HTTP_ADDR", max_connections=8)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(server.run, HOST, 0)
        answers = await raw(port, b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n" + sent)
        assert answers.startswith(b"HTTP/1.1 200")
        assert answers.endswith(b"{}done")
        assert b"".join(taken) == sent
        nursery.cancel_scope.cancel()


async def test_a_large_answer_is_sent_as_long_as_its_client_reads(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0.05
    body = bytes(16 << 20)
    async with serving(body=body) as port, await trio.open_tcp_stream(HOST, port) as stream:
        await stream.send_all(b"GET /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        received = 0
        while piece := await stream.receive_some(1 << 20):
            received += len(piece)
            await trio.sleep(3)
        assert received > len(body)
