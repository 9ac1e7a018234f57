"""Timers of open buffers."""

from typing import cast

import trio
from trio.testing import MockClock

from services.storage.log.partition import Partition
from services.storage.writing.seal_timers import SealTimers


class _Timed:
    """The part of a partition that a timer needs."""

    timer = 0


async def test_replaced_and_cleared_timers_do_not_accumulate(autojump_clock: MockClock) -> None:
    sealed: list[Partition] = []
    timers = SealTimers(sealed.append)
    first, other = (cast(Partition, _Timed()) for _ in range(2))
    timers.set(other, 5.0)
    for _ in range(1000):
        timers.set(first, 3600.0)
        timers.set(first, 1800.0)
        timers.clear(first)
    assert len(timers) < 200
    timers.set(first, 4.0)
    with trio.move_on_after(10):
        await timers.run()
    assert sealed == [first, other]
