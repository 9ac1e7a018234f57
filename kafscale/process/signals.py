"""Runs a process's main task: signals, a bounded shutdown, and exit statuses.

The first SIGTERM or SIGINT sets the event that ``main`` got; ``main`` then finishes within the grace period, after
which it is cancelled. A second signal ends the process on the spot.
"""

import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress

import structlog
import trio

from kafscale.errors import ConfigError, KafscaleError
from kafscale.process.malloc import keep_freed_memory

EXIT_OK = 0
EXIT_FAILED = 1
"""An error ended ``main``, or the grace period ran out before it returned."""
EXIT_CONFIG = 2

Main = Callable[[trio.Event], Awaitable[None]]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = structlog.get_logger(__name__)


def run_service(main: Main, *, grace_seconds: float) -> int:
    """Run ``main`` under Trio and give the process's exit status.

    A ConfigError becomes one line on standard error and status 2; another error that the product knows becomes one line
    and status 1, with its traceback at log level debug. What is left is raised.
    """
    keep_freed_memory()
    raise_file_limit()
    status = EXIT_CONFIG
    try:
        status = trio.run(supervise, main, grace_seconds)
    except* KafscaleError as group:
        errors = list(_leaves(group))
        for error in errors:
            print(f"kafscale: {error}", file=sys.stderr)
        if not any(isinstance(error, ConfigError) for error in errors):
            _log.debug("ended by an error", exc_info=group)
            status = EXIT_FAILED
    return status


async def supervise(main: Main, grace_seconds: float) -> int:
    """Run ``main`` until it returns or a signal's grace period is over; gives the exit status."""
    stopping = trio.Event()
    finished = False
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_obey_signals, signals, stopping, nursery.cancel_scope, grace_seconds)
            await main(stopping)
            finished = True
            nursery.cancel_scope.cancel()
    if not finished:
        _log.error("stopped before the work in hand was finished", grace_seconds=grace_seconds)
    return EXIT_OK if finished else EXIT_FAILED


async def _obey_signals(
    signals: AsyncIterator[int], stopping: trio.Event, scope: trio.CancelScope, grace_seconds: float
) -> None:
    first = await anext(signals)
    _log.info("stopping", signal=signal.Signals(first).name, grace_seconds=grace_seconds)
    scope.deadline = trio.current_time() + grace_seconds
    stopping.set()
    second = await anext(signals)
    signal.signal(second, signal.SIG_DFL)
    os.kill(os.getpid(), second)


def raise_file_limit() -> None:
    """Let the process open as many files as it may: each client connection is one, and the usual limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
