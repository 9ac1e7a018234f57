"""The two read caches: whole segments and sparse indexes, least recently used out first, bounded in bytes."""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from kafscale.records.batch import peek
from kafscale.segment.format import FOOTER_SIZE
from services.storage.counters import CacheCounts

V = TypeVar("V")
_READ_BACK_SHARE = 4


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

    @property
    def body_end(self) -> int:
        """Where the footer begins."""
        return len(self.data) - FOOTER_SIZE

    def first_for(self, offset: int) -> int:
        """The number of the first batch that ends past ``offset``; the number of batches where none does."""
        i = max(bisect_right(self.offsets, offset) - 1, 0)
        return i + (peek(self.data, self.positions[i]).next_offset <= offset)

    def cut(self, offset: int, max_bytes: int) -> tuple[memoryview, int]:
        """Whole batches from the one that holds ``offset`` or, where it is missing, the next one, and the offset after
        them.

        At most ``max_bytes``, but always one batch. ``offset`` is less than the segment's next one.
        """
        first = self.first_for(offset)
        start = self.positions[first]
        # A batch's end is the next one's start; the last one ends where the footer begins.
        last = bisect_right(self.positions, start + max_bytes) - 1
        if start + max_bytes >= self.body_end:
            return memoryview(self.data)[start : self.body_end], self.next_offset
        last = max(last, first + 1)
        if last >= len(self.positions):
            return memoryview(self.data)[start : self.body_end], self.next_offset
        return memoryview(self.data)[start : self.positions[last]], self.offsets[last]


class _Kept(Generic[V]):
    """Values and their bytes, least recently used first."""

    def __init__(self) -> None:
        self.values: OrderedDict[SegmentId, V] = OrderedDict()
        self.bytes = 0


class LruCache(Generic[V]):
    """Values by segment, at most ``capacity`` bytes of them by ``cost``. A value above the capacity is not kept.

    What was read back for somebody has a quarter of it for certain, what was put otherwise the rest; each may use what
    the other does not. So readers of old segments, however many, do not push out the log's tail.
    """

    def __init__(self, capacity: int, cost: Callable[[V], int], counts: CacheCounts | None = None) -> None:
        self._capacity = capacity
        self._cost = cost
        self._counts = counts or CacheCounts()
        self._fresh: _Kept[V] = _Kept()
        self._read_back: _Kept[V] = _Kept()

    @property
    def used_bytes(self) -> int:
        return self._fresh.bytes + self._read_back.bytes

    def __len__(self) -> int:
        return len(self._fresh.values) + len(self._read_back.values)

    def get(self, key: SegmentId) -> V | None:
        for kept in (self._fresh, self._read_back):
            value = kept.values.get(key)
            if value is not None:
                kept.values.move_to_end(key)
                self._counts.hits += 1
                return value
        self._counts.misses += 1
        return None

    def glance(self, key: SegmentId) -> V | None:
        """As `get`, for whom nothing is to be kept longer: it is not counted, and moves nothing."""
        found = self._fresh.values.get(key)
        return self._read_back.values.get(key) if found is None else found

    def __contains__(self, key: SegmentId) -> bool:
        return key in self._fresh.values or key in self._read_back.values

    def put(self, key: SegmentId, value: V, *, read_back: bool = False) -> None:
        self.discard(key)
        cost = self._cost(value)
        if cost > self._capacity:
            return
        kept = self._read_back if read_back else self._fresh
        kept.values[key] = value
        kept.bytes += cost
        while self.used_bytes > self._capacity:
            over = self._read_back.bytes > self._capacity // _READ_BACK_SHARE or not self._fresh.values
            shrunk = self._read_back if over else self._fresh
            _, dropped = shrunk.values.popitem(last=False)
            shrunk.bytes -= self._cost(dropped)

    def discard(self, key: SegmentId) -> None:
        for kept in (self._fresh, self._read_back):
            dropped = kept.values.pop(key, None)
            if dropped is not None:
                kept.bytes -= self._cost(dropped)
