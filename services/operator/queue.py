"""A queue of resources to reconcile. Each is queued at most once, and never processed by two workers at a time."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import trio

from kafscale.signals import Signal

FIRST_RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """The key of a resource."""

    kind: str
    name: str


class WorkQueue:
    """A work queue, bounded by the number of resources. ``spread`` returns a factor near 1, to randomize intervals."""

    def __init__(self, *, longest_retry: float, spread: Callable[[], float] = lambda: 1.0) -> None:
        self._longest_retry = longest_retry
        self._spread = spread
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = count()
        self._working: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._news = Signal()

    @property
    def waiting(self) -> int:
        """The number of resources that are due and wait for a worker."""
        now = trio.current_time()
        return sum(due <= now for due in self._due.values())

    def add(self, key: Key, *, after: float = 0.0) -> None:
        """Schedule a resource in ``after`` seconds, unless it is already due earlier."""
        due = trio.current_time() + after
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))
            self._news.notify()

    async def take(self) -> Key:
        """Wait for the next resource. The caller must pass it to `done`, `failed` or `gone`."""
        while True:
            now = trio.current_time()
            while self._heap and self._heap[0][0] <= now:
                due, _, key = heapq.heappop(self._heap)
                if self._due.get(key) == due and key not in self._working:
                    del self._due[key]
                    self._working.add(key)
                    return key
            with trio.move_on_at(self._heap[0][0] if self._heap else float("inf")):
                await self._news.wait()

    def done(self, key: Key, *, again: float) -> None:
        """Record success, and schedule the resource again after ``again`` seconds."""
        self._failures.pop(key, None)
        self._end(key, again * self._spread())

    def failed(self, key: Key) -> float:
        """Schedule a retry and return the pause before it, which doubles with each failure."""
        failures = self._failures[key] = min(self._failures.get(key, 0) + 1, 32)
        pause = min(self._longest_retry, FIRST_RETRY_SECONDS * 2.0 ** (failures - 1) * self._spread())
        self._end(key, pause)
        return pause

    def gone(self, key: Key) -> None:
        """Remove a resource that no longer exists, unless it was added again meanwhile."""
        self._failures.pop(key, None)
        self._working.discard(key)
        self._push_again(key)

    def _end(self, key: Key, after: float) -> None:
        self._working.discard(key)
        self._push_again(key)
        self.add(key, after=after)

    def _push_again(self, key: Key) -> None:
        """Return a resource to the heap that became due while it was processed."""
        if key in self._due:
            heapq.heappush(self._heap, (self._due[key], next(self._order), key))
            self._news.notify()
