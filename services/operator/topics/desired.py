"""The desired state of a topic, from its KafscaleTopic. This module does no IO."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

from services.operator.cluster_refs import cluster_of
from services.operator.resources import Object, name_of
from services.operator.topics.retention import retention_ms


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state. ``configs`` are not validated yet.

    ``partitions`` None means those of the existing topic, or the gateway's default. ``cluster`` is empty if the
    resource names none and the namespace does not have exactly one.
    """

    topic: str
    cluster: str
    partitions: int | None
    configs: Mapping[str, str]
    deletes: bool
    """Whether the topic is deleted with its resource."""

    @classmethod
    def of(cls, resource: Object, clusters: Collection[str]) -> Self:
        """Return the desired state in a valid resource. ``clusters`` are the names of all KafscaleClusters."""
        spec = resource["spec"]
        configs = dict(spec.get("config", {}))
        if "retention" in spec:
            configs["retention.ms"] = str(retention_ms(spec["retention"]))
        if "compression" in spec:
            configs["compression.type"] = spec["compression"]
        return cls(
            topic=_topic_name(resource),
            cluster=cluster_of(resource, clusters),
            partitions=spec.get("partitions"),
            configs=configs,
            deletes=spec.get("deletionPolicy") == "Delete",
        )


def identity(resource: Object, clusters: Collection[str]) -> tuple[str, str]:
    """Return the cluster and the topic that the resource describes. Only one resource can describe a topic."""
    return cluster_of(resource, clusters), _topic_name(resource)


def _topic_name(resource: Object) -> str:
    return str(resource["spec"].get("topicName") or name_of(resource))
