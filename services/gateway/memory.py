"""Bounds over all connections: bytes of large requests that are arriving, and of Fetch replies that wait to be sent."""

from collections import deque

import trio


class RequestMemory:
    """Room for the frames that are read bit by bit. A frame gets room for all of it before it is read on, in turn.

    So a frame that has room can always be finished, and a client that stops in the middle of one must be closed.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._waiting: deque[tuple[int, trio.Event]] = deque()

    @property
    def used(self) -> int:
        return self._used

    async def reserve(self, size: int) -> None:
        """Wait until ``size`` bytes fit. One frame always fits, however large."""
        if not self._waiting and self._fits(size):
            self._used += size
            return
        turn = (size, trio.Event())
        self._waiting.append(turn)
        try:
            await turn[1].wait()
        except trio.Cancelled:
            if turn[1].is_set():
                self.release(size)
            else:
                self._waiting.remove(turn)
                self._admit()
            raise

    def release(self, size: int) -> None:
        self._used -= size
        self._admit()

    def _fits(self, size: int) -> bool:
        return self._used == 0 or self._used + size <= self._limit

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, event = self._waiting.popleft()
            self._used += size
            event.set()


class ReplyMemory:
    """Counts record bytes from the moment that they are asked of storage until they are sent.

    When it is used up nobody waits: each Fetch still gets one batch, so that a few clients that do not read cannot
    hold up all others.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    @property
    def room(self) -> int:
        return max(0, self._limit - self.used)
