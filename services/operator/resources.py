"""Kubernetes objects as plain JSON, and the kinds that the operator reads and writes. This module does no IO."""

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
"""An object of the API, or a part of one."""

GROUP = "kafscale.io"
TOPIC_FINALIZER = f"{GROUP}/topic"
"""The finalizer of resources whose topic is deleted with them."""
USER_FINALIZER = f"{GROUP}/user"
"""The finalizer of resources whose credentials and ACLs are deleted with them."""
MANAGER = "kafscale-operator"
"""The field manager, and the source of events."""


@dataclass(frozen=True, slots=True)
class Kind:
    """``api`` is the group and version as in apiVersion, ``plural`` the name in paths."""

    api: str
    name: str
    plural: str


TOPIC = Kind(f"{GROUP}/v1alpha1", "KafscaleTopic", "kafscaletopics")
CLUSTER = Kind(f"{GROUP}/v1alpha1", "KafscaleCluster", "kafscaleclusters")
USER = Kind(f"{GROUP}/v1alpha1", "KafscaleUser", "kafscaleusers")
SECRET = Kind("v1", "Secret", "secrets")
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
"""The kinds of objects that clusters consist of. The volumes and claims of etcd are not among them, so they remain."""


def name_of(resource: Object) -> str:
    return str(resource["metadata"]["name"])


def is_deleting(resource: Object) -> bool:
    return "deletionTimestamp" in resource["metadata"]


def finalizers(resource: Object) -> list[str]:
    return list(resource["metadata"].get("finalizers", []))


def age_key(resource: Object) -> tuple[str, str]:
    """Return a key that orders resources by creation."""
    return str(resource["metadata"]["creationTimestamp"]), name_of(resource)


def wants_work(former: Object | None, present: Object | None) -> bool:
    """Return whether a change requires reconciliation. Changes of the status, which the operator writes, do not."""
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
