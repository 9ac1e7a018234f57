"""How far a trigger of a stream reads: shares of a limit in the proportion in which partitions are behind."""

from collections.abc import Mapping
from dataclasses import dataclass

from kafscale_spark.edges import TopicPartition

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Rates:
    """Offsets and bytes of one trigger, and how many seconds to wait for the least. None: no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_seconds: float = 0.0
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Behind:
    """What of a partition is not read yet: offsets from ``start`` up to ``end``, and their bytes in segments, about."""

    start: int
    end: int
    bytes: int = 0

    @property
    def offsets(self) -> int:
        return max(0, self.end - self.start)


def shares(limit: int, amounts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """``limit`` divided in the proportion of ``amounts``: never more than a partition's own, and at least 1 of it.

    As in Spark's Kafka source, what is below 1 is 1, so that no partition waits for ever: together they may be above
    ``limit`` by less than the number of partitions.
    """
    total = sum(amounts.values())
    if total <= limit:
        return dict(amounts)
    return {key: min(amount, max(1, limit * amount // total)) if amount else 0 for key, amount in amounts.items()}


def ends_by_offsets(behind: Mapping[TopicPartition, Behind], limit: int) -> dict[TopicPartition, int]:
    """Where a trigger that reads ``limit`` offsets ends."""
    found = shares(limit, {key: part.offsets for key, part in behind.items()})
    return {key: part.start + found[key] if part.offsets else part.start for key, part in behind.items()}


def ends_by_bytes(behind: Mapping[TopicPartition, Behind], limit: int) -> dict[TopicPartition, int]:
    """Where a trigger that reads ``limit`` bytes ends, if offsets had the same bytes everywhere in a partition.

    A partition of whose bytes nothing is known is read to its end.
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
    """Whether a trigger should wait for more."""
    if rates.min_offsets is None or waited_seconds >= rates.max_delay_seconds:
        return False
    return sum(part.offsets for part in behind.values()) < rates.min_offsets
