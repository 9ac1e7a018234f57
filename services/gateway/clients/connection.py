"""One client connection: a task that reads and starts requests, a task that writes responses, and the running requests.

Clients are isolated from each other. A protocol error closes only the connection on which it occurs. An exception in a
handler is answered with an error for that request, or closes that connection.
"""

from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address

import structlog
import trio
from kio.schema.errors import ErrorCode

from kafscale.clock import run_clock
from kafscale.config.listeners import Listener
from kafscale.errors import CorruptData
from kafscale.kafka import codec
from kafscale.kafka.connection import KafkaConnection, ProtocolError, ReplySlot, Request
from kafscale.kafka.wire import Buffer
from kafscale.process.acknowledging import acknowledge
from kafscale.process.tls_stream import TlsStream
from kafscale.signals import Signal
from services.gateway.access.authentication import Authentication
from services.gateway.access.authorization import Authorization, Denied
from services.gateway.api import Api, Call, Environment, Order, Work
from services.gateway.clients.registry import API_VERSIONS, APIS, BEFORE_AUTHENTICATION, refusal
from services.gateway.clients.wire_log import WireLog
from services.gateway.counters import UNSPOKEN
from services.gateway.quotas.enforcement import Charge
from services.gateway.quotas.metering import metered
from services.gateway.request_memory import Share

_SMALLEST_READ = 512 << 10
_LARGEST_READ = 1 << 20
_JOINED_UP_TO = 128 << 10
"""Responses up to this size are joined before they are sent: a copy is cheaper than a call with many buffers."""
_MAX_PIECES = 1024  # IOV_MAX
_MAX_TASKS = 4
"""The maximum number of requests of one connection that run in their own tasks, such as parked fetches."""
_ARRIVES_FREELY = 64 << 10
"""A larger request needs space in the request memory before more of it is read."""
_SLOWEST_BYTES_PER_SECOND = 512 << 10
"""The minimum rate of a request that holds request memory, because other requests wait for it."""
_PATIENCE_OF_OTHERS_SECONDS = 5.0
"""How long a client may be silent if its request exceeds the request memory and others wait."""
_DISCARDED_AT_ONCE = 4 << 10
_REFUSAL_READ_WITHIN_SECONDS = 1.0
"""How long a refused client may take to read the reason. kafka-python does not see a response that it reads together
with the end of the connection."""

_log = structlog.get_logger(__name__)


Stream = trio.SocketStream | TlsStream


