"""Run at most one load per key at a time and share its result among all callers."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import trio

from kafscale.errors import KafscaleError, Unavailable

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Flight(Generic[V]):
    """A load in progress, or its result."""

    def __init__(self) -> None:
        self.landed = trio.Event()
        self.value: V | None = None
        self.error: KafscaleError | None = None

    async def wait(self) -> V:
        """Wait for the load and return its result or raise its KafscaleError. Raises Unavailable if the run ends."""
        if not self.landed.is_set():
            await self.landed.wait()
        if self.error is not None:
            raise self.error
        if self.value is None:
            raise Unavailable("this run has ended")
        return self.value


class SingleFlight(Generic[K, V]):
    """Runs loads in ``nursery``, so that cancelling the first caller does not fail the others."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._flights: dict[K, Flight[V]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def under_way(self, key: K) -> bool:
        return key in self._flights

    def begin(self, key: K, load: Callable[[], Awaitable[V]]) -> Flight[V]:
        """Start a load, or join the one in progress. It continues even if nobody waits. Raises Unavailable."""
        flight = self._flights.get(key)
        if flight is None:
            if self._nursery.cancel_scope.cancel_called:
                raise Unavailable("this run has ended")
            flight = self._flights[key] = Flight()
            self._nursery.start_soon(self._fly, key, flight, load)
        return flight

    async def do(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """Return the result of ``load``, shared by all callers. Raises its KafscaleError, or Unavailable."""
        return await self.begin(key, load).wait()

    async def _fly(self, key: K, flight: Flight[V], load: Callable[[], Awaitable[V]]) -> None:
        try:
            flight.value = await load()
        except KafscaleError as error:
            flight.error = error
        finally:
            del self._flights[key]
            flight.landed.set()
