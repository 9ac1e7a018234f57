"""Reduces the fixed cost of each task in a Python worker of Spark.

Spark collects garbage between two tasks, which traverses every imported object and takes a tenth of a second with
numba. The objects that exist when the second task begins have just been traversed, and most of them are permanent. The
same holds for the workers that create sources and that plan; for these, creating a source or a plan is a task.
"""

import gc
import itertools
import sys

from kafscale.malloc import keep_freed_memory

_OF_WORKERS = "pyspark.worker_util"
_KEPT_BYTES = 64 << 20
"""A scan frees the memory of some pieces and needs as much again immediately."""
_begun = itertools.count(1)


def in_worker() -> bool:
    """Return whether this process is a Python worker of Spark."""
    return _OF_WORKERS in sys.modules


def begin_task() -> None:
    """Call this when a task begins.

    From the first task of a worker on, freed memory is kept for the next piece of a scan. At its second task, all
    existing objects are exempted from garbage collection.
    """
    number = next(_begun)
    if not in_worker():
        return
    if number == 1:
        keep_freed_memory(_KEPT_BYTES)
    elif number == 2:
        gc.freeze()
