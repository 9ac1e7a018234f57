"""A client for gRPC's health service of another process."""

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
    """The health service of the peer of ``channel``."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def serving(self, service: str = "", *, timeout: float) -> bool:
        """Return whether the peer reports ``service`` (a full proto name), or the whole server, as serving.

        Raises the channel's exception if the call fails: with NOT_FOUND if the peer does not have the service.
        """
        reply = await self._channel.call(_CHECK, health_pb2.HealthCheckRequest(service=service), timeout=timeout)
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
