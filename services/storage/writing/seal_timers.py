"""When open buffers are closed that nobody has filled."""

import heapq
import math
from collections.abc import Callable

import trio

from services.storage.log.partition import Partition

_MOST_CLEARED = 64
"""Timers that were cleared before they were due stay until then, or until they are more than this and half of all."""


class SealTimers:
    """One timer for each partition at most; ``seal`` is called when it is due. `run` must be running."""

    def __init__(self, seal: Callable[[Partition], None]) -> None:
        self._seal = seal
        # A heap of (due, number), and the partition behind each number.
        self._due: list[tuple[float, int]] = []
        self._timed: dict[int, Partition] = {}
        self._numbers = 0
        self._wake = trio.Event()

    def __len__(self) -> int:
        """Those that are kept, cleared ones included."""
        return len(self._due)

    async def run(self) -> None:
        """Until cancelled."""
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
        """Seal the partition's buffer then, unless that is put off or done before."""
        self.clear(partition)
        self._numbers += 1
        partition.timer = self._numbers
        self._timed[partition.timer] = partition
        heapq.heappush(self._due, (due, partition.timer))
        if len(self._due) > _MOST_CLEARED + 2 * len(self._timed):
            self._due = [entry for entry in self._due if entry[1] in self._timed]
            heapq.heapify(self._due)
        if self._due[0][1] == partition.timer:
            self._wake.set()

    def clear(self, partition: Partition) -> None:
        self._timed.pop(partition.timer, None)
        partition.timer = 0
