"""What a KafscaleCluster says. Pure."""

from services.operator.resources import Object, name_of


def servers_of(resource: Object) -> list[str]:
    """Where its gateways answer operators, each ``host:port``: as it says, else by the Service that was made."""
    if "adminServers" in resource["spec"]:
        return list(resource["spec"]["adminServers"])
    return [f"{name_of(resource)}-kafscale.{resource['metadata']['namespace']}.svc:9094"]


def is_made(resource: Object) -> bool:
    """Whether the operator makes the cluster; else it runs already."""
    return "bucket" in resource["spec"]
