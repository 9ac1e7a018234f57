"""What a Python worker of Spark pays for each task, whatever it does.

Between two tasks Spark has it collect garbage, which looks at each object of all that was imported: a tenth of a second
where numba is. What is there when the second task begins has just been looked at, and most of it stays for good. The
same holds for the worker that makes sources, and for the one that plans: making one, or a plan, is a task of theirs.
"""

import gc
import itertools
import sys

_OF_WORKERS = "pyspark.worker_util"
_begun = itertools.count(1)


def in_worker() -> bool:
    """Whether this process is one."""
    return _OF_WORKERS in sys.modules


def begin_task() -> None:
    """At the worker's second task: let no collection look again at what is there by then."""
    if next(_begun) == 2 and in_worker():
        gc.freeze()
