"""The offsets of a stream, as checkpoints and a query's progress store them.

The format is that of Spark's Kafka source, `{"topic":{"0":123}}`, plus the topics' ids: `{"~ids":{"topic":"..."}}`
(topic names have no tilde). The ids reveal topics that were deleted and recreated.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafscale.errors import ConfigError
from kafscale_spark.edges import TopicPartition

IDS = "~ids"


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The next offset of each partition, and the ids of their topics."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, bytes] = field(default_factory=dict)

    def recreated(self, ids: Mapping[str, bytes]) -> list[str]:
        """Return the topics that have another id in ``ids``."""
        return sorted({topic for topic, _ in self.offsets if self.ids[topic] != ids.get(topic, self.ids[topic])})

    def only(self, partitions: Iterable[TopicPartition]) -> "StreamOffsets":
        kept = {partition: self.offsets[partition] for partition in partitions if partition in self.offsets}
        return StreamOffsets(kept, {topic: self.ids[topic] for topic, _ in kept})

    def json(self) -> dict[str, Any]:
        """Return the JSON in a fixed order, so that equal offsets have equal texts."""
        found: dict[str, Any] = {}
        for (topic, number), offset in sorted(self.offsets.items()):
            found.setdefault(topic, {})[str(number)] = offset
        found[IDS] = {topic: self.ids[topic].hex() for topic in sorted({topic for topic, _ in self.offsets})}
        return found


def parse_offsets(stored: Mapping[str, Any]) -> StreamOffsets:
    """Parse stored offsets. Raises ConfigError if they are not from this source."""
    try:
        ids = {topic: bytes.fromhex(text) for topic, text in stored[IDS].items()}
        offsets = {
            (topic, int(number)): int(offset)
            for topic, numbers in stored.items()
            if topic != IDS
            for number, offset in numbers.items()
        }
        if {topic for topic, _ in offsets} - ids.keys():
            raise ValueError("a topic has no id")
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"the checkpoint has no offsets of the kafscale source: {stored!r} ({error})") from error
    return StreamOffsets(offsets, ids)


def is_ours(stored: object) -> bool:
    """Return whether an offset in a query's progress is from this source."""
    return isinstance(stored, dict) and IDS in stored
