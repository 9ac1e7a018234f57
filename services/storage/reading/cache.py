"""The LRU caches of whole segments and of sparse indexes, bounded in bytes."""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from kafscale.records.batch import peek
from services.storage.counters import CacheCounts

V = TypeVar("V")
_READ_BACK_SHARE = 4


class SegmentId(NamedTuple):
    """Identifies immutable bytes: a segment, a rewritten object, or a part of one.

    Epoch and topic id tell a segment from others with the same base offset, and ``attempt`` a rewritten object, whose
    attempts are counted from 1. ``position``: where the part of a rewritten object begins; 0: the whole object.
    """

    topic_id: bytes
    partition: int
    base_offset: int
    epoch: int
    attempt: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class CachedSegment:
    """A verified segment, or a part of a rewritten object.

    ``offsets`` and ``positions``: the base offset and position in ``data`` of every batch. ``next_offset``: where the
    log continues. ``body_end``: the position after the last batch. ``start``: the position of ``data`` in the object.
    """

    data: bytes
    offsets: "array[int]"
    positions: "array[int]"
    next_offset: int
    max_timestamp: int
    body_end: int
    start: int = 0

    @property
    def cost(self) -> int:
        """The approximate memory use in bytes: the object and its batch table."""
        return len(self.data) + 12 * len(self.offsets) + 256

    def first_for(self, offset: int) -> int:
        """Return the index of the first batch that ends after ``offset``, or the number of batches if none does."""
        i = max(bisect_right(self.offsets, offset) - 1, 0)
        return i + (peek(self.data, self.positions[i]).next_offset <= offset)

    def cut(self, offset: int, max_bytes: int) -> tuple[memoryview, int]:
        """Return whole batches from the one that holds ``offset``, or the next if it is missing, and the offset after
        them.

        At most ``max_bytes``, but at least one batch, if there is any. ``offset`` must be less than ``next_offset``.
        """
        first = self.first_for(offset)
        if first == len(self.offsets):
            return memoryview(b""), self.next_offset
        start = self.positions[first]
        # A batch ends where the next one starts, and the last one where the footer begins.
        last = bisect_right(self.positions, start + max_bytes) - 1
        if start + max_bytes >= self.body_end:
            return memoryview(self.data)[start : self.body_end], self.next_offset
        last = max(last, first + 1)
        if last >= len(self.positions):
            return memoryview(self.data)[start : self.body_end], self.next_offset
        return memoryview(self.data)[start : self.positions[last]], self.offsets[last]


class _Kept(Generic[V]):
    """Values and their total bytes, least recently used first."""

    def __init__(self) -> None:
        self.values: OrderedDict[SegmentId, V] = OrderedDict()
        self.bytes = 0


class LruCache(Generic[V]):
    """Values by segment, at most ``capacity`` bytes of them by ``cost``. A larger value is not kept.

    A quarter is reserved for segments read back from the store and the rest for new ones; each may use what the other
    leaves free. So readers of old segments do not evict the tail of the log.
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
        """Return the value like `get`, without counting a hit or a miss and without marking it as used."""
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
