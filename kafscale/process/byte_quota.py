"""A limit on the bytes that several tasks hold in memory together."""

from collections import deque

import trio


class ByteQuota:
    """At most ``limit`` bytes at a time, reserved in the order of the requests."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._waiting: deque[tuple[int, trio.Event]] = deque()

    @property
    def used(self) -> int:
        return self._used

    @property
    def awaited(self) -> int:
        """The number of bytes that tasks are waiting to reserve."""
        return sum(size for size, _ in self._waiting)

    async def reserve(self, size: int) -> None:
        """Wait until ``size`` bytes fit. If nothing is reserved, any size fits."""
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
