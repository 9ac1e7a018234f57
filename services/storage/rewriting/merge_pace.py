"""How fast merges read and store, so that they keep up with producers and otherwise leave CPU time and bandwidth."""

import math

_OF_A_BYTE = 6
"""Twice what a merge needs, because it pauses between calls and in them."""
_AVERAGED_SECONDS = 60.0


class MergePace:
    """``least``: bytes per second that are allowed in any case; 0: no limit."""

    def __init__(self, least: int) -> None:
        self._least = least
        self._appended = 0
        self._noted_at = -math.inf
        # Bytes per second.
        self._growth = 0.0

    @property
    def limited(self) -> bool:
        return self._least > 0

    @property
    def bytes_per_second(self) -> int:
        """How much a merge may read and store; 0: no limit."""
        return max(self._least, int(_OF_A_BYTE * self._growth)) if self._least else 0

    @property
    def is_least(self) -> bool:
        """Whether there is a limit, and producers do not need a higher one."""
        return 0 < self._least == self.bytes_per_second

    def note(self, appended: int, now: float) -> None:
        """To be called periodically: ``appended`` bytes that are to be merged have arrived in total, at time ``now``.

        The average weighs what arrived within about the last minute.
        """
        seconds = now - self._noted_at
        if seconds <= 0:
            return
        old = math.exp(-seconds / _AVERAGED_SECONDS)
        self._growth = old * self._growth + (1 - old) * (appended - self._appended) / seconds
        self._appended, self._noted_at = appended, now
