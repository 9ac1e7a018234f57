"""Runs the main task of a process: signals, a bounded shutdown, and exit statuses.

The first SIGTERM or SIGINT sets the event that was passed to ``main``. ``main`` must then return within the grace
period, or it is cancelled. A second signal kills the process immediately.
"""

import gc
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import structlog
import trio

from kafscale.errors import ConfigError, KafscaleError, leaves
from kafscale.malloc import keep_freed_memory

EXIT_OK = 0
EXIT_FAILED = 1
"""``main`` raised an error, or did not return within the grace period."""
EXIT_CONFIG = 2

Main = Callable[[trio.Event], Awaitable[None]]

_NEW_OBJECTS = 10_000
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = structlog.get_logger(__name__)


def run_service(main: Main, *, grace_seconds: float) -> int:
    """Run ``main`` with Trio and return the exit status of the process.

    A ConfigError is printed as one line to standard error, with exit status 2. Any other KafscaleError is printed as
    one line too, with exit status 1, and its traceback is logged at level debug. Other errors are raised.
    """
    keep_freed_memory()
    collect_less_garbage()
    raise_file_limit()
    status = EXIT_CONFIG
    try:
        status = trio.run(supervise, main, grace_seconds)
    except* KafscaleError as group:
        errors = list(leaves(group))
        for error in errors:
            print(f"kafscale: {error}", file=sys.stderr)
        if not any(isinstance(error, ConfigError) for error in errors):
            _log.debug("process failed", exc_info=group)
            status = EXIT_FAILED
    return status


async def supervise(main: Main, grace_seconds: float) -> int:
    """Run ``main`` until it returns or the grace period after a signal is over. Return the exit status."""
    stopping = trio.Event()
    finished = False
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_handle_signals, signals, stopping, nursery.cancel_scope, grace_seconds)
            await main(stopping)
            finished = True
            nursery.cancel_scope.cancel()
    if not finished:
        _log.error("shutdown timed out with unfinished work", grace_seconds=grace_seconds)
    return EXIT_OK if finished else EXIT_FAILED


async def _handle_signals(
    signals: AsyncIterator[int], stopping: trio.Event, scope: trio.CancelScope, grace_seconds: float
) -> None:
    first = await anext(signals)
    _log.info("stopping", signal=signal.Signals(first).name, grace_seconds=grace_seconds)
    scope.deadline = trio.current_time() + grace_seconds
    stopping.set()
    second = await anext(signals)
    signal.signal(second, signal.SIG_DFL)
    os.kill(os.getpid(), second)


def collect_less_garbage() -> None:
    """Let the garbage collector ignore the modules that are imported by now, and look for cycles less often.

    Modules stay until the process ends. Their objects take about 0.1 s of each full collection. Few objects are in
    cycles, so looking for them after every 700 new objects, as Python does, takes a fiftieth of the CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


def raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit. Each client connection needs one; the usual limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
