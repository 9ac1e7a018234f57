"""Waiting for those who were just answered, because most of them ask again at once. No I/O."""

import math

from kafscale.attempts import Attempts

_RETURNING = 0.9
"""The part of those who were answered that is expected to return."""


class Returning:
    """How many requests to wait for, and for how long. Times are in seconds.

    If fewer come in time, later answers are ignored for a while: first one, then three, up to 63.
    """

    def __init__(self) -> None:
        self.expected = 0
        """The number of requests to wait for; 0: do not wait."""
        self.until = 0.0
        """When to stop waiting."""
        self._attempts = Attempts(factor=2, most=63)

    def answered(self, now: float, count: int, *, waiting: int, seconds: float) -> None:
        """Note that ``count`` requests were answered while ``waiting`` others wait. Wait for at most ``seconds``."""
        if self._attempts.is_due():
            self.expected = waiting + math.ceil(_RETURNING * count)
            self.until = now + seconds

    def began(self, *, gathered: bool) -> None:
        """Note that those who wait are served. ``gathered``: as many as expected, or no more are served together."""
        if not gathered:
            self._attempts.failed()
        elif self.expected:
            self._attempts.succeeded()
        self.expected = 0
