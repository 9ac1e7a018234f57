"""Spark workers keep freed memory and exclude long-lived objects from garbage collection."""

import gc
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from kafscale_spark import workers
from kafscale_spark.source import KafscaleDataSource
from kafscale_spark.types import spark_schema
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
_FAULTS = """
import resource, {module}
from kafscale_spark.workers import begin_task
begin_task()
def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        pieces = [bytes(4 << 20) for _ in range(4)]
        del pieces
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults(2)
print(faults(100))
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
    assert _printed(_CODE.format(module=module, task=task, tasks=tasks)) == str(frozen)


def _source() -> KafscaleDataSource:
    return KafscaleDataSource({"kafscale.endpoints": "localhost:1", "subscribe": "topic"})


@pytest.mark.parametrize(
    "task",
    [workers.begin_task, lambda: _source().schema(), lambda: _source().reader(spark_schema(("key",)))],
    ids=["read", "make", "plan"],
)
def test_every_kind_of_task_counts(task: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setitem(sys.modules, _WORKER, ModuleType(_WORKER))
    monkeypatch.setattr(workers, "_begun", itertools.count(1))
    monkeypatch.setattr(workers, "keep_freed_memory", lambda _: done.append("keep"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    task()
    assert done == ["keep"]
    task()
    assert done == ["keep", "freeze"]
    task()
    assert done == ["keep", "freeze"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc can keep freed memory")
def test_spark_workers_keep_freed_memory() -> None:
    faults = {module: int(_printed(_FAULTS.format(module=module))) for module in (_WORKER, _DRIVER)}
    assert faults[_WORKER] * 10 < faults[_DRIVER]


def _printed(code: str) -> str:
    """Return the output of a separate process."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment(), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
