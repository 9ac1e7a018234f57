"""Where reading begins and ends, and the JSON of Kafka's Spark source for partitions, offsets and timestamps."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafscale.errors import ConfigError
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.options import Parser

LATEST = -1
EARLIEST = -2
_MOST_PARTITION = 2**31 - 1
_MOST = 2**63 - 1

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Edge:
    """One end of what is read: offsets, LATEST and EARLIEST among them, or timestamps in ms.

    The same for all partitions (``everywhere``) or each partition's own. ``option`` is where it comes from.
    """

    option: str
    everywhere: int | None = None
    each: Mapping[TopicPartition, int] = field(default_factory=dict)
    by_time: bool = False

    def of(self, partition: TopicPartition) -> int:
        return self.each[partition] if self.everywhere is None else self.everywhere

    def offset_of(self, partition: TopicPartition) -> int | None:
        """The offset that was asked for by its number."""
        value = self.of(partition)
        return None if self.by_time or value < 0 else value

    def bound(self, partition: TopicPartition) -> pb.Bound:
        value = self.of(partition)
        if self.by_time:
            return pb.Bound(timestamp=value)
        return {LATEST: pb.Bound(latest=True), EARLIEST: pb.Bound(earliest=True)}.get(value, pb.Bound(offset=value))

    def check(self, partitions: Iterable[TopicPartition]) -> None:
        """Raises ConfigError unless it names exactly these partitions, or none at all."""
        if self.everywhere is not None:
            return
        expected, named = set(partitions), set(self.each)
        if expected != named:
            raise ConfigError(
                f"option {self.option} must name every partition that is read and no other"
                f"{'' if self.by_time else ' (-1 is latest, -2 earliest)'}: "
                f"it lacks {_listed(expected - named)} and has {_listed(named - expected)} beside them"
            )


def _listed(partitions: set[TopicPartition]) -> str:
    shown = [f"{topic}-{number}" for topic, number in sorted(partitions)]
    more = f" and {len(shown) - 10} more" if len(shown) > 10 else ""
    return ", ".join(shown[:10]) + more if shown else "none"


def offsets_parser(option: str) -> Parser[Edge]:
    """earliest, latest, or an offset for every partition."""

    def read(text: str) -> Edge:
        named = {"latest": LATEST, "earliest": EARLIEST}.get(text.strip().lower())
        return Edge(option, named) if named is not None else Edge(option, each=_by_partition(text, EARLIEST))

    return Parser('`earliest`, `latest`, or JSON such as `{"topic":{"0":23,"1":-1}}`, -1 latest, -2 earliest', read)


def timestamps_parser(option: str) -> Parser[Edge | None]:
    """A timestamp for every partition."""

    def read(text: str) -> Edge:
        return Edge(option, each=_by_partition(text, 0), by_time=True)

    return Parser('JSON such as `{"topic":{"0":1700000000000}}`', read)


def timestamp_parser(option: str) -> Parser[Edge | None]:
    """One timestamp for all partitions."""

    def read(text: str) -> Edge:
        if not text.strip().isascii() or not text.strip().isdigit() or int(text) > _MOST:
            raise ValueError("not such a number")
        return Edge(option, int(text), by_time=True)

    return Parser("milliseconds since 1970", read)


def _by_partition(text: str, least: int) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _object(text).items():
        if not isinstance(partitions, dict):
            raise ValueError(f"topic {topic} has no object of its own")
        for number, value in partitions.items():
            if not _is_integer(value) or not least <= value <= _MOST:
                raise ValueError(f"{topic}-{number} has {value!r}")
            found[topic, _partition(number)] = value
    if not found:
        raise ValueError("it names no partition")
    return found


def assigned(text: str) -> dict[str, tuple[int, ...]]:
    """The partitions of `assign`'s JSON. Raises ValueError."""
    found = {}
    for topic, numbers in _object(text).items():
        if not isinstance(numbers, list) or not all(_is_integer(n) and 0 <= n <= _MOST_PARTITION for n in numbers):
            raise ValueError(f"topic {topic} has no list of partitions")
        found[topic] = tuple(sorted(set(numbers)))
    if not any(found.values()):
        raise ValueError("it names no partition")
    return found


def _object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("no object of topics")
    return found


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _partition(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _MOST_PARTITION:
        raise ValueError(f"{text!r} is no partition")
    return int(text)
