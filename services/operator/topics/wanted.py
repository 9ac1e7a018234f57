"""What a KafscaleTopic asks for. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from services.operator.resources import Object, name_of
from services.operator.topics.retention import retention_ms


@dataclass(frozen=True, slots=True)
class Wanted:
    """``partitions`` None: as there are, or as the gateway gives a new topic. ``configs`` are not checked yet."""

    topic: str
    cluster: str
    partitions: int | None
    configs: Mapping[str, str]
    deletes: bool
    """The topic goes with its resource."""

    @classmethod
    def of(cls, resource: Object) -> Self:
        """Of a resource that the schema has let in."""
        spec = resource["spec"]
        configs = dict(spec.get("config", {}))
        if "retention" in spec:
            configs["retention.ms"] = str(retention_ms(spec["retention"]))
        if "compression" in spec:
            configs["compression.type"] = spec["compression"]
        return cls(
            topic=spec.get("topicName") or name_of(resource),
            cluster=spec["clusterRef"]["name"],
            partitions=spec.get("partitions"),
            configs=configs,
            deletes=spec.get("deletionPolicy") == "Delete",
        )
