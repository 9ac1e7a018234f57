"""Calls begin at a simulated coordinator in the order of sending, also if some are cancelled."""

import trio
import trio.testing

from tests.sim.coordinators import CoordinatorProcess


async def test_a_cancelled_call_lets_no_later_call_overtake_an_earlier_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    process = CoordinatorProcess("coordinator-0.1", "coordinator-0:9098", lambda name, error: None)
    began: list[str] = []

    async def work(name: str) -> None:
        began.append(name)

    slow = process.in_turn(lambda: work("slow"), after=1.0)
    cancelled = process.in_turn(lambda: work("cancelled"), after=0.0)
    quick = process.in_turn(lambda: work("quick"), after=0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow)
        nursery.start_soon(quick)
        with trio.move_on_after(0.5):
            await cancelled()
    assert began == ["slow", "quick"]
