"""The common part of simulated Kafka clients: connections to any gateway, and requests in flight."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from kafscale.errors import Unavailable
from tests.sim import wire
from tests.sim.faults import Faults
from tests.sim.services import GatewayProcess


class ConnectionLost(Exception):
    """The connection is lost. Unanswered requests may have been executed or not."""


class Pending:
    """A request in flight."""

    __slots__ = ("_connection", "answered", "body")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self.answered = trio.Event()
        self.body: memoryview | None = None

    async def answer(self, timeout: float) -> memoryview:
        """Return the body of the response. Raise ConnectionLost, also after a timeout, which closes the connection."""
        with trio.move_on_after(timeout):
            await self.answered.wait()
        if self.body is None:
            self._connection.lose()
            raise ConnectionLost
        return self.body


class Connection:
    """A connection. Requests are sent and answered in the order of `send`."""

    def __init__(self, stream: trio.abc.Stream, faults: Faults, gateway: GatewayProcess) -> None:
        self.gateway = gateway
        self._stream = stream
        self._faults = faults
        self._pending: deque[Pending] = deque()
        self._outgoing: list[bytes] = []
        self._wake = trio.Event()
        self._correlation = 0
        self.number = faults.connection_number()
        self.lost = False
        # Whether a request without a response was answered.
        self.answered_unasked = False

    def send(self, api_key: int, body: bytes, version: int = 0) -> Pending:
        """Send a request. ``version`` 0 means the version in the table."""
        pending = Pending(self)
        if self.lost:
            pending.answered.set()
        else:
            self._pending.append(pending)
            self.send_only(api_key, body, version)
        return pending

    def send_only(self, api_key: int, body: bytes, version: int = 0) -> None:
        """Send a request without expecting a response, such as Produce with acks=0."""
        self._correlation += 1
        self._outgoing.append(wire.frame(api_key, self._correlation, body, version))
        self._wake.set()

    async def ask(self, api_key: int, body: bytes, *, timeout: float, version: int = 0) -> memoryview:
        return await self.send(api_key, body, version).answer(timeout)

    async def transmit(self) -> None:
        try:
            while not self.lost:
                await self._wake.wait()
                self._wake = trio.Event()
                outgoing, self._outgoing = self._outgoing, []
                await trio.sleep(self._faults.latency())
                await self._stream.send_all(b"".join(outgoing))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.lose()

    def lose(self) -> None:
        self.lost = True
        self._wake.set()
        pending, self._pending = self._pending, deque()
        for one in pending:
            one.answered.set()

    async def receive(self) -> None:
        """Dispatch responses until the connection ends."""
        buffer = bytearray()
        try:
            while not self.lost and (data := await self._stream.receive_some()):
                buffer += data
                while len(buffer) >= 4 and len(buffer) >= (end := 4 + int.from_bytes(buffer[:4], "big")):
                    if self._faults.hits("connection-lost"):
                        return
                    body = memoryview(bytes(buffer[9:end]))
                    del buffer[:end]
                    if not self._pending:
                        self.answered_unasked = not self.lost
                        return
                    pending = self._pending.popleft()
                    pending.body = body
                    pending.answered.set()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            self.lose()


@asynccontextmanager
async def connected(
    gateways: dict[str, GatewayProcess],
    faults: Faults,
    close: Callable[[trio.abc.AsyncResource], Awaitable[None]] = trio.aclose_forcefully,
) -> AsyncIterator[Connection]:
    """Connect to a gateway. ``close`` notifies it of the end. Raise ConnectionLost if no gateway is available."""
    serving = [gateway for gateway in gateways.values() if gateway.serving and gateway.acceptor is not None]
    try:
        if not serving:
            raise Unavailable("no gateway")
        gateway = faults.one_of(serving)
        stream = await gateway.connect()
    except Unavailable:
        await trio.sleep(0.1)
        raise ConnectionLost from None
    connection = Connection(stream, faults, gateway)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.receive)
        nursery.start_soon(connection.transmit)
        try:
            yield connection
        finally:
            connection.lose()
            await close(stream)
            nursery.cancel_scope.cancel()
