"""Kubernetes objects as they are here: plain JSON, and the kinds that the operator reads and writes. Pure."""

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
"""One object of the API, or a part of it."""

GROUP = "kafscale.io"
FINALIZER = f"{GROUP}/topic"
"""Kept on a resource whose topic has to be deleted with it."""
MANAGER = "kafscale-operator"
"""Who applies fields, and whom events are from."""


@dataclass(frozen=True, slots=True)
class Kind:
    """``api`` is the group and version as in apiVersion, ``plural`` the name in paths."""

    api: str
    name: str
    plural: str


TOPIC = Kind(f"{GROUP}/v1alpha1", "KafscaleTopic", "kafscaletopics")
CLUSTER = Kind(f"{GROUP}/v1alpha1", "KafscaleCluster", "kafscaleclusters")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
EVENT = Kind("v1", "Event", "events")
MADE = (
    Kind("v1", "ServiceAccount", "serviceaccounts"),
    Kind("v1", "ConfigMap", "configmaps"),
    Kind("v1", "Service", "services"),
    Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Kind("apps/v1", "StatefulSet", "statefulsets"),
    Kind("apps/v1", "Deployment", "deployments"),
    Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    Kind("batch/v1", "CronJob", "cronjobs"),
)
"""What clusters are made of. Neither claims nor volumes: those of etcd outlive the cluster's resource."""


def name_of(resource: Object) -> str:
    return str(resource["metadata"]["name"])


def is_deleting(resource: Object) -> bool:
    return "deletionTimestamp" in resource["metadata"]


def finalizers(resource: Object) -> list[str]:
    return list(resource["metadata"].get("finalizers", []))


def age_key(resource: Object) -> tuple[str, str]:
    """Orders resources by when they were made."""
    return str(resource["metadata"]["creationTimestamp"]), name_of(resource)


def wants_work(former: Object | None, present: Object | None) -> bool:
    """Whether a change is one to act on: not where only the status is another one, which the operator writes."""
    if former is None or present is None:
        return former is not present
    return _cause(former) != _cause(present)


def _cause(resource: Object) -> tuple[Any, ...]:
    metadata = resource["metadata"]
    return (
        metadata.get("uid"),
        metadata.get("generation"),
        metadata.get("deletionTimestamp"),
        metadata.get("finalizers"),
        metadata.get("annotations"),
        metadata.get("labels"),
    )
