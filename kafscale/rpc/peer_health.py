"""What gRPC's health service of another process says."""

from grpc_health.v1 import health_pb2

from kafscale.rpc.client import Channel
from kafscale.rpc.methods import method

_CHECK = method(
    health_pb2.DESCRIPTOR.services_by_name["Health"],
    "Check",
    health_pb2.HealthCheckRequest,
    health_pb2.HealthCheckResponse,
)


class PeerHealth:
    """Of the peer of ``channel``."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def serving(self, service: str = "", *, timeout: float) -> bool:
        """Whether it says that it serves ``service`` (its full proto name), or that it is ready as a whole.

        Raises what the channel makes of a call that failed: NOT_FOUND is for a service that it does not have.
        """
        reply = await self._channel.call(_CHECK, health_pb2.HealthCheckRequest(service=service), timeout=timeout)
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
