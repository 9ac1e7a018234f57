"""Remembers traced batches, so that a group's commit that passes one can be added to its trace."""

from bisect import bisect_left, insort
from collections import OrderedDict

from services.gateway.owners.commit_view import Key

_MOST = 1000


class TracedBatches:
    """The latest traced batches by partition and base offset. Each is returned by `passed` once."""

    def __init__(self) -> None:
        self._places: OrderedDict[tuple[Key, int], str] = OrderedDict()
        # Sorted, so that a commit inspects only the batches that it passes.
        self._base_offsets: dict[Key, list[int]] = {}

    def note(self, key: Key, base_offset: int, place: str) -> None:
        if (key, base_offset) not in self._places:
            insort(self._base_offsets.setdefault(key, []), base_offset)
        self._places[key, base_offset] = place
        if len(self._places) > _MOST:
            (oldest, forgotten), _ = self._places.popitem(last=False)
            at = bisect_left(self._base_offsets[oldest], forgotten)
            self._take(oldest, at, at + 1)

    def passed(self, key: Key, committed: int) -> list[str]:
        """Return and forget the spans of the batches that begin below ``committed``."""
        if key not in self._base_offsets:
            return []
        below = self._take(key, 0, bisect_left(self._base_offsets[key], committed))
        return [self._places.pop((key, base_offset)) for base_offset in below]

    def _take(self, key: Key, start: int, end: int) -> list[int]:
        known = self._base_offsets[key]
        taken = known[start:end]
        del known[start:end]
        if not known:
            del self._base_offsets[key]
        return taken
