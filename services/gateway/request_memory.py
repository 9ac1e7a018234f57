"""Limits the memory for partially received large requests, over all connections.

A request is charged for the bytes that have arrived, not for its announced size, so a client that announces much and
sends little does not block others. Stalled requests can still fill the memory. In that case one request at a time may
exceed the limit until it is complete, in the order in which they began to wait.
"""

import math
from collections import deque

import trio

_PATIENCE_SECONDS = 1.0
"""How long the memory must be full without a change before a request may exceed the limit."""


class RequestMemory:
    """At most ``limit`` bytes, plus those of one request that exceeds the limit."""

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
        """Whether a request waits for memory."""
        return bool(self._queue)

    def is_beyond(self, share: "Share") -> bool:
        """Whether ``share`` is the one that may exceed the limit."""
        return share is self._beyond

    async def wait(self, share: "Share", size: int) -> None:
        """Wait until ``share``, which must hold fewer bytes, can hold ``size`` bytes."""
        share.requested = size
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
        """Release all bytes of ``share``."""
        self._used -= share.held
        share.held = 0
        if share is self._beyond:
            self._beyond = None
        else:
            self._moved_at = trio.current_time()
        self._admit()

    def _fits(self, share: "Share") -> bool:
        return self._used == 0 or self._used - share.held + share.requested <= self._limit

    def _grant(self, share: "Share") -> None:
        self._used += share.requested - share.held
        share.held = share.requested
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
    """The part of the memory that one connection holds."""

    __slots__ = ("_memory", "beyond_since", "granted", "held", "requested")

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self.held = 0
        self.requested = 0
        self.granted = trio.Event()
        self.beyond_since = 0.0

    @property
    def keeps_others_waiting(self) -> bool:
        """Whether this share exceeds the limit while another one waits."""
        return self._memory.is_beyond(self) and self._memory.awaited

    async def hold(self, size: int) -> None:
        """Hold ``size`` bytes in total. Waits if memory is short."""
        if size > self.held:
            await self._memory.wait(self, size)
        elif size < self.held:
            self.release()
            if size:
                await self._memory.wait(self, size)

    def release(self) -> None:
        if self.held:
            self._memory.release(self)
