"""What a service does as long as its lease lives, and anew under another one when it was lost."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import trio

from kafscale.metadata.interface import LeaseNotFound


class Run(Protocol):
    """What lives and dies with one lease; losing that is LeaseNotFound out of the nursery that the run was made in."""

    async def start(self) -> None:
        """Take a lease, and do what it is taken for, in the nursery."""
        ...

    async def drain(self) -> None:
        """Bring to an end what is under way, and give the lease back."""
        ...

    def end(self) -> None:
        """The lease is lost or given back: nothing of this run counts any more."""
        ...


R = TypeVar("R", bound=Run)


class LeasedRuns(Generic[R]):
    """One run after the other, each by ``make``. ``lost`` is told of each lease that was lost."""

    def __init__(self, make: Callable[[trio.Nursery], R], lost: Callable[[], None]) -> None:
        self._make = make
        self._lost = lost
        self.current: R | None = None
        """None: it is starting, or between two leases."""

    async def run(self, stop: trio.Event, task_status: trio.TaskStatus[None]) -> R:
        """Until ``stop``; started with the first run. Gives the last one, which is drained."""
        started = False
        drained: R | None = None
        while drained is None:
            try:
                async with trio.open_nursery() as nursery:
                    run = self._make(nursery)
                    try:
                        await run.start()
                        self.current = run
                        if not started:
                            task_status.started()
                            started = True
                        await stop.wait()
                        drained = run
                        await run.drain()
                        nursery.cancel_scope.cancel()
                    finally:
                        # Before the nursery closes: callers must find the run's end, not a nursery that takes nothing.
                        self.current = None
                        run.end()
            except* LeaseNotFound:
                self._lost()
        return drained
