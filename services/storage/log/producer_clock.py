"""The clock for the expiry of idle producers. A step of the wall clock expires none."""

from collections.abc import Callable

from kafscale.clock import run_clock


class ProducerClock:
    """Compares the wall clock, ``now_ms``, with the time elapsed in this process.

    Both are in milliseconds since the Unix epoch. If they differ, the wall clock was set and neither can be trusted, so
    arrivals use the later and idleness the earlier of the two.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._now = run_clock()
        self._began_ms, self._began = now_ms(), self._now()

    def arrival_ms(self) -> int:
        """Return the arrival time of a batch received now."""
        return max(self._now_ms(), self._undisturbed())

    def idle_until_ms(self) -> int:
        """Return the time up to which idleness is measured."""
        return min(self._now_ms(), self._undisturbed())

    def _undisturbed(self) -> int:
        return self._began_ms + round(1000 * (self._now() - self._began))
