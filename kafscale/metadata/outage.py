"""Retries and log messages of a running process while the metadata store fails."""

import random
from typing import Any

import structlog
import trio

from kafscale.errors import Refused, Unavailable

_log = structlog.get_logger(__name__)

STORE_FAILURES = (Unavailable, Refused)
"""Errors that are retried. Refused is fatal only at start: permissions can be granted while the process runs."""


class Refusal:
    """One operation that the store may refuse. The error is logged once, until the operation succeeds or the reason
    changes."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._reported = ""

    def report(self, error: Refused, **about: Any) -> None:
        if str(error) != self._reported:
            self._reported = str(error)
            _log.error(self._event, **about, refused=self._reported)

    def over(self) -> None:
        """Call this when the operation has succeeded."""
        self._reported = ""


class Outage:
    """Attempts of one operation, with growing pauses, each shortened by a random part of up to half.

    Refused errors are logged as by `Refusal`; other failures are logged as warnings.
    """

    def __init__(self, event: str, *, first: float, longest: float) -> None:
        self._event = event
        self._first = self._pause = first
        self._longest = longest
        self._refusal = Refusal(event)

    def report(self, error: Exception, **about: Any) -> None:
        if isinstance(error, Refused):
            self._refusal.report(error, **about)
        else:
            _log.warning(self._event, **about, error=str(error))

    async def pause(self, error: Exception, **about: Any) -> None:
        """Log the failure and wait before the next attempt."""
        self.report(error, **about)
        await trio.sleep(self._pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
        self._pause = min(2 * self._pause, self._longest)

    def over(self) -> None:
        """Call this when the operation has succeeded."""
        self._pause = self._first
        self._refusal.over()
