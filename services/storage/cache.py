"""The two read caches: whole segments and sparse indexes, least recently used out first, bounded in bytes."""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from kafscale.segment.format import FOOTER_SIZE

V = TypeVar("V")


class SegmentId(NamedTuple):
    """One segment's bytes, for all time: the same base in another epoch or another topic's life is another segment."""

    topic_id: bytes
    partition: int
    base_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class CachedSegment:
    """A checked segment in memory. ``offsets`` and ``positions``: base offset and file position of every batch."""

    data: bytes
    offsets: "array[int]"
    positions: "array[int]"
    next_offset: int
    max_timestamp: int

    @property
    def cost(self) -> int:
        """Bytes of memory, about: the file and its batch table."""
        return len(self.data) + 12 * len(self.offsets) + 256

    def cut(self, offset: int, max_bytes: int) -> tuple[memoryview, int]:
        """Whole batches from the one that holds ``offset``, and the offset after them.

        At most ``max_bytes``, but always one batch. ``offset`` lies in the segment.
        """
        first = max(bisect_right(self.offsets, offset) - 1, 0)
        start = self.positions[first]
        # A batch's end is the next one's start; the last one ends where the footer begins.
        last = bisect_right(self.positions, start + max_bytes) - 1
        body_end = len(self.data) - FOOTER_SIZE
        if start + max_bytes >= body_end:
            return memoryview(self.data)[start:body_end], self.next_offset
        last = max(last, first + 1)
        if last >= len(self.positions):
            return memoryview(self.data)[start:body_end], self.next_offset
        return memoryview(self.data)[start : self.positions[last]], self.offsets[last]


class LruCache(Generic[V]):
    """Values by segment, at most ``capacity`` bytes of them by ``cost``. A value above the capacity is not kept."""

    def __init__(self, capacity: int, cost: Callable[[V], int]) -> None:
        self._capacity = capacity
        self._cost = cost
        self._values: OrderedDict[SegmentId, V] = OrderedDict()
        self.used_bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: SegmentId) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def __contains__(self, key: SegmentId) -> bool:
        return key in self._values

    def put(self, key: SegmentId, value: V) -> None:
        self.discard(key)
        cost = self._cost(value)
        if cost > self._capacity:
            return
        self._values[key] = value
        self.used_bytes += cost
        while self.used_bytes > self._capacity:
            _, dropped = self._values.popitem(last=False)
            self.used_bytes -= self._cost(dropped)

    def discard(self, key: SegmentId) -> None:
        dropped = self._values.pop(key, None)
        if dropped is not None:
            self.used_bytes -= self._cost(dropped)
