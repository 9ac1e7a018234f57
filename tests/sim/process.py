"""A process of the simulation: all its work is in tasks below one task, which can be frozen or killed."""

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
    """One run of a service's process. ``defect`` is called with errors by which no process may end."""

    def __init__(self, name: str, address: str, defect: Callable[[str, BaseException], None]) -> None:
        self.name = name
        self.address = address
        self.dead = False
        self.frozen = False
        self.ended = trio.Event()
        # True while the process is cut off.
        self.cut_from_metadata = False
        self.cut_from_objects = False
        self.cut_from_peers = False
        # Its metadata watches return nothing new until this time.
        self.behind_until = 0.0
        self.clock_ahead = 0.0
        # The error of its wall clock in seconds.
        self.wall_ahead = 0.0
        self._defect = defect
        self._scope = trio.CancelScope()
        self._root: trio.lowlevel.Task | None = None
        self._nursery: trio.Nursery | None = None
        self._context: contextvars.Context | None = None

    @property
    def started(self) -> bool:
        """Whether it has been started. False if it is only the name of a caller, which would not be restarted."""
        return self._root is not None

    @property
    def serving(self) -> bool:
        return self._nursery is not None and not self.dead

    def lease_clock(self) -> float:
        """Return the time of a clock that includes suspension."""
        return trio.current_time() + self.clock_ahead

    async def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run until ``main`` returns, an error is raised, or `crash` is called."""
        self._root = trio.lowlevel.current_task()
        actor.set(self.name)
        current_process.set(self)
        try:
            with self._scope:
                await main()
        except* KafscaleError as errors:
            # As in run_service: the process ends and is restarted.
            del errors
        except* Exception as errors:  # noqa: BLE001
            self._defect(self.name, errors)
        finally:
            self.dead = True
            self._nursery = None
            self.ended.set()

    def open(self, nursery: trio.Nursery) -> None:
        """Serve calls from now on, in ``nursery``."""
        self._nursery = nursery
        self._context = contextvars.copy_context()

    def call_at_once(self, function: Callable[[], T]) -> T:
        """Call ``function`` as a part of this process, which must be serving."""
        assert self._context is not None
        return self._context.run(function)

    def crash(self) -> None:
        """End immediately, as with SIGKILL. Nothing that it still does has an effect."""
        self.dead = True
        self._scope.cancel()
        self.thaw()

    def freeze(self) -> None:
        """Stop all tasks, as with SIGSTOP, while time goes on."""
        if self._root is not None and not self.dead and not self.frozen:
            self.frozen = True
            ready_queue().freeze(self._root)

    def thaw(self) -> None:
        if self.frozen and self._root is not None:
            self.frozen = False
            ready_queue().thaw(self._root)

    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Start a task of this process. Raise Unavailable if it is not serving."""
        if self._nursery is None or self._context is None or self.dead or self._nursery.cancel_scope.cancel_called:
            raise Unavailable("connection refused")
        self._context.run(self._nursery.start_soon, work)

    async def call(self, work: Callable[[], Awaitable[T]], *, abandon: Callable[[], bool]) -> T:
        """Run ``work`` in this process and return its result. Raise Unavailable if the process ends first.

        If the caller is cancelled, so is ``work``, unless ``abandon`` returns true. It then continues on its own.
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
