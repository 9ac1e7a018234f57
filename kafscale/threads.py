"""Ways to run blocking work: in a worker thread, or inline for simulations, which need a deterministic interleaving."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import trio

T = TypeVar("T")


class RunSync(Protocol):
    """Runs a blocking function and returns its result. Cancellation waits until the function has returned."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


async def run_in_thread(function: Callable[[], T]) -> T:
    """Run ``function`` in one of Trio's worker threads."""
    return await trio.to_thread.run_sync(function)


async def run_in_abandoned_thread(function: Callable[[], T]) -> T:
    """Run ``function`` in a worker thread that is abandoned when the caller is cancelled."""
    return await trio.to_thread.run_sync(function, abandon_on_cancel=True)


def run_in_threads_of(limiter: trio.CapacityLimiter) -> RunSync:
    """Return a RunSync that uses worker threads, at most as many at a time as ``limiter`` allows."""

    async def run(function: Callable[[], T], /) -> T:
        return await trio.to_thread.run_sync(function, limiter=limiter)

    return run


async def run_inline(function: Callable[[], T]) -> T:
    """Run ``function`` without a thread."""
    await trio.lowlevel.checkpoint()
    return function()
