"""ClientHello messages of TLS as OpenSSL sends them, and with names of hosts that it would not send."""

import ssl
from functools import cache

from kafscale.process.client_hello import ClientHello

_PLACE_FOR_HOST = "a-name-that-is-replaced"


@cache
def valid() -> tuple[bytes, ...]:
    """With and without a host, of both versions, and split into several records."""
    whole = hello("kafka.example.org")
    return (
        whole,
        hello(None),
        hello("in.example", newest=ssl.TLSVersion.TLSv1_2),
        in_records(whole, 50),
        in_records(whole, 1),
        with_host("\N{LATIN SMALL LETTER A WITH DIAERESIS}.example".encode()),
        with_host(b"\xff\x80\x00\n"),
    )


def hello(host: str | None, *, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """The first message of a client that asks for ``host``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = newest
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname=host).do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake needs two sides")


def with_host(host: bytes) -> bytes:
    """A message that asks for any bytes, filled up with dots."""
    return hello(_PLACE_FOR_HOST).replace(_PLACE_FOR_HOST.encode(), host.ljust(len(_PLACE_FOR_HOST), b"."))


def in_records(message: bytes, size: int) -> bytes:
    """Split a message of one record into records of ``size`` bytes."""
    head, body = message[:3], message[5:]
    pieces = (body[start : start + size] for start in range(0, len(body), size))
    return b"".join(head + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def by_byte(message: bytes) -> tuple[str | None, int]:
    """The host that is found if each byte arrives alone, and the number of bytes that had arrived by then."""
    parser = ClientHello()
    for count, byte in enumerate(message, 1):
        host = parser.feed(bytes((byte,)))
        if host is not None:
            return host, count
    return None, len(message)
