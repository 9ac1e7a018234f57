"""Timers that seal open buffers which did not fill up."""

import heapq
import math
from collections.abc import Callable

import trio

from services.storage.log.partition import Partition

_MAX_CLEARED = 64
"""Cleared timers stay in the heap until they are due, or until they are more than this and more than half of all."""


class SealTimers:
    """Holds at most one timer per partition and calls ``seal`` when it is due. Requires that `run` is running."""

    def __init__(self, seal: Callable[[Partition], None]) -> None:
        self._seal = seal
        # A heap of (due, number), and the partition behind each number.
        self._due: list[tuple[float, int]] = []
        self._timed: dict[int, Partition] = {}
        self._numbers = 0
        self._wake = trio.Event()

    def __len__(self) -> int:
        """The number of timers in the heap, including cleared ones."""
        return len(self._due)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            # A timer that is set later may be due earlier.
            with trio.move_on_at(self._due[0][0] if self._due else math.inf):
                await self._wake.wait()
            self._wake = trio.Event()
            while self._due and self._due[0][0] <= trio.current_time():
                partition = self._timed.get(heapq.heappop(self._due)[1])
                if partition is not None:
                    self._seal(partition)

    def set(self, partition: Partition, due: float) -> None:
        """Seal the partition's buffer at ``due``, unless the timer is set again or cleared before."""
        self.clear(partition)
        self._numbers += 1
        partition.timer = self._numbers
        self._timed[partition.timer] = partition
        heapq.heappush(self._due, (due, partition.timer))
        if len(self._due) > _MAX_CLEARED + 2 * len(self._timed):
            self._due = [entry for entry in self._due if entry[1] in self._timed]
            heapq.heapify(self._due)
        if self._due[0][1] == partition.timer:
            self._wake.set()

    def first(self) -> Partition | None:
        """Return the partition whose timer is due first, or None if there is none."""
        while self._due:
            partition = self._timed.get(self._due[0][1])
            if partition is not None:
                return partition
            heapq.heappop(self._due)
        return None

    def clear(self, partition: Partition) -> None:
        self._timed.pop(partition.timer, None)
        partition.timer = 0
