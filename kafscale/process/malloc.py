"""Keeps freed memory for the next buffer, where the C library is glibc.

Records pass through as buffers of some megabytes. By default glibc gives each back to the kernel when it is freed, and
the next one is paid for with a page fault every 4 KiB: measured, that was half of the CPU time of a fetch.
"""

import ctypes

# mallopt(3): the parameters' numbers in malloc.h, and the largest threshold that glibc takes on 64 bits.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 256 << 20
_LARGEST_FROM_HEAP = 32 << 20


def keep_freed_memory() -> bool:
    """Let the process keep up to 256 MiB of freed memory; False where the C library has no such knob."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES) and mallopt(_M_MMAP_THRESHOLD, _LARGEST_FROM_HEAP)
    )
