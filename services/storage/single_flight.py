"""One load of a thing at a time, however many ask for it."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import trio

from kafscale.errors import KafscaleError, Unavailable

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Flight(Generic[V]):
    def __init__(self) -> None:
        self.landed = trio.Event()
        self.value: V | None = None
        self.error: KafscaleError | None = None


class SingleFlight(Generic[K, V]):
    """Loads run in ``nursery``, so that the first caller's going away does not fail the others."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._flights: dict[K, _Flight[V]] = {}

    def under_way(self, key: K) -> bool:
        return key in self._flights

    async def do(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """What ``load`` gives, or raises of KafscaleError, for all who asked; Unavailable when the run ends."""
        flight = self._flights.get(key)
        if flight is None:
            if self._nursery.cancel_scope.cancel_called:
                raise Unavailable("this run is over")
            flight = self._flights[key] = _Flight()
            self._nursery.start_soon(self._fly, key, flight, load)
        await flight.landed.wait()
        if flight.error is not None:
            raise flight.error
        if flight.value is None:
            raise Unavailable("this run is over")
        return flight.value

    async def _fly(self, key: K, flight: _Flight[V], load: Callable[[], Awaitable[V]]) -> None:
        try:
            flight.value = await load()
        except KafscaleError as error:
            flight.error = error
        finally:
            del self._flights[key]
            flight.landed.set()
