"""The gRPC server: grpc.aio in the asyncio thread, with calls that run as Trio tasks."""

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
    """Serves ``services`` (see `kafscale.rpc.methods.bind`), gRPC's health service and, without guards, reflection.

    ``tracer``: used for calls that belong to a span of the caller.
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
        """Add a service before `serve`. A service that must know the port can be created after `bind`."""
        self._services.append(service)
        for method, _ in service.methods.values():
            self.calls.register(method)
        self.set_serving(service=service.name, serving=True)

    def set_serving(self, *, serving: bool, service: str = "") -> None:
        """Set what the health service reports of ``service`` (its full proto name), or of the whole server.

        Everything is reported as serving from the start, and as not serving once the server is stopping.
        """
        asyncio_loop().call_soon_threadsafe(self._health.report, service, serving)

    async def run(
        self, address: str, stop: trio.Event, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """`bind` and `serve`. ``started`` reports the port."""
        port = await self.bind(address)
        await self._serve(stop, lambda: task_status.started(port))

    async def bind(self, address: str) -> int:
        """Bind ``address`` (``host:port``, port 0: any) and return the port. Clients have to wait until `serve` runs.

        Raises ConfigError if it cannot serve at the address.
        """
        with trio.CancelScope(shield=True):
            self._server, port = await in_asyncio(self._bind(address))
        return port

    async def serve(self, stop: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until ``stop`` is set. Call `bind` first.

        After ``stop``, no new calls are accepted, and calls that do not finish within ``drain_seconds`` are cancelled.
        If this task is cancelled, all calls are cancelled immediately. Returns when the last call has ended.
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
            options=self._limits.server_options(), maximum_concurrent_rpcs=self._limits.grpc_call_limit
        )
        try:
            if self._credentials is None:
                return server, server.add_insecure_port(address)
            return server, server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise ConfigError(f"cannot serve gRPC at {address}: {_bind_error(address) or error}") from error

    async def _start(self, server: "grpc.aio.Server", handler: CallHandler) -> None:
        server.add_generic_rpc_handlers((handler,))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [service.name for service in self._services]
        if not any(service.guard for service in self._services):
            # Reflection does not ask who calls.
            reflection.enable_server_reflection([*names, SERVICE_NAME, reflection.SERVICE_NAME], server)
        await server.start()

    async def _drain(self, server: "grpc.aio.Server") -> None:
        self._health.leave()
        await server.stop(self._limits.drain_seconds)


def _bind_error(address: str) -> str:
    """Return why ``address`` cannot be bound, which gRPC does not report. Empty if it can be bound now."""
    host, _, port = address.rpartition(":")
    try:
        for family, *_, where in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
            with socket.socket(family) as probe:
                probe.bind(where)
    except OSError as error:
        return error.strerror or str(error)
    return ""
