"""Runs that are bound to a lease: when the lease is lost, the service starts a new run with a new lease."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import trio

from kafscale.metadata.interface import LeaseNotFound


class Run(Protocol):
    """The work of a service under one lease. If the lease is lost, the nursery of the run raises LeaseNotFound."""

    async def start(self) -> None:
        """Acquire a lease and start the work in the nursery."""
        ...

    async def drain(self) -> None:
        """Finish the work in progress and release the lease."""
        ...

    def end(self) -> None:
        """Called when the lease is lost or released. The run must not act as an owner after that."""
        ...


R = TypeVar("R", bound=Run)


class LeasedRuns(Generic[R]):
    """Consecutive runs, each created by ``make``. ``lost`` is called whenever a lease is lost."""

    def __init__(self, make: Callable[[trio.Nursery], R], lost: Callable[[], None]) -> None:
        self._make = make
        self._lost = lost
        self.current: R | None = None
        """The current run; None at startup and between two leases."""

    async def run(self, stop: trio.Event, task_status: trio.TaskStatus[None]) -> R:
        """Run until ``stop`` is set. Reports started with the first run. Returns the last run, which is drained."""
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
                        # Before the nursery closes: callers must find that the run ended, not a closed nursery.
                        self.current = None
                        run.end()
            except* LeaseNotFound:
                self._lost()
        return drained
