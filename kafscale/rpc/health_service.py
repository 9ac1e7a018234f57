"""gRPC's standard health service. Everything here belongs to the asyncio thread.

With grpcio's own servicer, watchers delay a shutdown until the deadline. This one notifies them and ends their calls.
"""

import asyncio
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

SERVICE_NAME: str = health.SERVICE_NAME
_Reply = health_pb2.HealthCheckResponse


class HealthReports(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # its stubs have no types
    """Reports the whole server (``""``) as SERVING from the start, and services as set by `report`."""

    def __init__(self) -> None:
        self._statuses: dict[str, int] = {"": _Reply.SERVING}
        self._leaving = False
        self._changed = asyncio.Event()

    def report(self, service: str, serving: bool) -> None:
        if not self._leaving:
            self._statuses[service] = _Reply.SERVING if serving else _Reply.NOT_SERVING
            self._wake()

    def leave(self) -> None:
        """Report everything as NOT_SERVING, permanently."""
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
        reported = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, _Reply.SERVICE_UNKNOWN)
            if status != reported:
                await context.write(_Reply(status=status))
                reported = status
            elif self._leaving:
                return
            else:
                await changed.wait()
