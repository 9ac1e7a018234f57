"""A process of the simulation: all that it does happens in tasks below one, which can be frozen or end at once."""

import contextvars
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

import trio

from kafscale.errors import KafscaleError, Unavailable
from tests.sim.trace import actor
from tests.support.scheduling import ready_queue

T = TypeVar("T")


current_process: ContextVar["Process"] = ContextVar("current_process")


class Process:
    """One run of a service's process. ``defects``: errors that no process may end by."""

    def __init__(self, name: str, address: str, defect: Callable[[str, BaseException], None]) -> None:
        self.name = name
        self.address = address
        self.dead = False
        self.frozen = False
        self.ended = trio.Event()
        # Set while it is cut off from somebody.
        self.cut_from_metadata = False
        self.cut_from_objects = False
        self.cut_from_peers = False
        # Until then its watches of the metadata tell it nothing new.
        self.behind_until = 0.0
        self.clock_ahead = 0.0
        # By how much its wall clock is wrong, in seconds.
        self.wall_ahead = 0.0
        self._defect = defect
        self._scope = trio.CancelScope()
        self._root: trio.lowlevel.Task | None = None
        self._nursery: trio.Nursery | None = None
        self._context: contextvars.Context | None = None

    @property
    def started(self) -> bool:
        """False also where it is only a name for who asks: nobody would start it again."""
        return self._root is not None

    @property
    def serving(self) -> bool:
        return self._nursery is not None and not self.dead

    def lease_clock(self) -> float:
        """A clock that counts suspension."""
        return trio.current_time() + self.clock_ahead

    async def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Live until ``main`` returns, an error ends it, or `crash`."""
        self._root = trio.lowlevel.current_task()
        actor.set(self.name)
        current_process.set(self)
        try:
            with self._scope:
                await main()
        except* KafscaleError as errors:
            # As run_service does: the process ends, and somebody starts it anew.
            del errors
        except* Exception as errors:  # noqa: BLE001
            self._defect(self.name, errors)
        finally:
            self.dead = True
            self._nursery = None
            self.ended.set()

    def open(self, nursery: trio.Nursery) -> None:
        """From here on calls of others are served, in ``nursery``."""
        self._nursery = nursery
        self._context = contextvars.copy_context()

    def crash(self) -> None:
        """End now, as by kill -9: nothing that it still does reaches anybody."""
        self.dead = True
        self._scope.cancel()
        self.thaw()

    def freeze(self) -> None:
        """Stop every task, as by SIGSTOP; time goes on."""
        if self._root is not None and not self.dead and not self.frozen:
            self.frozen = True
            ready_queue().freeze(self._root)

    def thaw(self) -> None:
        if self.frozen and self._root is not None:
            self.frozen = False
            ready_queue().thaw(self._root)

    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Start a task of this process. Raises Unavailable when it does not serve."""
        if self._nursery is None or self._context is None or self.dead or self._nursery.cancel_scope.cancel_called:
            raise Unavailable("connection refused")
        self._context.run(self._nursery.start_soon, work)

    async def call(self, work: Callable[[], Awaitable[T]], *, abandon: Callable[[], bool]) -> T:
        """Run ``work`` in this process and give what came of it. Raises Unavailable when the process ends first.

        When the caller goes, ``work`` is cancelled, or, where ``abandon`` says so, goes on without it.
        """
        done = trio.Event()
        results: list[T] = []
        errors: list[KafscaleError] = []
        scope = trio.CancelScope()

        async def serve() -> None:
            try:
                with scope:
                    results.append(await work())
            except KafscaleError as error:
                errors.append(error)
            finally:
                done.set()

        self.spawn(serve)
        try:
            await done.wait()
        except trio.Cancelled:
            if not abandon():
                scope.cancel()
            raise
        if errors:
            raise errors[0]
        if not results:
            raise Unavailable("connection reset")
        return results[0]