class ClientConnection:
    """``listener`` is the one that accepted the connection. ``authentication``: who the client is.

    Until the client has authenticated, it may only do that, within KAFSCALE_HANDSHAKE_MS.
    """

    def __init__(
        self,
        stream: Stream,
        authentication: Authentication,
        environment: Environment,
        listener: Listener,
        *,
        peer: str,
        host: str,
        on_authenticated: Callable[[], None],
    ) -> None:
        self._stream = stream
        # TLS acknowledges by itself.
        self._plain = None if isinstance(stream, TlsStream) else stream.socket
        # Without the stream's translation of errors, which costs more than the call.
        self._receive = stream.receive_some if isinstance(stream, TlsStream) else stream.socket.recv
        self._on_authenticated = on_authenticated
        self._peer, self.host = peer, host
        self._environment = environment
        self.listener = listener
        self.authentication = authentication
        self.authorization = Authorization(environment.acls, environment.audit, authentication, host.removeprefix("/"))
        settings = environment.settings
        self._ready = Signal()
        self._kafka = KafkaConnection(
            flexible=codec.is_flexible,
            on_ready=self._ready.notify,
            on_reply=self._replied,
            max_request_bytes=settings.max_unauthenticated_request_bytes,
            max_in_flight=environment.settings.max_in_flight,
            max_in_flight_bytes=environment.settings.max_in_flight_bytes,
        )
        log_requests, hex_bytes = environment.log_requests, environment.settings.log_hex_bytes
        self._wire_log = WireLog(self._peer, hex_bytes) if log_requests else None
        self._room = Signal()
        self._scope = trio.CancelScope()
        self._reading = trio.CancelScope()
        self._tasks = 0
        # The number of requests that have begun and are not answered. All of them have the same order.
        self._under_way = 0
        self._order = Order.ALONE
        self._waits_for_answers = False
        self._receiving = False
        # A request has its place in the order of responses but has not begun.
        self._starting = False
        self._large = Share(environment.request_memory)
        self._large_since = 0.0
        self._unsent = 0
        self._sending = False
        self._closed = False
        self._leaving = False
        self._refused = False
        # Until this time nothing more is read, because the client has exceeded a quota.
        self._muted_until = 0.0
        self._closed_because = ""
        self._now = run_clock()
        self.last_activity = self._received_at = self._now()

    @property
    def idle(self) -> bool:
        """Whether no request is in flight, or the client does not read its responses."""
        return self._kafka.in_flight == 0 or self._sending

    @property
    def _too_much_unsent(self) -> bool:
        """Whether too many response bytes wait for the client to read them; the limit falls when memory is short."""
        if not self._unsent:
            return False
        environment = self._environment
        limit = environment.settings.max_fetch_bytes if environment.reply_memory.room else 1
        return self._unsent >= limit

    def stalls(self, now: float, patience: float) -> bool:
        """Whether a request that holds memory is silent for ``patience`` seconds or slower than the minimum rate."""
        if not (self._receiving and self._large.held):
            return False
        since = self._large_since
        if self._large.keeps_others_waiting:
            patience, since = min(patience, _PATIENCE_OF_OTHERS_SECONDS), self._large.beyond_since
        allowed = patience + self._kafka.arriving / _SLOWEST_BYTES_PER_SECOND
        return self.last_activity < now - patience or since < now - allowed

    def close(self, reason: str) -> None:
        """Close the connection immediately and cancel its requests."""
        self._closed_because = self._closed_because or reason
        self._scope.cancel()

    def authenticated(self) -> None:
        """Called when the client has authenticated."""
        self._kafka.max_request_bytes = self._environment.settings.max_request_bytes
        self._on_authenticated()

    def mute(self, until: float) -> None:
        """Read no more requests until this time, in Trio's clock."""
        self._muted_until = max(self._muted_until, until)

    def _paused(self) -> None:
        self.close("the process was paused, so requests of this client may be stale")

    def leave(self) -> None:
        """Accept no more requests, and close when those in flight are answered."""
        self._leaving = True
        if self._kafka.in_flight == 0:
            self._scope.cancel()
        if not self._starting:
            self._reading.cancel()

    def refuse(self) -> None:
        """Accept no more requests, and close when the client has read the responses and closed its end, at the latest
        after a second."""
        self._refused = True
        self.leave()

    async def run(self) -> None:
        """Serve the client until it disconnects, violates the protocol, or is closed."""
        pauses = self._environment.pauses
        try:
            async with self._stream:
                with self._scope, pauses.calling_on_pause(self._paused):
                    pauses.look()
                    if pauses.settling:
                        self._paused()
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._write)
                        if self.authentication.principal is not None:
                            self.authenticated()
                        else:
                            nursery.start_soon(self._authenticate_in_time)
                        with self._reading:
                            await self._read(nursery)
                        if not self._leaving:
                            nursery.cancel_scope.cancel()
                if self._refused:
                    await self._await_end()
        finally:
            self._closed = True
            self._environment.reply_memory.used -= self._unsent
            self._large.release()
            self._kafka.close()
            if self._closed_because:
                _log.info("connection closed", peer=self._peer, reason=self._closed_because)

    async def _await_end(self) -> None:
        """Discard what the client sends until it closes its end."""
        with (
            trio.move_on_after(_REFUSAL_READ_WITHIN_SECONDS),
            suppress(trio.BrokenResourceError, trio.ClosedResourceError),
        ):
            while await self._stream.receive_some(_DISCARDED_AT_ONCE):
                pass

    async def _authenticate_in_time(self) -> None:
        seconds = self._environment.settings.handshake_ms / 1000
        await trio.sleep(seconds)
        if self.authentication.principal is None:
            self.close(f"not authenticated within {seconds:g} s")

    async def _read(self, nursery: trio.Nursery) -> None:
        kafka = self._kafka
        try:
            while True:
                size = min(max(kafka.bytes_missing, _SMALLEST_READ), _LARGEST_READ)
                if self.authentication.principal is None:
                    size = min(size, self._environment.settings.max_unauthenticated_request_bytes)
                self._receiving = True
                try:
                    data = await self._receive(size)
                except OSError:
                    return
                self._receiving = False
                if not data:
                    return
                if self._plain is not None:
                    acknowledge(self._plain)
                self.last_activity = self._received_at = self._now()
                self._environment.counters.received_bytes += len(data)
                kafka.receive_data(bytes(data))
                await self._start_complete(nursery)
                if self._leaving:
                    return
                if kafka.arriving > _ARRIVES_FREELY:
                    # This is probably a Produce request. It must not hold memory while it waits for a parked fetch.
                    await self._in_turn(Order.APPENDS)
                    await self._hold_room(kafka.arrived)
                else:
                    self._large.release()
        except CorruptData as error:
            self.close(str(error))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def _start_complete(self, nursery: trio.Nursery) -> None:
        """Start the requests that have arrived completely."""
        kafka = self._kafka
        while not self._leaving:
            while self._muted_until:
                await self._unmuted()
            request = None if self._too_much_unsent else kafka.next_request()
            if request is not None:
                self._starting = True
                await self._start(request, nursery)
                self._starting = False
            elif kafka.at_limit or self._too_much_unsent:
                await self._room.wait()
            else:
                break

    async def _unmuted(self) -> None:
        until = self._muted_until
        await trio.sleep_until(until)
        # A request that was answered meanwhile may have muted the connection for longer.
        if self._muted_until == until:
            self._muted_until = 0.0
        # The client could not send while it was muted.
        self.last_activity = self._received_at = self._now()

    async def _start(self, request: Request, nursery: trio.Nursery) -> None:
        api = APIS.get(request.api_key)
        if api is None or (request.api_version not in api.versions and api.key != API_VERSIONS):
            raise ProtocolError(refusal(request.api_key, request.api_version))
        self._check_authenticated(api)
        request.slot.received_at = self._received_at
        version = request.api_version if request.api_version in api.versions else UNSPOKEN
        self._environment.counters.requests[api.key, version] += 1
        size = len(request.body)
        largest = api.largest(self._environment.settings)
        if largest is not None and size > largest:
            raise ProtocolError(f"{api.name} request of {size} bytes exceeds the limit of {largest}")
        charge = self._charge(request) if self._environment.quotas.limit_clients else None
        call = Call(request, self, self._environment, charge)
        order = api.order
        if not self._may_begin(order):
            await self._in_turn(order)
        if order is not Order.ALONE and api.changes(call):
            order = Order.ALONE
            await self._in_turn(order)
        self._environment.pauses.look()
        if self._closed_because:
            return
        self.authorization.client_id = request.client_id or ""
        if self._wire_log is not None:
            self._wire_log.request(api, request)
        self._order = order
        self._under_way += 1
        try:
            if api.needs is not None:
                self.authorization.check(api.needs)
            work = api.handle(call) if charge is None else metered(charge, api.handle, call)
        except CorruptData:
            raise
        except Exception as error:  # noqa: BLE001  one failed request must not affect others
            self._failed(api, call, error)
            return
        if work is None:
            return
        if api.order is Order.APPENDS:
            # Later requests must not overtake one that waits for space in the append queue.
            await self._work(api, call, work)
            return
        self._tasks += 1
        nursery.start_soon(self._work_in_task, api, call, work)

    def _charge(self, request: Request) -> Charge | None:
        principal = self.authentication.principal
        if principal is None:
            return None
        return self._environment.quotas.charge(principal, request.client_id, self.mute)

    def _check_authenticated(self, api: Api) -> None:
        """Raise ProtocolError if the client may not send this request before it authenticates, or does so again."""
        if api.key in BEFORE_AUTHENTICATION:
            return
        if self.authentication.principal is None:
            raise ProtocolError(f"{api.name} request before authentication")
        if self.authentication.expired:
            raise ProtocolError("the client did not authenticate again in time")

    async def _in_turn(self, order: Order) -> None:
        """Wait until all earlier requests that a request of this ``order`` may not overlap with are answered."""
        while not self._may_begin(order):
            self._waits_for_answers = True
            await self._room.wait()
        self._waits_for_answers = False

    def _may_begin(self, order: Order) -> bool:
        if order is Order.READS and self._tasks >= _MAX_TASKS:
            return False
        return self._under_way == 0 or (order is self._order and order is not Order.ALONE)

    async def _work_in_task(self, api: Api, call: Call, work: Work) -> None:
        try:
            await self._work(api, call, work)
        finally:
            self._tasks -= 1
            self._room.notify()

    async def _work(self, api: Api, call: Call, work: Work) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  one failed request must not affect others
            self._failed(api, call, error)

    def _failed(self, api: Api, call: Call, error: Exception) -> None:
        """Handle an exception of a handler, which is a bug unless it is Denied: answer with an error, or else close the
        connection."""
        if isinstance(error, Denied):
            api.fail(call, error.code)
            return
        self._environment.counters.broken[api.key] += 1
        _log.error("request failed", api=api.name, version=call.version, peer=self._peer, exc_info=error)
        if call.request.slot.done:
            return
        try:
            api.fail(call, ErrorCode.unknown_server_error)
        except Exception as second:  # noqa: BLE001  the connection is closed instead
            _log.error("cannot answer failed request", api=api.name, exc_info=second)
            self.close("a request failed and could not be answered")

    async def _write(self) -> None:
        kafka = self._kafka
        try:
            while True:
                while pieces := kafka.data_to_send():
                    self._room.notify()
                    size = sum(map(len, pieces))
                    self._sending = True
                    await self._send(pieces, size)
                    self._sending = False
                    self._hold(-size)
                    self._environment.counters.sent_bytes += size
                    self.last_activity = self._now()
                self._room.notify()
                if self._leaving and kafka.in_flight == 0:
                    self._scope.cancel()
                await self._ready.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._scope.cancel()

    async def _send(self, pieces: list[Buffer], size: int) -> None:
        if size <= _JOINED_UP_TO:
            pieces = [b"".join(pieces)]
        if isinstance(self._stream, TlsStream):
            for piece in pieces:
                await self._stream.send_all(piece)
            return
        try:
            await _send_pieces(self._stream.socket, pieces)
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def _hold_room(self, size: int) -> None:
        """Reserve memory for the ``size`` bytes of a large request that have arrived."""
        began = self._now()
        if size <= self._large.held or not self._large.held:
            self._large_since = began
        await self._large.hold(size)
        # The client could not send while its request waited for memory.
        self.last_activity = self._now()
        self._large_since += self.last_activity - began

    def _replied(self, slot: ReplySlot, size: int) -> None:
        self._environment.counters.took(slot.api_key, self._now() - slot.received_at)
        self._under_way -= 1
        self._hold(size)
        if self._wire_log is not None:
            self._wire_log.reply(slot, size)
        if self._waits_for_answers:
            self._room.notify()

    def _hold(self, size: int) -> None:
        """Count ``size`` response bytes as waiting, or, if negative, as sent. Ignored after the connection closed."""
        if not self._closed:
            self._unsent += size
            self._environment.reply_memory.used += size


def peer_of(stream: trio.SocketStream) -> tuple[str, str]:
    """The peer's address for the log, and its host in Kafka's notation."""
    try:
        peer = stream.socket.getpeername()
    except OSError:
        return "gone", "/unknown"
    return str(peer), kafka_host(str(peer[0]))


def kafka_host(address: str) -> str:
    """Format ``address`` as Java's InetAddress does without a host name: all eight groups of an IPv6 address."""
    parsed = ip_address(address)
    if parsed.version == 6 and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.version == 4:
        return f"/{parsed}"
    return "/" + ":".join(f"{int(part, 16):x}" for part in parsed.exploded.split("%")[0].split(":"))


async def _send_pieces(socket: trio.socket.SocketType, pieces: list[Buffer]) -> None:
    """Send all pieces without joining them."""
    views = [memoryview(piece) for piece in pieces if len(piece)]
    first = 0
    while first < len(views):
        sent = await socket.sendmsg(views[first : first + _MAX_PIECES])
        while first < len(views) and sent >= len(views[first]):
            sent -= len(views[first])
            first += 1
        if sent:
            views[first] = views[first][sent:]
