"""The wall clock that record timestamps and retention use, and Trio's clock for hot paths."""

import time
from collections.abc import Callable

import trio


def wall_clock_ms() -> int:
    """Return the milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def run_clock() -> Callable[[], float]:
    """Return the clock of the current Trio run. Calling it takes half the time of `trio.current_time`."""
    return trio.lowlevel.current_clock().current_time
