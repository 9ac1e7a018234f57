"""A bound on bytes that many tasks hold in memory."""

from collections import deque

import trio


class ByteQuota:
    """So many bytes at a time, given out in turn."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._waiting: deque[tuple[int, trio.Event]] = deque()

    @property
    def used(self) -> int:
        return self._used

    @property
    def awaited(self) -> int:
        """Bytes for which somebody waits."""
        return sum(size for size, _ in self._waiting)

    async def reserve(self, size: int) -> None:
        """Wait until ``size`` bytes fit. Into an empty room anything does."""
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
