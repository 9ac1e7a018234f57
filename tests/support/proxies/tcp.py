"""A TCP proxy whose connections can be cut, stalled, slowed and refused while in use."""

import contextlib
import socket
import struct
from enum import Enum

import trio

_PIECE_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)
BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class Direction(Enum):
    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


BOTH = frozenset(Direction)


def reset(stream: trio.SocketStream) -> None:
    """Close with RST. Undelivered data is lost, and the peer sees an error."""
    with contextlib.suppress(OSError):
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    stream.socket.close()


def port_of(listeners: list[trio.SocketListener]) -> int:
    port: int = listeners[0].socket.getsockname()[1]
    return port


class TcpProxy:
    """Forwards connections to ``target`` (host:port). `run` listens on a free port of 127.0.0.1.

    A stalled proxy accepts connections, and bytes until the kernel's buffers are full, but forwards nothing. `heal`
    forwards them late; `cut` drops them.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.address = ""
        self.delay_seconds = 0.0
        self.refusing = False
        self._stalled: frozenset[Direction] = frozenset()
        self._changed = trio.Event()
        self._scopes: set[trio.CancelScope] = set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Reports `started` when ``address`` is set and connections are accepted."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.address = f"127.0.0.1:{port_of(listeners)}"
        task_status.started()
        await trio.serve_listeners(self._serve, listeners)

    @property
    def connections(self) -> int:
        return len(self._scopes)

    def cut(self) -> None:
        """Close every connection with RST on both sides."""
        for scope in self._scopes:
            scope.cancel()

    def stall(self, directions: frozenset[Direction] = BOTH) -> None:
        """Stop forwarding in ``directions`` on current and new connections."""
        self._stalled = directions

    def heal(self) -> None:
        """Forward everything again, including what was held back."""
        self._stalled = frozenset()
        self.delay_seconds = 0.0
        self.refusing = False
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def _serve(self, client: trio.SocketStream) -> None:
        streams = [client]
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                if not self.refusing:
                    await self._pass_on(client, streams)
            except* BROKEN:
                pass  # one side closed the connection; the RST below notifies the other
            finally:
                self._scopes.discard(scope)
                for stream in streams:
                    reset(stream)

    async def _pass_on(self, client: trio.SocketStream, streams: list[trio.SocketStream]) -> None:
        await self._gate(Direction.TO_SERVER)
        host, _, port = self.target.rpartition(":")
        server = await trio.open_tcp_stream(host, int(port))
        streams.append(server)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pump, client, server, Direction.TO_SERVER)
            nursery.start_soon(self._pump, server, client, Direction.TO_CLIENT)

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream, direction: Direction) -> None:
        while True:
            data = await source.receive_some(_PIECE_BYTES)
            if self.delay_seconds:
                await trio.sleep(self.delay_seconds)
            await self._gate(direction)
            if not data:
                await sink.send_eof()
                return
            await sink.send_all(data)

    async def _gate(self, direction: Direction) -> None:
        while direction in self._stalled:
            await self._changed.wait()
