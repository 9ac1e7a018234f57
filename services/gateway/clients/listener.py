"""Accepts client connections, limits their number and idle time, and drains them at shutdown.

Shutdown stops accepting first. Idle connections are then closed immediately, busy ones after they have answered. The
components that they need for this are stopped last, by the caller.
"""

import resource
from dataclasses import replace
from itertools import chain

import structlog
import trio
import trio.lowlevel

from kafscale.config.listeners import Listener
from kafscale.errors import ConfigError
from kafscale.limited_log import LimitedLog
from services.gateway.access.authentication import Authenticator
from services.gateway.api import Environment
from services.gateway.clients.address_counts import AddressCounts
from services.gateway.clients.admission import Admission
from services.gateway.clients.connection import ClientConnection, kafka_host, peer_of
from services.gateway.settings import GatewaySettings

_SWEEPS_PER_TIMEOUT = 4
_BACKLOG = 1024
_LEAVING_AT_ONCE = 64
_OTHER_FILES = 256
"""File descriptors reserved for other uses: stores, links, listeners, and files that threads read."""

_log = structlog.get_logger(__name__)


class Acceptor:
    """The listeners of the gateway and the connections that they accepted."""

    def __init__(
        self, listeners: tuple[Listener, ...], settings: GatewaySettings, authenticator: Authenticator
    ) -> None:
        """Raises a ConfigError if a certificate of a listener cannot be used."""
        self._listeners = listeners
        self._settings = settings
        self._admission = Admission(listeners, settings, authenticator)
        self._sockets: list[list[trio.SocketListener]] = []
        self._open = 0
        self._connections: set[ClientConnection] = set()
        self._limit = _connection_limit(settings.max_connections)
        others = {kafka_host(address): number for address, number in settings.max_connections_of_ips or ()}
        self._addresses = AddressCounts(settings.max_connections_per_ip, others)
        self._turned_away = LimitedLog("connection limit reached, closing new connections")

    @property
    def connections(self) -> int:
        return self._open

    async def bind(self) -> tuple[Listener, ...]:
        """Bind the listeners and return them with their actual ports. Raises ConfigError if one cannot be bound."""
        self._listeners = tuple([await self._bind(listener) for listener in self._listeners])
        return self._listeners

    def close(self) -> None:
        """Release the ports, even if `run` was never called."""
        for listener in chain.from_iterable(self._sockets):
            listener.socket.close()

    async def run(self, stop: trio.Event, environment: Environment) -> None:
        """Serve clients until ``stop``, then drain the connections. `bind` must have been called."""
        environment.counters.most_connections = self._limit
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                for listener, sockets in zip(self._listeners, self._sockets, strict=True):
                    accepting.start_soon(self._accept, listener, sockets, connections, environment)
                accepting.start_soon(self._sweep)
                accepting.start_soon(self._admission.run)
                await stop.wait()
                accepting.cancel_scope.cancel()
            environment.stopping = True
            self._admission.stop()
            for number, connection in enumerate(list(self._connections)):
                connection.leave()
                if number % _LEAVING_AT_ONCE == 0:
                    # Closing thousands in one turn of the event loop would delay the lease's keepalive.
                    await trio.lowlevel.checkpoint()
            for link in environment.router.links():
                link.wake_all()
            connections.cancel_scope.deadline = trio.current_time() + self._settings.shutdown_grace_ms / 1000

    async def _bind(self, listener: Listener) -> Listener:
        try:
            sockets = await trio.open_tcp_listeners(listener.port, host=listener.host or None, backlog=_BACKLOG)
        except OSError as error:
            where = f"{listener.host}:{listener.port}"
            raise ConfigError(f"listener {listener.name} cannot listen on {where}: {error}") from error
        self._sockets.append(sockets)
        port = int(sockets[0].socket.getsockname()[1])
        _log.info("listening", listener=listener.name, host=listener.host, port=port)
        return replace(listener, port=port, advertised_port=listener.advertised_port or port)

    async def _accept(
        self,
        listener: Listener,
        sockets: list[trio.SocketListener],
        connections: trio.Nursery,
        environment: Environment,
    ) -> None:
        async def serve(stream: trio.SocketStream) -> None:
            await self._serve(stream, listener, environment)

        await trio.serve_listeners(serve, sockets, handler_nursery=connections)

    async def _serve(self, stream: trio.SocketStream, listener: Listener, environment: Environment) -> None:
        peer, host = peer_of(stream)
        full = self._full_limit(listener, host)
        if full is not None:
            self._turned_away.warning(limit=full, connections=self._open, host=host)
            environment.counters.turned_away += 1
            await trio.aclose_forcefully(stream)
            return
        self._open += 1
        self._addresses.enter(host)
        environment.counters.accepted += 1
        environment.counters.connections += 1
        known = self._admission.enter()
        try:
            if environment.quotas.limit_addresses and (delay_ms := environment.quotas.connection_delay_ms(host)):
                environment.counters.connections_throttled += 1
                known()
                # As in Kafka, because a client that is refused at once would connect again at once.
                await trio.sleep(delay_ms / 1000)
                await trio.aclose_forcefully(stream)
                return
            admitted = await self._admission.admit(stream, listener, peer, host)
            if admitted is None:
                environment.counters.handshakes_failed += 1
            else:
                connection = ClientConnection(
                    *admitted, environment, listener, peer=peer, host=host, on_authenticated=known
                )
                await self._serve_client(connection, environment)
        except Exception:  # noqa: BLE001  one failed connection must not affect others
            _log.exception("connection failed")
            await trio.aclose_forcefully(stream)
        finally:
            known()
            self._open -= 1
            self._addresses.leave(host)
            environment.counters.connections -= 1

    def _full_limit(self, listener: Listener, host: str) -> str | None:
        """Return the setting that does not allow another connection, or None."""
        if self._open >= self._limit:
            return "KAFSCALE_MAX_CONNECTIONS"
        if self._addresses.is_full(host):
            return "KAFSCALE_MAX_CONNECTIONS_PER_IP"
        return "KAFSCALE_MAX_UNAUTHENTICATED_CONNECTIONS" if self._admission.is_full(listener) else None

    async def _serve_client(self, connection: ClientConnection, environment: Environment) -> None:
        self._connections.add(connection)
        if environment.stopping:
            connection.leave()
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def _sweep(self) -> None:
        """Close connections that are idle or stalled."""
        settings = self._settings
        idle, stall = settings.idle_timeout_ms / 1000, settings.request_stall_ms / 1000
        while True:
            await trio.sleep(min(idle, stall) / _SWEEPS_PER_TIMEOUT)
            now = trio.current_time()
            for connection in self._connections:
                if connection.idle and connection.last_activity < now - idle:
                    connection.close("idle")
                elif connection.stalls(now, stall):
                    connection.close("a large request stalled")


def _connection_limit(configured: int) -> int:
    """Return ``configured``, or less if the process's limit of open files requires it."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or configured + _OTHER_FILES <= files:
        return configured
    limit = max(1, files - _OTHER_FILES)
    _log.warning("KAFSCALE_MAX_CONNECTIONS exceeds the limit of open files", files=files, connections=limit)
    return limit
