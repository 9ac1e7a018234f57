"""The desired state of a cluster, from its KafscaleCluster. This module does no IO."""

from services.operator.resources import Object, name_of


def servers_of(resource: Object) -> list[str]:
    """Return the gateways' Admin addresses (``host:port``): those in the resource, else that of the created Service."""
    if "adminServers" in resource["spec"]:
        return list(resource["spec"]["adminServers"])
    return [f"{name_of(resource)}-kafscale.{resource['metadata']['namespace']}.svc:9094"]


def is_made(resource: Object) -> bool:
    """Return whether the operator creates the cluster. Otherwise it already runs."""
    return "bucket" in resource["spec"]
