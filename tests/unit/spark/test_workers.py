"""What was there at a worker's second task is not looked at by collections any more."""

import os
import subprocess
import sys

import pytest

from tests.spark.session import environment

_CODE = """
import gc, sys, {module}
from kafscale_spark.workers import begin_task
for _ in range({tasks}):
    begin_task()
    gc.collect()
print(gc.get_freeze_count() > 0)
"""


@pytest.mark.parametrize(
    ("module", "tasks", "frozen"),
    [("pyspark.worker_util", 1, False), ("pyspark.worker_util", 2, True), ("pyspark.sql", 3, False)],
)
def test_workers_of_spark_do_so_from_the_second_task_on(module: str, tasks: int, frozen: bool) -> None:
    """A single task has nothing of it; a driver or a test is left alone."""
    code = _CODE.format(module=module, tasks=tasks)
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(frozen)
