"""How blocking work is run: in a worker thread, or inline where a simulation wants the same interleaving every time."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import trio

T = TypeVar("T")


class RunSync(Protocol):
    """Runs a blocking function to its end and gives its result; cancellation waits for that end."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


async def run_in_thread(function: Callable[[], T]) -> T:
    """In one of Trio's worker threads."""
    return await trio.to_thread.run_sync(function)


async def run_in_abandoned_thread(function: Callable[[], T]) -> T:
    """In a thread that nobody waits for any longer when the caller is cancelled."""
    return await trio.to_thread.run_sync(function, abandon_on_cancel=True)


def run_in_threads_of(limiter: trio.CapacityLimiter) -> RunSync:
    """In worker threads, as many at a time as ``limiter`` allows."""

    async def run(function: Callable[[], T], /) -> T:
        return await trio.to_thread.run_sync(function, limiter=limiter)

    return run


async def run_inline(function: Callable[[], T]) -> T:
    """No thread."""
    await trio.lowlevel.checkpoint()
    return function()
