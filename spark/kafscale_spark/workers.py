"""What a Python worker of Spark pays for each task, whatever it does.

Between two tasks Spark has it collect garbage, which looks at each object of all that was imported: a tenth of a second
where numba is. What is there when the second task begins has just been looked at, and most of it stays for good. The
same holds for the worker that makes sources, and for the one that plans: making one, or a plan, is a task of theirs.
"""

import gc
import itertools
import sys

from kafscale.malloc import keep_freed_memory

_OF_WORKERS = "pyspark.worker_util"
_KEPT_BYTES = 64 << 20
"""A scan frees the memory of some pieces, and needs as much again at once."""
_begun = itertools.count(1)


def in_worker() -> bool:
    """Whether this process is one."""
    return _OF_WORKERS in sys.modules


def begin_task() -> None:
    """At a worker's first task, keep freed memory for the next piece of a scan.

    At its second task, let no collection look again at what is there by then.
    """
    number = next(_begun)
    if not in_worker():
        return
    if number == 1:
        keep_freed_memory(_KEPT_BYTES)
    elif number == 2:
        gc.freeze()
