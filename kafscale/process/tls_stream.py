"""TLS on a connection, with the standard library's `ssl.SSLObject`.

Trio's SSLStream returns one TLS record of 16 KB at a time, which makes large requests several times slower. It also
closes a connection whose handshake fails without the alert that tells the client why.
"""

import ssl
from collections.abc import Callable
from contextlib import suppress

import trio

from kafscale.process.acknowledging import acknowledge
from kafscale.process.client_hello import ClientHello

_LEAST_READ, _MOST_READ = 32 << 10, 256 << 10
_ENCRYPTED_AT_ONCE = 256 << 10
_LAST_SECONDS = 1.0
"""How long the last message, an alert, may take before the connection is closed."""


class TlsStream:
    """The server's side of a TLS connection. One task may send while another one receives."""

    def __init__(self, stream: trio.SocketStream, context: ssl.SSLContext) -> None:
        """`handshake` makes streams that may be used."""
        self._stream = stream
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._sending = trio.Lock()

    @classmethod
    async def handshake(cls, stream: trio.SocketStream, choose: Callable[[str], ssl.SSLContext]) -> "TlsStream":
        """Do the handshake on a new connection. ``choose`` returns the context for the host that the client asks for,
        which is empty if it asks for none.

        Raises BrokenResourceError, after the alert is sent.
        """
        hello, received = ClientHello(), bytearray()
        host = None
        while host is None:
            data = await stream.receive_some(_LEAST_READ)
            if not data:
                raise trio.BrokenResourceError("the client closed the connection")
            received += data
            host = hello.feed(data)
        secured = cls(stream, choose(host))
        secured._incoming.write(received)
        await secured._do_handshake()
        return secured

    async def __aenter__(self) -> "TlsStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _do_handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._receive(_LEAST_READ):
                    raise trio.BrokenResourceError("the client closed the connection") from None
            except ssl.SSLError as error:
                await self._flush_last()
                raise trio.BrokenResourceError(error.reason or str(error)) from error
            else:
                await self._flush()
                return

    def peer_certificate(self) -> bytes | None:
        """Return the client's certificate (DER), or None if it has none."""
        return self._tls.getpeercert(binary_form=True)

    async def receive_some(self, most: int) -> bytes:
        """Return at least one and up to ``most`` bytes, or none at the end. Raises BrokenResourceError."""
        while True:
            found = bytearray()
            try:
                while len(found) < most:
                    piece = self._tls.read(most - len(found))
                    if not piece:
                        return bytes(found)
                    found += piece
            except ssl.SSLWantReadError:
                # A message of the client, such as an update of its keys, may need an answer.
                await self._flush()
                if not found and not await self._receive(min(max(most, _LEAST_READ), _MOST_READ)):
                    return b""
            except ssl.SSLZeroReturnError:
                return bytes(found)
            except ssl.SSLError as error:
                if not found:
                    await self._flush_last()
                    raise trio.BrokenResourceError(error.reason or str(error)) from error
            if found:
                return bytes(found)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all bytes. What is encrypted at once is in memory twice. Raises BrokenResourceError."""
        view = memoryview(data)
        for start in range(0, len(view), _ENCRYPTED_AT_ONCE):
            # Under the lock, so that a task that receives never sends this: it would wait for a client that does not
            # read its replies.
            async with self._sending:
                try:
                    self._tls.write(view[start : start + _ENCRYPTED_AT_ONCE])
                except ssl.SSLError as error:
                    raise trio.BrokenResourceError(error.reason or str(error)) from error
                await self._send_outgoing()

    async def aclose(self) -> None:
        """Tell the client that nothing more follows, and close the connection without waiting for its answer."""
        try:
            with suppress(ssl.SSLError, ValueError):
                self._tls.unwrap()
            await self._flush_last()
        finally:
            await trio.aclose_forcefully(self._stream)

    async def _receive(self, most: int) -> bool:
        """Wait for bytes of the client. Return False at the end."""
        data = await self._stream.receive_some(most)
        if data:
            acknowledge(self._stream.socket)
            self._incoming.write(data)
        return bool(data)

    async def _flush(self) -> None:
        """Send what TLS itself has to say, unless a task that sends does so."""
        if self._outgoing.pending and not self._sending.locked():
            async with self._sending:
                await self._send_outgoing()

    async def _send_outgoing(self) -> None:
        while data := self._outgoing.read():
            await self._stream.send_all(data)

    async def _flush_last(self) -> None:
        with trio.move_on_after(_LAST_SECONDS), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._flush()
