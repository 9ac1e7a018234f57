"""What a KafscaleCluster says. Pure."""

from services.operator.resources import Object


def servers_of(resource: Object) -> list[str]:
    """Where its gateways answer operators, each ``host:port``."""
    return list(resource["spec"]["adminServers"])
