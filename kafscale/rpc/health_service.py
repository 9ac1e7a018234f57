"""gRPC's standard health service. Everything here belongs to the asyncio thread.

grpcio's own servicer lets its watchers hold up a stop until the deadline: this one tells them, and lets them go.
"""

import asyncio
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

SERVICE_NAME: str = health.SERVICE_NAME
_Reply = health_pb2.HealthCheckResponse


class HealthReports(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # its stubs have no types
    """Says SERVING of the whole server (``""``) from the start, and of a service what is reported."""

    def __init__(self) -> None:
        self._statuses: dict[str, int] = {"": _Reply.SERVING}
        self._leaving = False
        self._changed = asyncio.Event()

    def report(self, service: str, serving: bool) -> None:
        if not self._leaving:
            self._statuses[service] = _Reply.SERVING if serving else _Reply.NOT_SERVING
            self._wake()

    def leave(self) -> None:
        """Nothing serves any more, for good."""
        self._statuses = dict.fromkeys(self._statuses, _Reply.NOT_SERVING)
        self._leaving = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(self, request: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:  # noqa: N802
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r}")
        return _Reply(status=status)

    async def Watch(self, request: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> None:  # noqa: N802
        told = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, _Reply.SERVICE_UNKNOWN)
            if status != told:
                await context.write(_Reply(status=status))
                told = status
            elif self._leaving:
                return
            else:
                await changed.wait()
