"""What a running process does while the metadata store fails: go on later, and say why."""

import random
from typing import Any

import structlog
import trio

from kafscale.errors import Refused, Unavailable

STORE_FAILURES = (Unavailable, Refused)
"""Refused too: a user's rights can be mended while the process runs. Only a start ends with it."""


class Refusal:
    """One thing that the store may refuse: an error, said once until it succeeds or is refused for another reason."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._told = ""
        self._log = structlog.get_logger(__name__)

    def tell(self, error: Refused, **about: Any) -> None:
        if str(error) != self._told:
            self._told = str(error)
            self._log.error(self._event, **about, refused=self._told)

    def over(self) -> None:
        """It succeeded."""
        self._told = ""


class Outage:
    """The tries of one thing: growing pauses between them, each shortened by up to a half.

    What the store refuses is told as a `Refusal`; other failures are warnings.
    """

    def __init__(self, event: str, *, first: float, longest: float) -> None:
        self._event = event
        self._first = self._pause = first
        self._longest = longest
        self._refusal = Refusal(event)
        self._log = structlog.get_logger(__name__)

    def tell(self, error: Exception, **about: Any) -> None:
        if isinstance(error, Refused):
            self._refusal.tell(error, **about)
        else:
            self._log.warning(self._event, **about, error=str(error))

    async def pause(self, error: Exception, **about: Any) -> None:
        """Say what failed, and wait before the next try."""
        self.tell(error, **about)
        await trio.sleep(self._pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
        self._pause = min(2 * self._pause, self._longest)

    def over(self) -> None:
        """It succeeded."""
        self._pause = self._first
        self._refusal.over()
