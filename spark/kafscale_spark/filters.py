"""Translates filters that Spark pushes down into bounds on topic, partition, offset and timestamp."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kafscale_spark.edges import TopicPartition

_MOST = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda a, b: a == b,
    "EqualNullSafe": lambda a, b: a == b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanOrEqual": lambda a, b: a >= b,
    "LessThan": lambda a, b: a < b,
    "LessThanOrEqual": lambda a, b: a <= b,
    "In": lambda a, b: a in b,
}
# The distance from the value to the start and the end of the range; None if it is unbounded.
_RANGES: dict[str, tuple[int | None, int | None]] = {
    "EqualTo": (0, 1),
    "EqualNullSafe": (0, 1),
    "GreaterThan": (1, None),
    "GreaterThanOrEqual": (0, None),
    "LessThan": (None, 0),
    "LessThanOrEqual": (None, 1),
}
_NEVER_NULL = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class Test:
    """A comparison of a topic's name or a partition's number with a value."""

    column: str
    kind: str
    value: object

    def holds(self, partition: TopicPartition) -> bool:
        return _COMPARED[self.kind](partition[1] if self.column == "partition" else partition[0], self.value)


@dataclass(frozen=True, slots=True)
class Pushed:
    """The records that the filters select: partitions for which all ``tests`` hold, and ranges of offset and time.

    Ends are exclusive. A time is in ms since 1970, or None if there is no bound.
    """

    tests: tuple[Test, ...] = ()
    start: int = 0
    end: int = _MOST
    since_ms: int | None = None
    until_ms: int | None = None

    def wants(self, partition: TopicPartition) -> bool:
        return all(test.holds(partition) for test in self.tests)


def push(filters: Iterable[Any]) -> tuple[Pushed, list[Any]]:
    """Return what all filters together select, and the filters that Spark must still apply.

    Spark's classes are recognized by name, because old versions lack them. The result is exact for topic, partition and
    offset. Spark applies filters on timestamps again, because it compares microseconds.
    """
    tests: list[Test] = []
    starts, ends = [0], [_MOST]
    since: list[int] = []
    until: list[int] = []
    remaining = []
    for pushed in filters:
        kind, column, value = _parts(pushed)
        if column in _NEVER_NULL and kind == "IsNotNull":
            continue
        if _is_test(kind, column, value):
            tests.append(Test(column, kind, value))
            continue
        if column == "offset" and kind in _RANGES and _is_integer(value):
            first, beyond = _range(kind, value)
            starts.append(first)
            ends.append(beyond)
            continue
        remaining.append(pushed)
        if column == "timestamp" and kind in _RANGES and isinstance(value, datetime):
            first, beyond = _range(kind, _micros(value))
            # The first millisecond that can contain a selected microsecond, and the first after all of them.
            since += [-(-first // 1000)] if first > -_MOST else []
            until += [-(-beyond // 1000)] if beyond < _MOST else []
    return (
        Pushed(tuple(tests), max(starts), min(ends), max(since, default=None), min(until, default=None)),
        remaining,
    )


def _parts(pushed: Any) -> tuple[str, str, Any]:
    """Return kind, column and value of a filter; the column is empty if the filter is not recognized."""
    attribute: Any = getattr(pushed, "attribute", ())
    column = attribute[0] if len(attribute) == 1 else ""
    return type(pushed).__name__, column, getattr(pushed, "value", None)


def _is_test(kind: str, column: str, value: object) -> bool:
    if kind not in _COMPARED or column not in {"topic", "partition"}:
        return False
    values = value if kind == "In" and isinstance(value, (tuple, list)) else (value,)
    return all(isinstance(one, str) if column == "topic" else _is_integer(one) for one in values)


def _range(kind: str, value: int) -> tuple[int, int]:
    """Return the first selected value and the first value after the selected ones."""
    after_first, after_last = _RANGES[kind]
    return (
        -_MOST if after_first is None else value + after_first,
        _MOST if after_last is None else value + after_last,
    )


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _micros(value: datetime) -> int:
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return (value - _EPOCH) // _MICROSECOND
