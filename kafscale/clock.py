"""The wall clock that record timestamps and retention use."""

import time


def wall_clock_ms() -> int:
    """Return the milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000
