"""What a snapshot says about topics and partitions: lower bounds of their current state."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.metadata.interface import KeyValue
from kafscale.metadata.topic_values import ClusterInfo, TopicInfo
from kafscale.v1.metadata_pb2 import IntakeRegister, PartitionState, ProducerIds
from kafscale_tools.recovery.backup_format import Item


@dataclass(slots=True)
class KnownPartition:
    """A partition of the topic with ``topic_id`` at the time of the snapshot."""

    topic_id: bytes
    log_start: int
    high_watermark: int


@dataclass(slots=True)
class Known:
    """The contents of a snapshot; empty if there is none. ``runs``: those that may have intakes."""

    topics: dict[str, TopicInfo] = field(default_factory=dict)
    partitions: dict[tuple[str, int], KnownPartition] = field(default_factory=dict)
    epoch_floor: int = 0
    highest_epoch: int = 0
    next_producer_id: int = 0
    state_format: int = 1
    runs: set[str] = field(default_factory=set)

    def partition(self, topic_id: bytes, topic: str, partition: int) -> KnownPartition:
        found = self.partitions.get((topic, partition))
        return found if found is not None and found.topic_id == topic_id else KnownPartition(topic_id, 0, 0)

    def rise_above(self, other: "Known") -> None:
        """Raise all counters to at least those of ``other``, so that nothing it assigned is assigned again.

        Its runs are added too.
        """
        self.epoch_floor = max(self.epoch_floor, other.epoch_floor)
        self.highest_epoch = max(self.highest_epoch, other.highest_epoch)
        self.next_producer_id = max(self.next_producer_id, other.next_producer_id)
        self.state_format = max(self.state_format, other.state_format)
        self.runs |= other.runs


async def read_known(items: AsyncGenerator[Item, None], namespace: str) -> Known:
    """Read the items of a snapshot. Raises CorruptData, and the errors of reading the snapshot."""
    known, root = Known(), paths.metadata_root(namespace)
    topics, states = paths.topics_prefix(namespace), paths.partition_states_prefix(namespace)
    registers = paths.intake_registers_prefix(namespace)
    async with aclosing(items):
        async for item in items:
            stored = KeyValue(f"{root}{item.key}", item.value, 0, 0)
            try:
                if stored.key == paths.cluster_key(namespace):
                    cluster = ClusterInfo.read(stored)
                    known.epoch_floor, known.state_format = cluster.epoch_floor, cluster.state_format
                elif stored.key == paths.producer_ids_key(namespace):
                    known.next_producer_id = ProducerIds.FromString(item.value).next
                elif stored.key.startswith(registers):
                    if IntakeRegister.FromString(item.value).intake:
                        known.runs.add(paths.run_of_intake_register(namespace, stored.key))
                elif stored.key.startswith(topics):
                    topic = TopicInfo.read(stored)
                    known.topics[topic.name] = topic
                    known.highest_epoch = max(known.highest_epoch, topic.epoch_floor)
                elif (named := paths.parse_partition(states, stored.key)) is not None:
                    state = PartitionState.FromString(item.value)
                    known.partitions[named] = KnownPartition(state.topic_id, state.log_start, state.high_watermark)
                    known.highest_epoch = max(known.highest_epoch, state.epoch)
            except DecodeError as error:
                raise CorruptData(f"metadata key {stored.key} cannot be decoded") from error
    return known
