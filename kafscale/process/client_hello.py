"""The host that a client asks for in its first TLS message, by which its certificate is chosen.

The `ssl` module reads it too, but decodes it before any code can check it, and prints a traceback if it is not ASCII.
Format: RFC 8446, sections 4.1.2 and 5.1, and RFC 6066, section 3.
"""

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_RECORD_HEADER, _MESSAGE_HEADER = 5, 4
_VERSION_AND_RANDOM = 34
_SERVER_NAME, _HOST_NAME = 0, 0
_MOST_RECORDS = 16
"""Records of the message. Clients send one, and more only if the message is larger than a packet."""
_LONGEST = 16 << 10
"""Bytes up to the end of the message. Clients send up to 2 KiB, and more only to resume a session."""


class ClientHello:
    """Parses the message as its bytes arrive. Each byte is parsed once, in whatever pieces the message arrives."""

    __slots__ = ("_header", "_left", "_message", "_needed", "_records", "_seen")

    def __init__(self) -> None:
        self._header = bytearray()
        # Bytes of the current record that have not arrived, and the size of the message as far as it is known.
        self._left, self._needed = 0, _MESSAGE_HEADER
        self._message = bytearray()
        # Records begun, and the bytes of their headers and contents.
        self._records, self._seen = 0, 0

    def feed(self, data: bytes | bytearray) -> str | None:
        """Take the bytes that have arrived since the last call. Return the host in lower case, or None if more bytes
        are needed. To be called until it returns a host.

        The host is empty if the client names none, or if the bytes are not such a message or exceed the limits of this
        module. OpenSSL then decides about them.
        """
        position = 0
        while position < len(data):
            if self._left:
                piece = data[position : position + self._left]
                self._left -= len(piece)
                self._message += piece
                if not self._fits():
                    return ""
                if len(self._message) >= self._needed:
                    return self._host()
            else:
                piece = data[position : position + _RECORD_HEADER - len(self._header)]
                self._header += piece
                if not self._begins():
                    return ""
            position += len(piece)
        return None

    def _begins(self) -> bool:
        """Begin a record if its header is complete. Return False if the message has no such record."""
        if self._header[0] != _HANDSHAKE or self._records == _MOST_RECORDS:
            return False
        if len(self._header) < _RECORD_HEADER:
            return True
        self._left = int.from_bytes(self._header[-2:], "big")
        self._records += 1
        self._seen += _RECORD_HEADER + self._left
        self._header.clear()
        return self._left > 0 and self._seen <= _LONGEST

    def _fits(self) -> bool:
        """Learn the size of the message if its header is complete. Return False if it is another or too large."""
        if len(self._message) >= _MESSAGE_HEADER:
            self._needed = _MESSAGE_HEADER + int.from_bytes(self._message[1:_MESSAGE_HEADER], "big")
        return self._message[0] == _CLIENT_HELLO and self._needed <= _LONGEST

    def _host(self) -> str:
        try:
            return _host(bytes(self._message[_MESSAGE_HEADER : self._needed]))
        except ValueError:
            return ""


def _host(hello: bytes) -> str:
    """Return the host in the body of the message, empty if there is none. Raises ValueError if it is truncated."""
    position = _VERSION_AND_RANDOM
    for size in (1, 2, 1):  # the session's id, cipher suites, compression methods
        _, position = _vector(hello, position, size)
    if position == len(hello):
        return ""
    extensions, _ = _vector(hello, position, 2)
    position = 0
    while position < len(extensions):
        kind = int.from_bytes(extensions[position : position + 2], "big")
        content, position = _vector(extensions, position + 2, 2)
        if kind == _SERVER_NAME:
            names, _ = _vector(content, 0, 2)
            name, _ = _vector(names, 1, 2)
            # Raises UnicodeDecodeError, which is a ValueError.
            return name.decode("ascii").lower() if names[0] == _HOST_NAME else ""
    return ""


def _vector(data: bytes, position: int, size_bytes: int) -> tuple[bytes, int]:
    """Return the bytes after their size, and the position after them. Raises ValueError if they are not all there."""
    start = position + size_bytes
    end = start + int.from_bytes(data[position:start], "big")
    if start > len(data) or end > len(data):
        raise ValueError("truncated")
    return data[start:end], end
