"""What is measured of clients, in a bounded table that forgets only what has no effect any more."""

from collections.abc import Callable, Hashable
from hashlib import blake2b
from heapq import heappop, heappush, heapreplace
from typing import Generic, Protocol, TypeVar

MOST = 20_000
"""The maximum number of sensors in a table, besides one for each quota. More clients of a quota share that one."""
_LONGEST_NAME = 64
"""Longer names of users and client ids, in characters, are represented by a digest."""
_CHECKED_AT_ONCE = 100
"""The maximum number of sensors that one use of the table checks for being idle."""


class _Sensor(Protocol):
    @property
    def idle_from_ms(self) -> int:
        """From this time on, it measures what a new one would, unless it is used again."""
        ...


Sensor = TypeVar("Sensor", bound=_Sensor)


class Sensors(Generic[Sensor]):
    """Sensors by key, each of which ``make`` makes when it is first needed."""

    def __init__(self, make: Callable[[], Sensor]) -> None:
        self._make = make
        self._sensors: dict[Hashable, Sensor] = {}
        # A heap with one entry for each sensor: a time before which it is not idle, a unique number, and its key.
        self._idle: list[tuple[int, int, Hashable]] = []
        self._made = 0

    def __len__(self) -> int:
        return len(self._sensors)

    def get(self, key: Hashable, overflow: Hashable, now_ms: int) -> Sensor:
        """Return the sensor of ``key``. If it is new and the table is full, return that of ``overflow`` instead.

        To be used at once, because what is idle is forgotten.
        """
        self._forget_idle(now_ms)
        if key not in self._sensors and len(self._sensors) >= MOST:
            key = overflow
        sensor = self._sensors.get(key)
        if sensor is None:
            sensor = self._sensors[key] = self._make()
            self._made += 1
            heappush(self._idle, (now_ms, self._made, key))
        return sensor

    def _forget_idle(self, now_ms: int) -> None:
        for _ in range(_CHECKED_AT_ONCE):
            if not self._idle or self._idle[0][0] > now_ms:
                return
            _, number, key = self._idle[0]
            idle_from_ms = self._sensors[key].idle_from_ms
            if idle_from_ms > now_ms:
                heapreplace(self._idle, (idle_from_ms, number, key))
            else:
                heappop(self._idle)
                del self._sensors[key]


def short_name(name: str) -> str | bytes:
    """Return what represents a user or a client id in keys of sensors: the name itself, or a digest if it is long."""
    return name if len(name) <= _LONGEST_NAME else blake2b(name.encode(errors="surrogatepass"), digest_size=16).digest()
