"""Responses of HTTP/1.1 as a client parses them."""

import pytest

from kafscale.objects.http_wire import HttpError, Response, ResponseParser

_OK = b'HTTP/1.1 200 OK\r\nETag: "a"\r\nContent-Length: 4\r\n\r\nbody'
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbod\r\n1;x=y\r\ny\r\n0\r\nTrailer: x\r\n\r\n"
_UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\n\r\nbody"
_HEAD_ONLY = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"


def _parsed(data: bytes, method: str = "GET", *, step: int = 1 << 20, closed: bool = False) -> ResponseParser:
    parser = ResponseParser(method)
    for start in range(0, len(data), step):
        parser.feed(data[start : start + step])
    if closed:
        parser.end()
    return parser


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("data", "method", "closed", "status", "body", "keeps_alive"),
    [
        pytest.param(_OK, "GET", False, 200, b"body", True, id="with a length"),
        pytest.param(_CHUNKED, "GET", False, 200, b"body", True, id="in chunks"),
        pytest.param(_UNTIL_CLOSED, "GET", True, 200, b"body", False, id="until the connection is closed"),
        pytest.param(_HEAD_ONLY, "HEAD", False, 200, b"", True, id="to HEAD"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", "DELETE", False, 204, b"", True, id="without content"),
        pytest.param(b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n" + _OK, "PUT", False, 200, b"body", True, id="interim"),
        pytest.param(_OK.replace(b"ETag", b"Connection: close\r\nETag"), "GET", False, 200, b"body", False, id="last"),
        pytest.param(_OK.replace(b"/1.1", b"/1.0"), "GET", False, 200, b"body", False, id="HTTP/1.0"),
        pytest.param(_OK + _HEAD_ONLY, "GET", False, 200, b"body", False, id="followed by another response"),
        pytest.param(_HEAD_ONLY + b"body", "HEAD", False, 200, b"", False, id="a body to HEAD"),
    ],
)
def test_a_response_is_complete_at_its_end_however_it_arrives(
    data: bytes, method: str, closed: bool, status: int, body: bytes, keeps_alive: bool, step: int
) -> None:
    parser = _parsed(data, method, step=step, closed=closed)
    assert parser.response is not None
    assert (parser.response.status, parser.response.body, parser.keeps_alive) == (status, body, keeps_alive)
    assert "x" not in parser.response.headers


def test_header_names_are_in_lower_case() -> None:
    assert _parsed(_OK).response == Response(200, {"etag": '"a"', "content-length": "4"}, b"body")


@pytest.mark.parametrize("data", [_OK[:-1], _CHUNKED[:-4], _OK[:30], b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_response_that_is_cut_off_is_an_error(data: bytes) -> None:
    parser = _parsed(data)
    assert parser.response is None
    with pytest.raises(HttpError, match="closed before the end"):
        parser.end()


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: four\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + bytes(70_000),
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
    ],
)
def test_what_is_not_a_response_is_an_error(data: bytes) -> None:
    with pytest.raises(HttpError):
        _parsed(data)
