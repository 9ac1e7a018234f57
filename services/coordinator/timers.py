"""The timers of sessions and rebalances, in one heap for all groups of a process.

A timer that is moved to a later time, as every heartbeat does with a session timer, keeps its place in the heap. Its
current deadline is looked up when its entry becomes due.
"""

import heapq
import math
from collections.abc import Callable, Mapping
from typing import Protocol

import trio

from services.coordinator.effects import Timer

_PAUSE = 0.1  # seconds between checks while timers are due and not allowed to go off


def timer_ms() -> int:
    """Return Trio's clock in whole milliseconds. After a sleep until a deadline it is at least that deadline."""
    return int(trio.current_time() * 1000 + 0.001)


class Timed(Protocol):
    """The owner of timers."""

    def deadline(self, group_id: str, timer: Timer) -> int | None:
        """Return the timer's current deadline, or None if it is not set."""
        ...

    def expire(self, group_id: str, timer: Timer) -> None: ...


_Key = tuple[Timed, str, Timer]


class Timers:
    """All timers of a process. They go off only while ``allowed`` returns True. `run` must be running."""

    def __init__(self, allowed: Callable[[], bool]) -> None:
        self._allowed = allowed
        self._heap: list[tuple[int, int, _Key]] = []
        self._armed: dict[_Key, int] = {}
        self._numbers = 0
        self._wake = trio.Event()

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, owner: Timed, group_id: str, timers: Mapping[Timer, int | None]) -> None:
        """Schedule the timers that an operation has set. Cancelled ones are detected when they become due."""
        for timer, deadline in timers.items():
            if deadline is not None:
                key = (owner, group_id, timer)
                if self._armed.get(key, deadline + 1) > deadline:
                    self._push(key, deadline)

    def forget(self, owner: Timed) -> None:
        """Remove all timers of ``owner``."""
        self._heap = [entry for entry in self._heap if entry[2][0] is not owner]
        heapq.heapify(self._heap)
        self._armed = {key: deadline for key, deadline in self._armed.items() if key[0] is not owner}

    async def run(self) -> None:
        """Let timers go off until cancelled."""
        while True:
            with trio.move_on_at(self._heap[0][0] / 1000 if self._heap else math.inf):
                await self._wake.wait()
            self._wake = trio.Event()
            now = timer_ms()
            while self._heap and self._heap[0][0] <= now:
                if self._allowed():
                    await trio.lowlevel.checkpoint()
                    self._go_off(now)
                else:
                    await trio.sleep(_PAUSE)

    def _go_off(self, now: int) -> None:
        if not self._heap or self._heap[0][0] > now:
            return
        deadline, _, key = heapq.heappop(self._heap)
        if self._armed.get(key) != deadline:
            return
        del self._armed[key]
        owner, group_id, timer = key
        current = owner.deadline(group_id, timer)
        if current is None:
            return
        if current > now:
            self._push(key, current)
        else:
            owner.expire(group_id, timer)

    def _push(self, key: _Key, deadline: int) -> None:
        self._numbers += 1
        self._armed[key] = deadline
        heapq.heappush(self._heap, (deadline, self._numbers, key))
        if self._heap[0][1] == self._numbers:
            self._wake.set()
