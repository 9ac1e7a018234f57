"""A gRPC call whose replies are large, received by hand: HTTP/2 (RFC 9113) on a connection of its own.

gRPC's own client copies a reply three times on its way to Python, in threads that take turns with its reader. Here the
kernel writes it to where it is decoded, in one buffer for all replies.

While the reader is busy with a reply nobody reads the connection, and storage hangs up on who does not answer its
pings: so a thread looks at it every second, and reads ahead where the reader is still away.
"""

import select
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Lock, Thread
from urllib.parse import unquote

import grpc

from kafscale_spark import hpack
from kafscale_spark.connection import KEEPALIVE_TIMEOUT_MS, WINDOW_BYTES, Connection

NO_CONNECTION = "failed to connect"
ENDED = "Socket closed"

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM = _ACK = 0x1
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_HEADER_TABLE_SIZE, _ENABLE_PUSH, _INITIAL_WINDOW_SIZE, _MAX_FRAME_SIZE = 1, 2, 4, 5
_FRAME_BYTES = 1 << 20
"""Of a frame with data, at most: the larger, the fewer calls of the kernel."""
_CONTROL_BYTES = 1 << 14
"""Of any other frame, and of a header block."""
_HEAD = ">BHBBI"
_LOOK_SECONDS = 1.0
"""Storage waits 5 s for an answer."""
_FIRST_WINDOW = 65_535
_CONNECTION, _STREAM = 0, 1
_PREFIX_BYTES = 5  # whether it is compressed, and its size, before each message
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Failed(Exception):
    """How the call ended, but for its last reply and OK."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class Receiving:
    """One call with a small request. Not for several threads."""

    def __init__(self, connection: Connection, endpoint: str, path: str, request: bytes) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._path = path
        self._request = request
        self._socket: socket.socket | None = None
        self._buffer = bytearray()
        self._until = 0.0
        self._asked = False  # for a sign of life
        self._answered = False
        self._left = self._padding = 0  # of the frame that is being read
        self._owed = 0  # read, and not yet given back to the peer's window
        self._farewell = ""
        # What was read while the reader was away: no more than the window, since nothing of it is given back.
        self._ahead = bytearray()
        self._over = False
        self._failure: Exception | None = None
        self._given = 0
        self._reading = Lock()
        self._closed = Event()
        self._looking = Thread(target=self._look, name="kafscale-scan", daemon=True)

    def close(self) -> None:
        """End the call, however far it is."""
        self._closed.set()
        if self._socket is not None:
            with suppress(OSError):
                # TLS's own would take away what the thread may be reading from.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            if self._looking.ident is not None:
                self._looking.join()
            self._socket.close()

    def replies(self) -> Iterator[memoryview]:
        """Each until the next is asked for.

        For `Connection.call_seconds` nothing of one may come, from when it is asked for. Raises Failed; then, or after
        the last one, there is nothing more.
        """
        try:
            self._socket = self._connection.connected(self._endpoint)
        except OSError as error:
            raise Failed(grpc.StatusCode.UNAVAILABLE, f"{NO_CONNECTION}: {error}") from error
        self._begin_wait()
        try:
            self._ask()
            self._looking.start()
            while (reply := self._reply()) is not None:
                yield reply
                self._begin_wait()
        except OSError as error:
            where = "" if self._answered else f"{NO_CONNECTION}: "
            raise Failed(grpc.StatusCode.UNAVAILABLE, f"{where}{ENDED}: {error}") from error
        except hpack.BadHeaders as error:
            raise Failed(grpc.StatusCode.INTERNAL, str(error)) from error

    def _begin_wait(self) -> None:
        self._until = time.monotonic() + self._connection.call_seconds

    def _ask(self) -> None:
        wanted = {_HEADER_TABLE_SIZE: 0, _ENABLE_PUSH: 0, _INITIAL_WINDOW_SIZE: WINDOW_BYTES}
        wanted[_MAX_FRAME_SIZE] = _FRAME_BYTES
        tls = self._connection.tls
        headers = hpack.encoded(
            [
                (":method", "POST"),
                (":scheme", "http" if tls is None else "https"),
                (":path", self._path),
                (":authority", self._endpoint if tls is None or not tls.server_name else tls.server_name),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
            ]
        )
        self._send(
            _PREFACE,
            _frame(_SETTINGS, 0, _CONNECTION, b"".join(struct.pack(">HI", *pair) for pair in wanted.items())),
            _frame(_WINDOW_UPDATE, 0, _CONNECTION, struct.pack(">I", WINDOW_BYTES - _FIRST_WINDOW)),
            _frame(_HEADERS, _END_HEADERS, _STREAM, headers),
            _frame(_DATA, _END_STREAM, _STREAM, struct.pack(">BI", 0, len(self._request)) + self._request),
        )

    def _reply(self) -> memoryview | None:
        """The next one; None after the last."""
        with self._reading:
            reply = self._next_reply()
        self._given += 1
        return reply

    def _look(self) -> None:
        """In its thread."""
        given = 0
        while not self._closed.wait(_LOOK_SECONDS) and self._failure is None and not self._over:
            if self._given == given:
                self._read_ahead(given)
            given = self._given

    def _read_ahead(self, given: int) -> None:
        """All frames that have come, while the reader stays away."""
        while self._given == given and self._reading.acquire(blocking=False):
            try:
                if self._failure is not None or self._over or not self._readable():
                    return
                self._begin_wait()
                self._read_frame()
            except (Failed, OSError, ValueError, hpack.BadHeaders) as error:
                self._failure = error
            finally:
                self._reading.release()

    def _readable(self) -> bool:
        """Whether something has come."""
        stream = self._stream
        decrypted = isinstance(stream, ssl.SSLSocket) and stream.pending() > 0
        # Unlike select, whatever the number of the socket.
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        return decrypted or bool(poll.poll(0))

    def _read_frame(self) -> None:
        """One frame, or what is left of one."""
        if not self._left:
            self._over = self._next_frame()
        self._ahead += self._exactly(self._left)
        self._left = 0

    def _next_reply(self) -> memoryview | None:
        prefix = memoryview(bytearray(_PREFIX_BYTES))
        if not self._fill(prefix):
            return None
        compressed, size = struct.unpack(">BI", prefix)
        most = self._connection.max_message_bytes
        if compressed or size > most:
            raise Failed(
                grpc.StatusCode.RESOURCE_EXHAUSTED if size > most else grpc.StatusCode.INTERNAL,
                f"a reply of {size} bytes, {'compressed' if compressed else f'of at most {most}'}",
            )
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        reply = memoryview(self._buffer)[:size]
        if not self._fill(reply):
            raise Failed(grpc.StatusCode.INTERNAL, "the stream ended within a reply")
        return reply

    def _fill(self, view: memoryview) -> bool:
        """False: the stream ended before the first of the bytes."""
        at = 0
        while at < len(view):
            if self._ahead:
                size = min(len(self._ahead), len(view) - at)
                view[at : at + size] = self._ahead[:size]
                del self._ahead[:size]
            elif self._failure is not None:
                # Perhaps within a frame, of which a part is lost.
                raise self._failure
            elif self._left:
                size = self._read(view[at : at + self._left])
                self._left -= size
                self._begin_wait()
            elif self._over:
                if at:
                    raise Failed(grpc.StatusCode.INTERNAL, "the stream ended within a reply")
                return False
            else:
                self._over = self._next_frame()
                continue
            at += size
            self._give_back(size)
        return True

    def _next_frame(self) -> bool:
        """Goes on to the data of the next frame, or past it where it has none. True: the call has ended well."""
        self._exactly(self._padding)
        self._padding = 0
        size, kind, flags, stream = self._head()
        self._answered = True
        if size > (_FRAME_BYTES if kind == _DATA else _CONTROL_BYTES):
            raise Failed(grpc.StatusCode.INTERNAL, f"a frame of {size} bytes, kind {kind}")
        if kind == _HEADERS:
            return self._headers(flags, self._exactly(size))
        if kind == _DATA:
            self._left = self._data(flags, size)
        else:
            self._control(kind, flags, stream, self._exactly(size))
        return False

    def _data(self, flags: int, size: int) -> int:
        """How many of a frame's bytes are data."""
        if flags & _PADDED:
            self._padding = self._exactly(1)[0]
            self._give_back(1 + self._padding)
            size -= 1 + self._padding
        if size < 0:
            raise Failed(grpc.StatusCode.INTERNAL, "a frame has more padding than bytes")
        if flags & _END_STREAM:
            raise Failed(grpc.StatusCode.INTERNAL, "the stream ended without a status")
        return size

    def _head(self) -> tuple[int, int, int, int]:
        """Of a frame: its size, kind, flags and stream."""
        high, low, kind, flags, stream = struct.unpack(_HEAD, self._exactly(struct.calcsize(_HEAD)))
        return high << 16 | low, kind, flags, stream & 0x7FFFFFFF

    def _headers(self, flags: int, payload: bytes) -> bool:
        """Whether they are the last, of a call that ended well."""
        padding = payload[0] if flags & _PADDED and payload else 0
        start = bool(flags & _PADDED) + 5 * bool(flags & _PRIORITY)
        block, ended = payload[start : len(payload) - padding], flags & _END_HEADERS
        while not ended:
            size, kind, more, _ = self._head()
            if kind != _CONTINUATION or len(block) + size > _CONTROL_BYTES:
                raise Failed(grpc.StatusCode.INTERNAL, f"a header block goes on with {size} bytes, kind {kind}")
            block += self._exactly(size)
            ended = more & _END_HEADERS
        found = hpack.decoded(block)
        status = found.get("grpc-status")
        if found.get(":status", "200") != "200":
            raise Failed(grpc.StatusCode.UNAVAILABLE, f"HTTP status {found[':status']}")
        if not flags & _END_STREAM:
            return False
        if status != "0":
            code = _CODES.get(int(status) if status and status.isdecimal() else -1, grpc.StatusCode.UNKNOWN)
            raise Failed(code, unquote(found.get("grpc-message", "")))
        return True

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in {_SETTINGS, _PING} and not flags & _ACK:
            self._send(_frame(kind, _ACK, _CONNECTION, payload if kind == _PING else b""))
        elif kind == _RST_STREAM and stream == _STREAM:
            raise Failed(grpc.StatusCode.UNAVAILABLE, f"the stream was reset ({payload.hex()})")
        elif kind == _GOAWAY:
            self._farewell = payload[8:].decode("latin-1")
            if int.from_bytes(payload[:4], "big") < _STREAM:
                raise Failed(grpc.StatusCode.UNAVAILABLE, f"the call was not taken: {self._farewell}")

    def _give_back(self, size: int) -> None:
        """So much has been read, and may come anew."""
        self._owed += size
        if self._owed >= WINDOW_BYTES // 4:
            increment = struct.pack(">I", self._owed)
            self._owed = 0
            try:
                self._send(*(_frame(_WINDOW_UPDATE, 0, where, increment) for where in (_CONNECTION, _STREAM)))
            except OSError:
                # Who has sent everything may have left.
                if not self._over:
                    raise

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        at = 0
        while at < size:
            at += self._read(memoryview(data)[at:])
        return bytes(data)

    def _read(self, view: memoryview) -> int:
        """Some bytes, one at least."""
        while True:
            left = self._until - time.monotonic()
            if left <= 0:
                raise Failed(grpc.StatusCode.DEADLINE_EXCEEDED, f"nothing came for {self._connection.call_seconds:g} s")
            patience = KEEPALIVE_TIMEOUT_MS / 1000 if self._asked else self._connection.keepalive_seconds
            self._stream.settimeout(min(left, patience))
            try:
                size = self._stream.recv_into(view)
            except TimeoutError as error:
                if left > patience:
                    self._ask_for_life(error)
                continue
            self._asked = False
            if not size:
                raise ConnectionResetError(f"the peer has ended the connection {self._farewell}".rstrip())
            return size

    def _ask_for_life(self, error: TimeoutError) -> None:
        if self._asked:
            raise Failed(grpc.StatusCode.UNAVAILABLE, "no sign of life came") from error
        self._send(_frame(_PING, 0, _CONNECTION, bytes(8)))
        self._asked = True

    def _send(self, *frames: bytes) -> None:
        self._stream.sendall(b"".join(frames))

    @property
    def _stream(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionError("there is no connection")
        return self._socket


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(_HEAD, len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload
