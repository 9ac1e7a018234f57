"""Accepts clients and keeps their number, their idle time and their leaving within bounds.

Three nested scopes, three lifetimes: accepting ends first, then idle connections at once and busy ones when they have
answered, and only then, outside of here, what they need to answer.
"""

from dataclasses import replace

import structlog
import trio

from kafscale.errors import ConfigError
from kafscale.service.listeners import Listener
from services.gateway.api import Environment
from services.gateway.connection import ClientConnection

_SWEEPS_PER_TIMEOUT = 4
_BACKLOG = 1024

_log = structlog.get_logger(__name__)


class Acceptor:
    """All listeners of the gateway and all connections that came in by them."""

    def __init__(self, listeners: tuple[Listener, ...], environment: Environment) -> None:
        self._listeners = listeners
        self._environment = environment
        self._sockets: list[list[trio.SocketListener]] = []
        self._connections: set[ClientConnection] = set()
        self._full = False

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def bind(self) -> tuple[Listener, ...]:
        """The listeners with the ports that they now have. Raises ConfigError when one cannot be bound."""
        self._listeners = tuple([await self._bind(listener) for listener in self._listeners])
        return self._listeners

    async def run(self, stop: trio.Event) -> None:
        """Serve, after `bind`, until ``stop``; then let the connections end."""
        settings = self._environment.settings
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                for listener, sockets in zip(self._listeners, self._sockets, strict=True):
                    accepting.start_soon(self._accept, listener, sockets, connections)
                accepting.start_soon(self._sweep, settings.idle_timeout_ms / 1000)
                await stop.wait()
                accepting.cancel_scope.cancel()
            self._environment.stopping = True
            for connection in self._connections:
                connection.leave()
            for link in self._environment.router.links():
                link.wake_all()
            connections.cancel_scope.deadline = trio.current_time() + settings.shutdown_grace_ms / 1000

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

    async def _accept(self, listener: Listener, sockets: list[trio.SocketListener], connections: trio.Nursery) -> None:
        async def serve(stream: trio.SocketStream) -> None:
            await self._serve(stream, listener)

        await trio.serve_listeners(serve, sockets, handler_nursery=connections)

    async def _serve(self, stream: trio.SocketStream, listener: Listener) -> None:
        settings = self._environment.settings
        if len(self._connections) >= settings.max_connections:
            if not self._full:
                _log.warning("new connections are closed", connections=len(self._connections))
            self._full = True
            await trio.aclose_forcefully(stream)
            return
        self._full = False
        connection = ClientConnection(stream, self._environment, (listener.advertised_host, listener.advertised_port))
        self._connections.add(connection)
        if self._environment.stopping:
            connection.leave()
        try:
            await connection.run()
        except Exception:  # noqa: BLE001  one connection's failure must stay that
            _log.exception("connection failed")
        finally:
            self._connections.discard(connection)

    async def _sweep(self, idle_seconds: float) -> None:
        """Close connections on which nothing has moved."""
        while True:
            await trio.sleep(idle_seconds / _SWEEPS_PER_TIMEOUT)
            oldest = trio.current_time() - idle_seconds
            for connection in self._connections:
                if connection.idle and connection.last_activity < oldest:
                    connection.close("idle")
