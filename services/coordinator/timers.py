"""When sessions and rebalances are over: one heap for all groups of a process.

A timer that is moved to a later time, as a session's is by every heartbeat, stays in the heap where it is: what it
really waits for is looked up when it comes up.
"""

import heapq
import math
from collections.abc import Callable, Mapping
from typing import Protocol

import trio

from services.coordinator.effects import Timer

_PAUSE = 0.1  # seconds, until what is due and not allowed is looked at again


def timer_ms() -> int:
    """Trio's clock in whole milliseconds; one that was slept until has come."""
    return int(trio.current_time() * 1000 + 0.001)


class Timed(Protocol):
    """Whose timers they are."""

    def deadline(self, group_id: str, timer: Timer) -> int | None:
        """What the timer is set to now; None: it is not."""
        ...

    def expire(self, group_id: str, timer: Timer) -> None: ...


_Key = tuple[Timed, str, Timer]


class Timers:
    """``allowed`` is asked before anything goes off. `run` must be running."""

    def __init__(self, allowed: Callable[[], bool]) -> None:
        self._allowed = allowed
        self._heap: list[tuple[int, int, _Key]] = []
        self._armed: dict[_Key, int] = {}
        self._numbers = 0
        self._wake = trio.Event()

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, whose: Timed, group_id: str, timers: Mapping[Timer, int | None]) -> None:
        """Take over what an operation has set; one that was cancelled is found to be so when it comes up."""
        for timer, deadline in timers.items():
            if deadline is not None:
                key = (whose, group_id, timer)
                if self._armed.get(key, deadline + 1) > deadline:
                    self._push(key, deadline)

    def forget(self, whose: Timed) -> None:
        """Nothing of it goes off any more."""
        self._heap = [entry for entry in self._heap if entry[2][0] is not whose]
        heapq.heapify(self._heap)
        self._armed = {key: deadline for key, deadline in self._armed.items() if key[0] is not whose}

    async def run(self) -> None:
        """Until cancelled."""
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
        whose, group_id, timer = key
        really = whose.deadline(group_id, timer)
        if really is None:
            return
        if really > now:
            self._push(key, really)
        else:
            whose.expire(group_id, timer)

    def _push(self, key: _Key, deadline: int) -> None:
        self._numbers += 1
        self._armed[key] = deadline
        heapq.heappush(self._heap, (deadline, self._numbers, key))
        if self._heap[0][1] == self._numbers:
            self._wake.set()
