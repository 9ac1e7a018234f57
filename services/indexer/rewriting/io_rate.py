"""Limits of what rewrites read and store, as log.cleaner.io.max.bytes.per.second of Kafka."""

from collections.abc import Callable

import trio


class IoRate:
    """``per_second``: the limit in bytes for all users of this object together; 0: none.

    ``times``: by how much the limit is multiplied at the moment.
    """

    def __init__(self, per_second: int, times: Callable[[], int] = lambda: 1) -> None:
        self._per_second = per_second
        self._times = times
        self._free_at = 0.0

    @property
    def limited(self) -> bool:
        return self._per_second > 0

    def seconds(self, size: int) -> float:
        """Return how long it takes to read or store ``size`` bytes by the limit."""
        return size / (self._per_second * self._times()) if self._per_second else 0.0

    def reserve(self, size: int) -> float:
        """To be called when ``size`` bytes are read or stored. Return when the limit allows the next ones, by Trio's
        clock."""
        if self._per_second:
            self._free_at = max(trio.current_time(), self._free_at) + self.seconds(size)
        return self._free_at
