"""The time by which idempotent producers are idle: a step of the wall clock makes none idle."""

from collections.abc import Callable

import trio


class ProducerClock:
    """Compares the wall clock, ``now_ms``, with the time that has passed in this process.

    Both times are in milliseconds since the epoch. Where the two differ, the wall clock was set, and which of them is
    right is not known: a batch counts as late as either says, idleness as short.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._began_ms, self._began = now_ms(), trio.current_time()

    def arrival_ms(self) -> int:
        """The time of a batch that comes now."""
        return max(self._now_ms(), self._undisturbed())

    def idle_until_ms(self) -> int:
        """The end of the time for which producers were idle."""
        return min(self._now_ms(), self._undisturbed())

    def _undisturbed(self) -> int:
        return self._began_ms + round(1000 * (trio.current_time() - self._began))
