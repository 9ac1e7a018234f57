"""Detects that the process was stopped (SIGSTOP, a suspended machine, a stalled event loop).

What lies in its sockets and queues then may be old: the client may have given it up, or repeated it through another
gateway. In Kafka the stopped broker would have lost the partition or the group by then. Here storage and the
coordinator took no part in the pause, and would carry the request out. So whatever came in before or during a pause is
dropped, connections included.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
import trio

from kafscale.metadata.membership import boot_clock

_LOOKS_PER_LIMIT = 4
_SETTLING_SECONDS = 1.0
"""How long after a pause new connections are closed: they may have waited in the listener's backlog."""

_log = structlog.get_logger(__name__)


class Pauses:
    """A time of more than ``limit`` seconds in which nothing called `look` is a pause. `run` must be running.

    ``clock`` counts suspension, but no step of the wall clock. Clients lose at most their connections by a pause
    that is seen wrongly.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = boot_clock) -> None:
        self._limit = limit
        self._clock = clock
        self._seen = clock()
        self._settled = self._seen
        self._told: dict[Callable[[], None], None] = {}

    @property
    def settling(self) -> bool:
        """Whether what arrives now may be from before the end of a pause."""
        return self._seen < self._settled

    def look(self) -> None:
        """Call this before something that a client asked for is carried out: after a pause it is dropped first."""
        now = self._clock()
        passed, self._seen = now - self._seen, now
        if passed <= self._limit:
            return
        self._settled = now + _SETTLING_SECONDS
        _log.warning("the process was paused: connections are closed", seconds=round(passed, 1))
        for drop in list(self._told):
            drop()

    @contextmanager
    def telling(self, drop: Callable[[], None]) -> Iterator[None]:
        """While this lasts, ``drop`` is called after each pause."""
        self._told[drop] = None
        try:
            yield
        finally:
            del self._told[drop]

    async def run(self) -> None:
        """Look often enough that only a pause exceeds the limit, until cancelled."""
        while True:
            await trio.sleep(self._limit / _LOOKS_PER_LIMIT)
            self.look()
