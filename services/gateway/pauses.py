"""Detects pauses of the process (SIGSTOP, a suspended machine, a stalled event loop).

After a pause, requests in sockets and queues may be stale: the client may have given up or retried through another
gateway. In Kafka, the paused broker would have lost the partition or the group by then. Here storage and the
coordinator were not paused and would execute the request. Therefore all requests that arrived before or during a pause
are dropped, and connections are closed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
import trio

from kafscale.metadata.membership import boot_clock

_LOOKS_PER_LIMIT = 4
_SETTLING_SECONDS = 1.0
"""How long after a pause new connections are closed, because they may have waited in the listener's backlog."""

_log = structlog.get_logger(__name__)


class Pauses:
    """More than ``limit`` seconds between two calls of `look` are a pause. `run` must be running.

    ``clock`` includes the time of a suspension, but not steps of the wall clock. A pause that is detected by mistake
    only closes the connections.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = boot_clock) -> None:
        self._limit = limit
        self._clock = clock
        self._seen = clock()
        self._settled = self._seen
        self._callbacks: dict[Callable[[], None], None] = {}

    @property
    def settling(self) -> bool:
        """Whether a pause ended so recently that arriving data may be older."""
        return self._seen < self._settled

    def look(self) -> None:
        """Check for a pause, and drop requests after one. To be called before a client's request is executed."""
        now = self._clock()
        passed, self._seen = now - self._seen, now
        if passed <= self._limit:
            return
        self._settled = now + _SETTLING_SECONDS
        _log.warning("process was paused, closing connections", seconds=round(passed, 1))
        for drop in list(self._callbacks):
            drop()

    @contextmanager
    def calling_on_pause(self, drop: Callable[[], None]) -> Iterator[None]:
        """A context in which ``drop`` is called after each pause."""
        self._callbacks[drop] = None
        try:
            yield
        finally:
            del self._callbacks[drop]

    async def run(self) -> None:
        """Call `look` often enough that only a pause exceeds the limit, until cancelled."""
        while True:
            await trio.sleep(self._limit / _LOOKS_PER_LIMIT)
            self.look()
