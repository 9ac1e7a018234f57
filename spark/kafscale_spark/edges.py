"""The start and end of a read, and the JSON of Spark's Kafka source for partitions, offsets and timestamps."""

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
    """The start or the end of a read: offsets, LATEST or EARLIEST, or timestamps in ms since 1970.

    It is one value for all partitions (``everywhere``) or one for each. ``option`` is the option that sets it.
    """

    option: str
    everywhere: int | None = None
    each: Mapping[TopicPartition, int] = field(default_factory=dict)
    by_time: bool = False

    def of(self, partition: TopicPartition) -> int:
        return self.each[partition] if self.everywhere is None else self.everywhere

    def offset_of(self, partition: TopicPartition) -> int | None:
        """Return the offset that the option sets as a number, or None."""
        value = self.of(partition)
        return None if self.by_time or value < 0 else value

    def bound(self, partition: TopicPartition) -> pb.Bound:
        value = self.of(partition)
        if self.by_time:
            return pb.Bound(timestamp=value)
        return {LATEST: pb.Bound(latest=True), EARLIEST: pb.Bound(earliest=True)}.get(value, pb.Bound(offset=value))

    def check(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise ConfigError unless the option names exactly these partitions, or sets one value for all."""
        if self.everywhere is not None:
            return
        expected, named = set(partitions), set(self.each)
        if expected != named:
            raise ConfigError(
                f"option {self.option} must name exactly the partitions that are read"
                f"{'' if self.by_time else ' (-1 is latest, -2 earliest)'}: "
                f"missing: {_listed(expected - named)}; not read: {_listed(named - expected)}"
            )


def _listed(partitions: set[TopicPartition]) -> str:
    names = [f"{topic}-{number}" for topic, number in sorted(partitions)]
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more if names else "none"


def offsets_parser(option: str) -> Parser[Edge]:
    """Return the parser for `earliest`, `latest`, or an offset for every partition."""

    def read(text: str) -> Edge:
        named = {"latest": LATEST, "earliest": EARLIEST}.get(text.strip().lower())
        return Edge(option, named) if named is not None else Edge(option, each=_by_partition(text, EARLIEST))

    return Parser('`earliest`, `latest`, or JSON such as `{"topic":{"0":23,"1":-1}}`, -1 latest, -2 earliest', read)


def timestamps_parser(option: str) -> Parser[Edge | None]:
    """Return the parser for a timestamp for every partition."""

    def read(text: str) -> Edge:
        return Edge(option, each=_by_partition(text, 0), by_time=True)

    return Parser('JSON such as `{"topic":{"0":1700000000000}}`', read)


def timestamp_parser(option: str) -> Parser[Edge | None]:
    """Return the parser for one timestamp for all partitions."""

    def read(text: str) -> Edge:
        if not text.strip().isascii() or not text.strip().isdigit() or int(text) > _MOST:
            raise ValueError("not a number of milliseconds")
        return Edge(option, int(text), by_time=True)

    return Parser("milliseconds since 1970", read)


def _by_partition(text: str, least: int) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _object(text).items():
        if not isinstance(partitions, dict):
            raise ValueError(f"the value of topic {topic} is not an object")
        for number, value in partitions.items():
            if not _is_integer(value) or not least <= value <= _MOST:
                raise ValueError(f"{topic}-{number} has {value!r}")
            found[topic, _partition(number)] = value
    if not found:
        raise ValueError("no partition is named")
    return found


def assigned(text: str) -> dict[str, tuple[int, ...]]:
    """Parse the JSON of `assign`. Raises ValueError."""
    found = {}
    for topic, numbers in _object(text).items():
        if not isinstance(numbers, list) or not all(_is_integer(n) and 0 <= n <= _MOST_PARTITION for n in numbers):
            raise ValueError(f"the value of topic {topic} is not a list of partitions")
        found[topic] = tuple(sorted(set(numbers)))
    if not any(found.values()):
        raise ValueError("no partition is named")
    return found


def _object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object of topics")
    return found


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _partition(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _MOST_PARTITION:
        raise ValueError(f"{text!r} is not a partition")
    return int(text)
