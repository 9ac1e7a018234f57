"""Divides the limits of a trigger among partitions, in proportion to their lag."""

from collections.abc import Mapping
from dataclasses import dataclass

from kafscale_spark.edges import TopicPartition

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Rates:
    """Limits of one trigger, and the longest wait for its minimum of offsets. None means no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_seconds: float = 0.0
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Behind:
    """The lag of a partition: offsets from ``start`` up to ``end``, and the approximate bytes of their segments."""

    start: int
    end: int
    bytes: int = 0

    @property
    def offsets(self) -> int:
        return max(0, self.end - self.start)


def shares(limit: int, amounts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Divide ``limit`` in proportion to ``amounts``. A share is at least 1 and at most the partition's amount.

    As in Spark's Kafka source, a share below 1 becomes 1, so that no partition starves. The sum may thus exceed
    ``limit`` by less than the number of partitions.
    """
    total = sum(amounts.values())
    if total <= limit:
        return dict(amounts)
    return {key: min(amount, max(1, limit * amount // total)) if amount else 0 for key, amount in amounts.items()}


def ends_by_offsets(behind: Mapping[TopicPartition, Behind], limit: int) -> dict[TopicPartition, int]:
    """Return the end of a trigger that reads ``limit`` offsets."""
    found = shares(limit, {key: part.offsets for key, part in behind.items()})
    return {key: part.start + found[key] if part.offsets else part.start for key, part in behind.items()}


def ends_by_bytes(behind: Mapping[TopicPartition, Behind], limit: int) -> dict[TopicPartition, int]:
    """Return the end of a trigger that reads ``limit`` bytes, if all offsets of a partition have the same size.

    A partition whose size is unknown is read to its end.
    """
    found = shares(limit, {key: part.bytes for key, part in behind.items()})
    ends = {}
    for key, part in behind.items():
        if part.bytes <= found[key]:
            ends[key] = max(part.start, part.end)
        else:
            ends[key] = part.start + min(part.offsets, max(1, part.offsets * found[key] // part.bytes))
    return ends


def too_few(behind: Mapping[TopicPartition, Behind], rates: Rates, waited_seconds: float) -> bool:
    """Return whether a trigger should wait for more records."""
    if rates.min_offsets is None or waited_seconds >= rates.max_delay_seconds:
        return False
    return sum(part.offsets for part in behind.values()) < rates.min_offsets
