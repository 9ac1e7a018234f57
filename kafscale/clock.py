"""The wall clock, as record timestamps and retention take it."""

import time


def wall_clock_ms() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000
