"""Concurrent calls share one load, and fail cleanly if their run ends."""

import pytest
import trio
import trio.lowlevel
import trio.testing

from kafscale.errors import Unavailable
from services.storage.reading.single_flight import SingleFlight


async def test_concurrent_calls_share_one_load() -> None:
    loads = 0

    async def load() -> str:
        nonlocal loads
        loads += 1
        await trio.lowlevel.checkpoint()
        return "value"

    async with trio.open_nursery() as run:
        flights: SingleFlight[str, str] = SingleFlight(run)
        async with trio.open_nursery() as callers:
            for _ in range(3):
                callers.start_soon(flights.do, "key", load)
        assert await flights.do("key", load) == "value"
    assert loads == 2


async def test_a_call_across_the_end_of_its_run_is_unavailable() -> None:
    async def load() -> str:
        await trio.sleep_forever()
        return "never"

    async def ask(flights: SingleFlight[str, str]) -> None:
        with pytest.raises(Unavailable):
            await flights.do("key", load)

    async with trio.open_nursery() as callers:
        async with trio.open_nursery() as run:
            flights: SingleFlight[str, str] = SingleFlight(run)
            callers.start_soon(ask, flights)
            await trio.testing.wait_all_tasks_blocked()
            run.cancel_scope.cancel()
        await ask(flights)
