"""What the clients of a chaos run write: topics whose partitions are numbered as logs, and the keys of the records."""

from collections.abc import Sequence
from dataclasses import dataclass

KEYS = 97
_OWN_KEYS = 4


@dataclass(frozen=True, slots=True)
class Logs:
    """The partitions of some topics, which all have the same number of partitions. The topics take turns."""

    topics: Sequence[str]
    count: int

    @property
    def of_each_topic(self) -> int:
        """The number of partitions of a topic."""
        return self.count // len(self.topics)

    def place(self, log: int) -> tuple[str, int]:
        """Return topic and partition of a log."""
        return self.topics[log % len(self.topics)], log // len(self.topics)

    def number(self, topic: str | None, partition: int | None) -> int:
        """Return the number of the log that is this partition."""
        return (partition or 0) * len(self.topics) + self.topics.index(topic or "")

    def of(self, topic: str) -> frozenset[str]:
        """Return the logs that are partitions of a topic, as events name them."""
        return frozenset(str(log) for log in range(self.count) if self.place(log)[0] == topic)


def key_of(name: str, keys: int) -> str:
    """Return the key of a record, whose name ends with a slash and its number.

    ``keys``: how many keys the records share. Every fourth has a key of its own, and all have one if it is 0.
    """
    number = int(name.rpartition("/")[2])
    return str(number % keys) if keys and number % _OWN_KEYS else name
