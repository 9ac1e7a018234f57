"""The clusters that topics and users belong to, and resources that describe the same topic or user. No IO."""

from collections.abc import Callable, Collection, Iterable

from services.operator.resources import Object, age_key, name_of


def named_cluster(resource: Object) -> str:
    """Return the cluster that the resource names, else the one that the operator chose before, else nothing."""
    reference = resource["spec"].get("clusterRef", {})
    return str(reference.get("name") or resource.get("status", {}).get("cluster", ""))


def cluster_of(resource: Object, clusters: Collection[str]) -> str:
    """Return the cluster of a resource. ``clusters`` are the names of all KafscaleClusters.

    Empty if the resource names none and there is not exactly one.
    """
    return named_cluster(resource) or (next(iter(clusters)) if len(clusters) == 1 else "")


def why_no_cluster(cluster: str, clusters: Collection[str]) -> tuple[str, str]:
    """Return reason and message for a resource whose ``cluster`` does not exist, or is empty."""
    if cluster:
        return "ClusterNotFound", f"KafscaleCluster {cluster} does not exist in this namespace"
    if not clusters:
        return "ClusterNotFound", "spec.clusterRef is not set, and this namespace has no KafscaleCluster"
    names = ", ".join(sorted(clusters))
    message = f"spec.clusterRef is not set, and this namespace has more than one KafscaleCluster ({names}): set it"
    return "ClusterAmbiguous", message


def oldest_rival(resource: Object, resources: Iterable[Object], identity: Callable[[Object], tuple[str, str]]) -> str:
    """Return the name of the oldest older resource with the same ``identity``, empty if there is none."""
    own = identity(resource)
    older = [
        other
        for other in resources
        if name_of(other) != name_of(resource) and age_key(other) < age_key(resource) and identity(other) == own
    ]
    return name_of(min(older, key=age_key)) if older else ""
