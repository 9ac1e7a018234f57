"""gRPC's standard health service; everything here runs in the asyncio thread."""

import asyncio
from typing import Any

from grpc_health.v1 import health, health_pb2

SERVICE_NAME: str = health.SERVICE_NAME
_Reply = health_pb2.HealthCheckResponse


class HealthReports(health.aio.HealthServicer):  # type: ignore[misc, name-defined]  # not in its stubs
    """Says SERVING of the whole server (``""``) from the start, and of services once they are reported."""

    def __init__(self) -> None:
        super().__init__()
        self._leaving = asyncio.Event()

    async def report(self, service: str, *, serving: bool) -> None:
        await self.set(service, _Reply.SERVING if serving else _Reply.NOT_SERVING)

    async def leave(self) -> None:
        """Nothing serves any more, for good. Watchers are told, and let go: they must not hold up a stop."""
        await self.enter_graceful_shutdown()
        self._leaving.set()

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802  the proto's name
        tasks = [asyncio.create_task(super().Watch(request, context)), asyncio.create_task(self._leaving.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        await context.write(_Reply(status=_Reply.NOT_SERVING))
