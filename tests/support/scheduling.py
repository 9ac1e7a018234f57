"""Trio made deterministic: one seed, one interleaving; and processes that can be frozen, as SIGSTOP does.

This rests on internals of Trio, all of them used here and nowhere else: its switch for deterministic scheduling and
the generator that it shuffles with (Hypothesis and pytest-trio use them too), and the queue of tasks that are ready.
What the product draws from `random`, `secrets` and `uuid` by itself (jitter, names) is drawn from the seed as well, and
the clock that counts suspension, where it is not injected, is Trio's.
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
    """Trio's queue of ready tasks, without those that belong to a frozen process: they wait aside until it thaws."""

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
        """Let neither ``root`` nor any task below it go on, but for the step that is being taken now."""
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
    """This run's queue, made freezable by the first call."""
    runner = trio_run.GLOBAL_RUN_CONTEXT.runner
    if not isinstance(runner.runq, FreezableQueue):
        queue = FreezableQueue()
        queue.extend(runner.runq)
        runner.runq = queue
    queue = runner.runq
    assert isinstance(queue, FreezableQueue)
    return queue


def run(seed: int, main: Callable[[], Awaitable[T]]) -> T:
    """Run ``main`` on a virtual clock that begins at 0 and jumps when nothing is left to do."""
    collecting = gc.isenabled()
    with _seeded(seed):
        # Finalizers run when the collector likes; there is not much garbage in one run.
        gc.disable()
        try:
            return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
        finally:
            if collecting:
                gc.enable()


def _clock(_: int) -> float:
    return trio.current_time()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    names = random.Random(f"names {seed}")  # a generator of its own, so that a new name moves no other draw

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
    """Between two runs."""
    if sys.exc_info() == (None, None, None):
        gc.collect()
