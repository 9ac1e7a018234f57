"""A client's side of HTTP/1.1, without IO. Responses are parsed by httptools, the binding of Node.js's llhttp."""

from dataclasses import dataclass

import httptools

_MOST_HEAD_BYTES = 64 << 10
_INTERIM_BELOW = 200


class HttpError(Exception):
    """There is no complete response: the connection broke, the peer was silent, or it violated the protocol."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A server. ``host`` is without the brackets of an IPv6 address. ``tls``: the scheme is https."""

    host: str
    port: int
    tls: bool


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response. Header names are in lower case; of several headers with one name, the last one counts."""

    status: int
    headers: dict[str, str]
    body: bytes


class ResponseParser:
    """Parses what is received after a request with ``method``. Interim responses (100 to 199) are skipped.

    ``response`` is set when it is complete; ``keeps_alive`` is then whether another request may follow on the
    connection.
    """

    def __init__(self, method: str) -> None:
        self.response: Response | None = None
        self.keeps_alive = False
        self._parser = httptools.HttpResponseParser(self)
        self._without_body = method == "HEAD"
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._head_bytes = 0
        self._in_body = False

    def feed(self, data: bytes | bytearray) -> None:
        """Parse received bytes. Raises HttpError if they are not HTTP, or the head is too large."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise HttpError(f"not an HTTP response: {error}") from error
        if not self._in_body:
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD_BYTES:
                raise HttpError(f"the head of the response exceeds {_MOST_HEAD_BYTES} bytes")

    def end(self) -> None:
        """Called when the peer has closed the connection. Raises HttpError unless that ends the response."""
        if not self._in_body or "content-length" in self._headers or "transfer-encoding" in self._headers:
            raise HttpError("the connection was closed before the end of the response")
        self._complete()

    def _complete(self) -> None:
        self.response = Response(self._parser.get_status_code(), self._headers, b"".join(self._body))

    # Called by httptools, also with what follows the response.

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._in_body:
            self.keeps_alive = False
        elif self._parser.get_status_code() >= _INTERIM_BELOW:
            self._in_body = True
            self.keeps_alive = self._parser.should_keep_alive()
            if self._without_body:
                self._complete()

    def on_body(self, body: bytes) -> None:
        if self.response is None:
            self._body.append(body)
        else:
            self.keeps_alive = False

    def on_message_complete(self) -> None:
        if not self._in_body:
            self._headers = {}
            self._head_bytes = 0
        elif self.response is None:
            self._complete()
