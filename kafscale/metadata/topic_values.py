"""Immutable values of topics and of the cluster, as stored (``protos/kafscale/v1/metadata.proto``)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError

from kafscale.errors import CorruptData, KafscaleError
from kafscale.metadata.interface import KeyValue
from kafscale.v1 import metadata_pb2

_FORMAT = 1
NEW_CLUSTER_STATE_FORMAT = 3
"""The state format of clusters that are created from now on."""
NEWEST_STATE_FORMAT = 3
"""The highest format of partition states that this release knows."""
INTAKE_STATE_FORMAT = 2
"""States of this format may name a tail. Storage runs of this format have an intake."""
REWRITE_STATE_FORMAT = 3
"""States of this format may name a root. Storage runs of this format rewrite logs."""


class TopicExists(KafscaleError):
    """A live topic has this name."""


class TopicDeleting(KafscaleError):
    """A topic of this name is being deleted, so the name is not free yet."""


class DeleterGone(KafscaleError):
    """The run that deletes the topic has lost its lease, so another run may be deleting it now."""


class UnknownTopic(KafscaleError):
    """No live topic has this name or id."""


class NotMorePartitions(KafscaleError):
    """The topic already has this number of partitions or more. The message contains the number."""


class InvalidTopicName(KafscaleError):
    """The name breaks Kafka's rules, or differs from a live topic's only in ``.`` and ``_``."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as it was at ``mod_revision``. ``live`` is False while it is being deleted."""

    name: str
    id: bytes
    partitions: int
    configs: Mapping[str, str]
    live: bool
    epoch_floor: int
    created_ms: int
    mod_revision: int = 0

    @classmethod
    def read(cls, item: KeyValue) -> "TopicInfo":
        """From the stored value. Raises CorruptData."""
        stored = metadata_pb2.Topic()
        _parse(stored, item)
        live = stored.state == metadata_pb2.Topic.LIVE
        return cls(
            stored.name,
            stored.id,
            stored.partitions,
            dict(stored.configs),
            live,
            stored.epoch_floor,
            stored.created_ms,
            item.mod_revision,
        )

    def value(self) -> bytes:
        """As it is stored."""
        return metadata_pb2.Topic(
            format=_FORMAT,
            name=self.name,
            id=self.id,
            partitions=self.partitions,
            configs=dict(self.configs),
            state=metadata_pb2.Topic.LIVE if self.live else metadata_pb2.Topic.DELETING,
            epoch_floor=self.epoch_floor,
            created_ms=self.created_ms,
        ).SerializeToString(deterministic=True)

    def deleting(self) -> "TopicInfo":
        return replace(self, live=False)

    def grown(self, partitions: int) -> "TopicInfo":
        """Return a copy with more partitions. Raises NotMorePartitions."""
        if partitions == self.partitions:
            raise NotMorePartitions(f"Topic already has {partitions} partition(s).")
        if partitions < self.partitions:
            raise NotMorePartitions(
                f"The topic {self.name} currently has {self.partitions} partition(s); "
                f"{partitions} would not be an increase."
            )
        return replace(self, partitions=partitions)

    def configured(self, configs: Mapping[str, str]) -> "TopicInfo":
        return replace(self, configs=dict(configs))

    def at(self, revision: int) -> "TopicInfo":
        return replace(self, mod_revision=revision)


@dataclass(frozen=True, slots=True)
class TopicsView:
    """All topics at one revision, including those that are being deleted."""

    revision: int
    by_name: Mapping[str, TopicInfo]
    by_id: Mapping[bytes, TopicInfo]
    _by_collision: Mapping[str, str]

    @classmethod
    def of(cls, revision: int, topics: Iterable[TopicInfo]) -> "TopicsView":
        by_name = {topic.name: topic for topic in topics}
        by_id = {topic.id: topic for topic in by_name.values()}
        return cls(
            revision, by_name, by_id, {_folded(topic.name): topic.name for topic in by_name.values() if topic.live}
        )

    @property
    def live_names(self) -> list[str]:
        """The names of all topics that are visible to clients, in order."""
        return sorted(name for name, topic in self.by_name.items() if topic.live)

    def live(self, name: str) -> TopicInfo | None:
        """Return the topic with this name that is visible to clients, or None."""
        found = self.by_name.get(name)
        return found if found is not None and found.live else None

    def live_by_id(self, topic_id: bytes) -> TopicInfo | None:
        """Return the topic with this id that is visible to clients, or None."""
        found = self.by_id.get(topic_id)
        return found if found is not None and found.live else None

    def collision(self, name: str) -> str | None:
        """Return another live topic whose name differs only in ``.`` and ``_``, which Kafka's metric names confuse."""
        found = self._by_collision.get(_folded(name))
        return found if found != name else None


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """``cluster_id``: 22 characters, base64url of 16 bytes. New topics start above ``epoch_floor``.

    ``state_format``: of the partition states that storage runs write which start from now on.
    """

    cluster_id: str
    epoch_floor: int
    state_format: int = 1

    @classmethod
    def read(cls, item: KeyValue) -> "ClusterInfo":
        """From the stored value. Raises CorruptData."""
        stored = metadata_pb2.Cluster()
        _parse(stored, item)
        return cls(stored.cluster_id, stored.epoch_floor, max(stored.state_format, 1))

    def value(self) -> bytes:
        """As it is stored."""
        stored = metadata_pb2.Cluster(format=_FORMAT, cluster_id=self.cluster_id, epoch_floor=self.epoch_floor)
        if self.state_format > 1:
            stored.state_format = self.state_format
        return stored.SerializeToString(deterministic=True)

    def lifted_to(self, epoch: int) -> "ClusterInfo":
        return replace(self, epoch_floor=max(self.epoch_floor, epoch))


def _parse(message: metadata_pb2.Topic | metadata_pb2.Cluster, item: KeyValue) -> None:
    try:
        message.ParseFromString(item.value)
    except DecodeError as error:
        raise CorruptData(f"metadata key {item.key} does not parse") from error
    if message.format != _FORMAT:
        raise CorruptData(f"metadata key {item.key} has format {message.format}, this release reads {_FORMAT}")


def _folded(name: str) -> str:
    return name.replace(".", "_")
