"""What is measured of clients, in a bounded table that forgets what was not used for long."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

MOST = 20_000
"""The maximum number of rates, and of token buckets, of a gateway. The least recently used one is forgotten first."""
IDLE_MS = 3_600_000
"""As in Kafka, what was not used for an hour is forgotten."""

Sensor = TypeVar("Sensor")


class Sensors(Generic[Sensor]):
    """Sensors by key, each of which ``make`` makes when it is first needed."""

    def __init__(self, make: Callable[[], Sensor]) -> None:
        self._make = make
        # With the time of the last use, the least recently used first.
        self._sensors: OrderedDict[Hashable, tuple[Sensor, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sensors)

    def get(self, key: Hashable, now_ms: int) -> Sensor:
        """Return the sensor of ``key``, and forget those that were idle for too long."""
        known = self._sensors.get(key)
        sensor = self._make() if known is None else known[0]
        self._sensors[key] = sensor, now_ms
        self._sensors.move_to_end(key)
        while len(self._sensors) > MOST or next(iter(self._sensors.values()))[1] <= now_ms - IDLE_MS:
            self._sensors.popitem(last=False)
        return sensor
