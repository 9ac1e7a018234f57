"""What was there at a worker's second task is not looked at by collections any more."""

import os
import subprocess
import sys

import pytest

from tests.spark.session import environment

_CODE = """
import gc, pickle, {module}
from kafscale_spark.source import KafscaleDataSource
from kafscale_spark.workers import begin_task
made = pickle.dumps(KafscaleDataSource.__new__(KafscaleDataSource))
options = {{"kafscale.endpoints": "localhost:1", "subscribe": "topic"}}
def plan():
    source = pickle.loads(made)
    source.options = options
    source.reader(source.schema())
for _ in range({tasks}):
    {task}
    gc.collect()
print(gc.get_freeze_count() > 0)
"""
_TASKS = ("begin_task()", "KafscaleDataSource(options)", "plan()")


@pytest.mark.parametrize("task", _TASKS)
@pytest.mark.parametrize(
    ("module", "tasks", "frozen"),
    [("pyspark.worker_util", 1, False), ("pyspark.worker_util", 2, True), ("pyspark.sql", 3, False)],
)
def test_workers_of_spark_do_so_from_the_second_task_on(module: str, tasks: int, frozen: bool, task: str) -> None:
    """A single task, or a source that is made or planned with once, has nothing of it; a driver is left alone."""
    code = _CODE.format(module=module, tasks=tasks, task=task)
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(frozen)
