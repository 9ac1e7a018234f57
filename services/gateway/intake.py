"""A bound on the bytes of large requests that have arrived in part, over all connections.

A request is charged for what has come of it, not for what it announces, so a client that announces much and sends
little keeps nobody out. Requests that stop half-way may fill the room all the same. Then one request at a time may
exceed the limit and be read to its end, in the order in which they began to wait.
"""

import math
from collections import deque

import trio

_PATIENCE_SECONDS = 1.0
"""How long nothing must have come into or gone out of a full room before a request may exceed the limit."""


class Intake:
    """At most ``limit`` bytes, and what one request has beyond."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._queue: deque[Share] = deque()
        self._beyond: Share | None = None
        self._moved_at = -math.inf

    @property
    def used(self) -> int:
        return self._used

    @property
    def awaited(self) -> bool:
        """Whether any request waits for room."""
        return bool(self._queue)

    def is_beyond(self, share: "Share") -> bool:
        """Whether it is the one that may exceed the limit."""
        return share is self._beyond

    async def wait(self, share: "Share", size: int) -> None:
        """Let ``share`` hold ``size`` bytes, which is more than before, as soon as that is possible."""
        share.wanted = size
        if share is self._beyond or (not self._queue and self._fits(share)):
            self._grant(share)
            return
        self._queue.append(share)
        try:
            while share.held < size:
                with trio.move_on_after(_PATIENCE_SECONDS):
                    await share.granted.wait()
                self._admit()
        finally:
            if share in self._queue:
                self._queue.remove(share)
                self._admit()

    def release(self, share: "Share") -> None:
        """It holds nothing any more."""
        self._used -= share.held
        share.held = 0
        if share is self._beyond:
            self._beyond = None
        else:
            self._moved_at = trio.current_time()
        self._admit()

    def _fits(self, share: "Share") -> bool:
        return self._used == 0 or self._used - share.held + share.wanted <= self._limit

    def _grant(self, share: "Share") -> None:
        self._used += share.wanted - share.held
        share.held = share.wanted
        if share is not self._beyond:
            self._moved_at = trio.current_time()
        share.granted.set()
        share.granted = trio.Event()

    def _admit(self) -> None:
        while self._queue:
            first = self._queue[0]
            if not self._fits(first):
                if self._beyond is not None or trio.current_time() < self._moved_at + _PATIENCE_SECONDS:
                    return
                self._beyond = first
                first.beyond_since = trio.current_time()
            self._grant(self._queue.popleft())


class Share:
    """What one connection holds of the room."""

    __slots__ = ("_intake", "beyond_since", "granted", "held", "wanted")

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self.held = 0
        self.wanted = 0
        self.granted = trio.Event()
        self.beyond_since = 0.0

    @property
    def keeps_others_waiting(self) -> bool:
        """Whether it is the one that exceeds the limit, and another one waits for that to end."""
        return self._intake.is_beyond(self) and self._intake.awaited

    async def hold(self, size: int) -> None:
        """Hold ``size`` bytes in all."""
        if size > self.held:
            await self._intake.wait(self, size)
        elif size < self.held:
            self.release()
            if size:
                await self._intake.wait(self, size)

    def release(self) -> None:
        if self.held:
            self._intake.release(self)
