"""Deterministic Trio, with one interleaving for each seed, and processes that can be frozen as with SIGSTOP.

This uses internals of Trio, only here: its switch for deterministic scheduling and its random generator for the order
of tasks, which Hypothesis and pytest-trio use too, and the queue of ready tasks. What the product draws from `random`,
`secrets` and `uuid` (jitter, names) also comes from the seed. A clock that counts suspension is Trio's clock if it is
not injected.
"""

import gc
import random
import secrets
import sys
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from unittest import mock

import trio
import trio.testing
from trio._core import _run as trio_run

T = TypeVar("T")


class FreezableQueue(deque[trio.lowlevel.Task]):
    """Trio's queue of ready tasks. It holds back the tasks of frozen processes until they are thawed."""

    def __init__(self) -> None:
        super().__init__()
        self._aside: dict[trio.lowlevel.Task, list[trio.lowlevel.Task]] = {}

    def append(self, task: trio.lowlevel.Task, /) -> None:
        if self._aside:
            root = self._frozen_root(task)
            if root is not None:
                self._aside[root].append(task)
                return
        super().append(task)

    def freeze(self, root: trio.lowlevel.Task) -> None:
        """Stop ``root`` and all its descendant tasks after the current step."""
        self._aside.setdefault(root, [])
        ready = list(self)
        self.clear()
        for task in ready:
            self.append(task)

    def thaw(self, root: trio.lowlevel.Task) -> None:
        for task in self._aside.pop(root, ()):
            self.append(task)

    def _frozen_root(self, task: trio.lowlevel.Task) -> trio.lowlevel.Task | None:
        found: trio.lowlevel.Task | None = task
        while found is not None:
            if found in self._aside:
                return found
            nursery = found.parent_nursery
            found = None if nursery is None else nursery.parent_task
        return None


def ready_queue() -> FreezableQueue:
    """Return the queue of this run. The first call makes it freezable."""
    runner = trio_run.GLOBAL_RUN_CONTEXT.runner
    if not isinstance(runner.runq, FreezableQueue):
        queue = FreezableQueue()
        queue.extend(runner.runq)
        runner.runq = queue
    queue = runner.runq
    assert isinstance(queue, FreezableQueue)
    return queue


class _Watcher(trio.abc.Instrument):
    """Calls ``look`` whenever all tasks wait. A task that did this would change the interleaving of the others."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look

    def before_io_wait(self, timeout: float) -> None:
        self._look()


def run(seed: int, main: Callable[[], Awaitable[T]], look: Callable[[], None] = lambda: None) -> T:
    """Run ``main`` on a virtual clock that starts at 0 and jumps ahead when all tasks wait, and call ``look`` then."""
    collecting = gc.isenabled()
    with _seeded(seed):
        # The collector runs finalizers at arbitrary times. One run produces little garbage.
        gc.disable()
        try:
            clock = trio.testing.MockClock(autojump_threshold=0)
            return trio.run(main, clock=clock, instruments=[_Watcher(look)])
        finally:
            if collecting:
                gc.enable()


def _clock(_: int) -> float:
    return trio.current_time()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    names = random.Random(f"names {seed}")  # a separate generator, so that a new name does not change other draws

    def token_hex(size: int = 16) -> str:
        return names.randbytes(size).hex()

    def new_uuid() -> uuid.UUID:
        return uuid.UUID(bytes=names.randbytes(16), version=4)

    with (
        mock.patch.object(trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        mock.patch.object(secrets, "token_hex", token_hex),
        mock.patch.object(secrets, "token_bytes", names.randbytes),
        mock.patch.object(secrets, "choice", names.choice),
        mock.patch.object(time, "clock_gettime", _clock),
        mock.patch.object(uuid, "uuid4", new_uuid),
    ):
        before, trio_before = random.getstate(), trio_run._r.getstate()
        random.seed(f"ambient {seed}")
        trio_run._r.seed(f"scheduling {seed}")
        try:
            yield
        finally:
            random.setstate(before)
            trio_run._r.setstate(trio_before)


def collect() -> None:
    """Collect garbage, between two runs."""
    if sys.exc_info() == (None, None, None):
        gc.collect()
