"""The types in which components report their metrics and their health. Pure.

Hot paths add to plain ints, which are read when /metrics is scraped. Nothing is locked or formatted per record.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Histogram bounds for operations that wait for a disk or a network."""


class State(IntEnum):
    """A state of health. Lower values are better."""

    HEALTHY = 0
    DEGRADED = 1
    UNAVAILABLE = 2

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. ``reason`` says why it is not healthy, or describes the healthy state, for operators."""

    state: State
    reason: str = ""


HEALTHY = Finding(State.HEALTHY)


class Histogram:
    """Counts observations by upper bound. ``bounds`` ascend; the last count is of observations above all of them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


Value = float | Histogram
Values = Mapping[tuple[str, ...], Value]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. ``read`` returns its value for each combination of labels. Names of counters end in ``_total``."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    read: Callable[[], Values]
    labels: tuple[str, ...] = field(default=())


def counter(name: str, text: str, read: Callable[[], float]) -> Family:
    """Return a counter without labels."""
    return Family(name, "counter", text, lambda: {(): read()})


def gauge(name: str, text: str, read: Callable[[], float]) -> Family:
    """Return a gauge without labels."""
    return Family(name, "gauge", text, lambda: {(): read()})


def by_label(counts: Mapping[str, int], always: Iterable[str] = ()) -> Values:
    """Return the values of a family with one label. ``always``: labels that are exposed from the start, with 0."""
    return {(label,): counts.get(label, 0) for label in (*always, *(key for key in counts if key not in always))}
