"""The offsets of a stream, as they stand in checkpoints and in a query's progress.

As Spark's Kafka source writes them, `{"topic":{"0":123}}`, and the topics' ids beside them: `{"~ids":{"topic":"..."}}`
(no topic's name has a tilde). By its id a topic that was deleted and made anew is known.
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

    def made_anew(self, ids: Mapping[str, bytes]) -> list[str]:
        """The topics that have another id there."""
        return sorted({topic for topic, _ in self.offsets if self.ids[topic] != ids.get(topic, self.ids[topic])})

    def only(self, partitions: Iterable[TopicPartition]) -> "StreamOffsets":
        kept = {partition: self.offsets[partition] for partition in partitions if partition in self.offsets}
        return StreamOffsets(kept, {topic: self.ids[topic] for topic, _ in kept})

    def json(self) -> dict[str, Any]:
        """In one order, so that the same offsets are the same text."""
        found: dict[str, Any] = {}
        for (topic, number), offset in sorted(self.offsets.items()):
            found.setdefault(topic, {})[str(number)] = offset
        found[IDS] = {topic: self.ids[topic].hex() for topic in sorted({topic for topic, _ in self.offsets})}
        return found


def parse_offsets(stored: Mapping[str, Any]) -> StreamOffsets:
    """Raises ConfigError for what is no checkpoint of this source."""
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
        raise ConfigError(f"the checkpoint's offsets are none of the kafscale source: {stored!r} ({error})") from error
    return StreamOffsets(offsets, ids)


def is_ours(stored: object) -> bool:
    """Whether a source's offset in a query's progress is of this source."""
    return isinstance(stored, dict) and IDS in stored
