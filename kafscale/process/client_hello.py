"""The host that a client asks for in its first TLS message, by which its certificate is chosen.

The `ssl` module reads it too, but decodes it before any code can check it, and prints a traceback if it is not ASCII.
Format: RFC 8446, sections 4.1.2 and 5.1, and RFC 6066, section 3.
"""

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_RECORD_HEADER, _MESSAGE_HEADER = 5, 4
_VERSION_AND_RANDOM = 34
_SERVER_NAME, _HOST_NAME = 0, 0
_LONGEST = 16 << 10
"""Bytes up to the end of the message. Clients send up to 2 KiB, and more only to resume a session."""


def asked_host(data: bytes | bytearray) -> str | None:
    """Return the host in lower case, or None if more bytes are needed.

    It is empty if the client names none, or if the bytes are not such a message, which OpenSSL then reports.
    """
    message = bytearray()
    position, needed = 0, _MESSAGE_HEADER
    while len(message) < needed:
        if position < len(data) and data[position] != _HANDSHAKE:
            return ""
        start = position + _RECORD_HEADER
        size = int.from_bytes(data[start - 2 : start], "big")
        if len(data) < start or len(data) < start + size:
            return None if len(data) < _LONGEST else ""
        if not size:
            return ""
        message += data[start : start + size]
        if message[0] != _CLIENT_HELLO:
            return ""
        if len(message) >= _MESSAGE_HEADER:
            needed = _MESSAGE_HEADER + int.from_bytes(message[1:_MESSAGE_HEADER], "big")
        position = start + size
    try:
        return _host(bytes(message[_MESSAGE_HEADER:needed]))
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
