"""From its second task on, a worker's existing objects are excluded from garbage collection."""

import os
import subprocess
import sys

import pytest

from tests.support.spark.session import environment

_CODE = """
import gc, {module}
from kafscale_spark.source import KafscaleDataSource
from kafscale_spark.types import spark_schema
from kafscale_spark.workers import begin_task
options = {{"kafscale.endpoints": "localhost:1", "subscribe": "topic"}}
rows = spark_schema(("key",))
for _ in range({tasks}):
    {task}
    gc.collect()
print(gc.get_freeze_count() > 0)
"""
_WORKER, _DRIVER = "pyspark.worker_util", "pyspark.sql"
_READ, _MAKE, _PLAN = "begin_task()", "KafscaleDataSource(options).schema()", "KafscaleDataSource(options).reader(rows)"


@pytest.mark.parametrize(
    ("module", "task", "tasks", "frozen"),
    [
        (_WORKER, _READ, 1, False),
        (_WORKER, _READ, 2, True),
        (_WORKER, _MAKE, 2, True),
        (_WORKER, _PLAN, 2, True),
        (_DRIVER, _PLAN, 3, False),
    ],
)
def test_spark_workers_freeze_objects_from_the_second_task_on(module: str, task: str, tasks: int, frozen: bool) -> None:
    """A worker with a single task, a driver and a test process are not changed."""
    code = _CODE.format(module=module, task=task, tasks=tasks)
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(frozen)
