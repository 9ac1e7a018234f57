"""The serving side of gRPC: a grpc.aio server in the asyncio thread, whose calls run as Trio tasks."""

import socket
from collections.abc import Callable, Sequence

import grpc
import grpc.aio
import trio
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from kafscale.errors import ConfigError
from kafscale.rpc.bridge import asyncio_loop, in_asyncio
from kafscale.rpc.calls import CallHandler
from kafscale.rpc.counters import CallCounters
from kafscale.rpc.health_service import SERVICE_NAME, HealthReports
from kafscale.rpc.limits import RpcLimits
from kafscale.rpc.methods import BoundService
from kafscale.rpc.tls import RpcTls, server_credentials
from kafscale.tracing import Tracer


class RpcServer:
    """Serves ``services`` (see `kafscale.rpc.methods.bind`), gRPC's health service and reflection.

    ``tracer``: for calls that are traced by who makes them.
    """

    def __init__(
        self,
        services: Sequence[BoundService] = (),
        limits: RpcLimits | None = None,
        *,
        tls: RpcTls | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._tracer = tracer
        self._services: list[BoundService] = []
        self._limits = limits or RpcLimits()
        self._credentials = None if tls is None else server_credentials(tls)
        self._health = HealthReports()
        self._server: grpc.aio.Server | None = None
        self.calls = CallCounters()
        for service in services:
            self.add(service)

    def add(self, service: BoundService) -> None:
        """One more service, before `serve`: a service that must know the port is made after `bind`."""
        self._services.append(service)
        for method, _ in service.methods.values():
            self.calls.know(method)
        self.set_serving(service=service.name, serving=True)

    def set_serving(self, *, serving: bool, service: str = "") -> None:
        """What the health service tells of ``service`` (its full proto name), or of the whole server.

        Everything serves from the start; nothing does once the server is stopping.
        """
        asyncio_loop().call_soon_threadsafe(self._health.report, service, serving)

    async def run(
        self, address: str, stop: trio.Event, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """`bind` and `serve`; ``started`` tells the port."""
        port = await self.bind(address)
        await self._serve(stop, lambda: task_status.started(port))

    async def bind(self, address: str) -> int:
        """Take ``address`` (``host:port``, port 0: any) and give the port; clients wait until `serve` runs.

        Raises ConfigError when the address cannot be served at.
        """
        with trio.CancelScope(shield=True):
            self._server, port = await in_asyncio(self._bind(address))
        return port

    async def serve(self, stop: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve, after `bind`, until ``stop``.

        Then nothing new is taken, calls in hand get ``drain_seconds`` to finish, and what is left is cancelled; so is
        all of it at once when this task is cancelled. Returns when the last call has ended.
        """
        await self._serve(stop, task_status.started)

    async def _serve(self, stop: trio.Event, started: Callable[[], None]) -> None:
        server = self._server
        if server is None:
            raise RuntimeError("the server is not bound")
        async with trio.open_nursery() as nursery:
            handler = CallHandler(self._services, self._limits, nursery, self.calls, self._tracer)
            try:
                with trio.CancelScope(shield=True):
                    await in_asyncio(self._start(server, handler))
                started()
                await stop.wait()
                await in_asyncio(self._drain(server))
            finally:
                with trio.CancelScope(shield=True):
                    await in_asyncio(server.stop(None))
                handler.close()

    async def _bind(self, address: str) -> tuple["grpc.aio.Server", int]:
        server = grpc.aio.server(
            options=self._limits.server_options(), maximum_concurrent_rpcs=self._limits.most_grpc_calls
        )
        try:
            if self._credentials is None:
                return server, server.add_insecure_port(address)
            return server, server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise ConfigError(f"cannot serve gRPC at {address}: {_why_not(address) or error}") from error

    async def _start(self, server: "grpc.aio.Server", handler: CallHandler) -> None:
        server.add_generic_rpc_handlers((handler,))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [service.name for service in self._services]
        reflection.enable_server_reflection([*names, SERVICE_NAME, reflection.SERVICE_NAME], server)
        await server.start()

    async def _drain(self, server: "grpc.aio.Server") -> None:
        self._health.leave()
        await server.stop(self._limits.drain_seconds)


def _why_not(address: str) -> str:
    """Why nobody can listen at ``address``, which gRPC keeps to itself; empty: it seems that one can."""
    host, _, port = address.rpartition(":")
    try:
        for family, *_, where in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
            with socket.socket(family) as probe:
                probe.bind(where)
    except OSError as error:
        return error.strerror or str(error)
    return ""
