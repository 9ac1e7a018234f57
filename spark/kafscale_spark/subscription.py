"""The topics and partitions that a query reads."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafscale.errors import ConfigError
from kafscale.v1 import common_pb2
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.edges import TopicPartition


@dataclass(frozen=True, slots=True)
class Subscription:
    """One of: topics by name, topics whose name contains a match of a pattern, or partitions of topics."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: Mapping[str, tuple[int, ...]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names to request, or none to request all topics."""
        return tuple(self.partitions) if self.partitions is not None else self.topics

    def select(self, topics: Iterable[pb.TopicDescription]) -> "Found":
        """Return the partitions of the live topics that are read."""
        known = {topic.name: topic for topic in topics}
        if self.partitions is not None:
            chosen = [
                (name, number)
                for name, numbers in self.partitions.items()
                if name in known
                for number in numbers
                if number < known[name].partitions
            ]
        else:
            matches = re.compile(self.pattern).search if self.pattern else self.topics.__contains__
            chosen = [(name, number) for name in known if matches(name) for number in range(known[name].partitions)]
        return Found(tuple(sorted(chosen)), {name: known[name].id for name, _ in chosen})

    def missing(self, found: "Found") -> list[str]:
        """Return the named topics or partitions that do not exist, as text for messages."""
        if self.partitions is not None:
            requested = [(name, number) for name, numbers in self.partitions.items() for number in numbers]
            return [f"{name}-{number}" for name, number in requested if (name, number) not in found.partitions]
        return [name for name in self.topics if name not in found.ids]


@dataclass(frozen=True, slots=True)
class Found:
    """Partitions in order, and the ids of their topics."""

    partitions: tuple[TopicPartition, ...]
    ids: Mapping[str, bytes]

    def ref(self, partition: TopicPartition) -> common_pb2.PartitionRef:
        topic, number = partition
        return common_pb2.PartitionRef(topic=topic, topic_id=self.ids[topic], partition=number)


def topic_names(text: str) -> tuple[str, ...]:
    """Parse the names of `subscribe`. Raises ValueError."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise ValueError("no topic is named")
    return names


def java_pattern(text: str) -> str:
    """Translate a pattern of java.util.regex for Python's re. Raises ValueError for unsupported syntax."""
    if "&&" in text:
        raise ValueError("Python's re does not support && in character classes")
    # Named groups have a P in Python.
    pattern = re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", text.strip())
    pattern = re.sub(r"\\k<([A-Za-z][A-Za-z0-9]*)>", r"(?P=\1)", pattern)
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a valid pattern of Python's re: {error}") from error
    if not pattern:
        raise ValueError("it is empty")
    return pattern


def one_of(options: Mapping[str, Subscription | None]) -> Subscription:
    """Return the only subscription that is set. Raises ConfigError if none or several are."""
    chosen = {name: subscription for name, subscription in options.items() if subscription is not None}
    if len(chosen) != 1:
        what = f"only one of {', '.join(chosen)} can be set" if chosen else f"one of {', '.join(options)} is required"
        raise ConfigError(f"the topics to read: {what}")
    return next(iter(chosen.values()))
