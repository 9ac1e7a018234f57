"""Makes glibc keep freed memory for the next buffer.

Records are handled in buffers of some megabytes. By default, glibc returns each one to the kernel when it is freed, and
the next one causes a page fault every 4 KiB. In measurements, that was half of the CPU time of a fetch. Each thread has
a heap of its own by default, so it needs new memory although another one has freed some. With one heap for all, a
produced batch causes less than half as many page faults.
"""

import ctypes

# See mallopt(3): the numbers of the parameters in malloc.h, and the largest threshold of glibc on 64 bits.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_KEPT_BYTES = 256 << 20
_LARGEST_FROM_HEAP = 32 << 20


def keep_freed_memory(most_bytes: int = _KEPT_BYTES) -> bool:
    """Let the process keep up to ``most_bytes`` of freed memory for all threads. Return False if the C library cannot.

    Threads that already have a heap of their own keep it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(
        mallopt(_M_TRIM_THRESHOLD, most_bytes)
        and mallopt(_M_MMAP_THRESHOLD, _LARGEST_FROM_HEAP)
        and mallopt(_M_ARENA_MAX, 1)
    )
