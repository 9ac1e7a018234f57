"""The number of tasks that run at a time, which Spark does not pass to the planners of Python sources.

A driver that registers the source passes it to them in the environment of its Python functions. If Spark discovers an
installed source, no driver does so, and the variable must be set in the environment in which the driver starts.
"""

import os
import re

from pyspark import SparkContext
from pyspark.sql import SparkSession

from kafscale.errors import ConfigError

SLOTS = "KAFSCALE_SPARK_SLOTS"
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")


def pass_slots_to_planners(spark: SparkSession) -> None:
    """Set the variable for sources that are registered from now on; the driver's own environment takes precedence."""
    # A session of Spark Connect has another class, because its driver is elsewhere.
    if not isinstance(spark, SparkSession):
        return
    context = spark.sparkContext
    context.environment[SLOTS] = os.environ.get(SLOTS) or str(slots_of(context))


def configured_slots() -> int:
    """Return the number that this planner was passed, or 0 if it is unknown. Raises ConfigError."""
    value = os.environ.get(SLOTS) or "0"
    if not value.isdecimal():
        raise ConfigError(
            f"{SLOTS} is {value!r}, but must be the number of tasks that run at a time, or 0 if it is unknown"
        )
    return int(value)


def slots_of(context: SparkContext) -> int:
    """Return the number, or 0 if unknown: with dynamic allocation, or if executors use all cores of their machines."""
    conf = context.getConf()
    names = ("task.cpus", "executor.instances", "executor.cores", "cores.max")
    of_task, executors, of_executor, most = (int(conf.get(f"spark.{name}", "0") or 0) for name in names)
    of_task = of_task or 1
    local = _LOCAL.fullmatch(context.master or "")
    if local is not None:
        return _cores(context, local[1]) // of_task
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return 0
    known = [slots for slots in (executors * (of_executor // of_task), most // of_task) if slots]
    return min(known, default=0)


def _cores(context: SparkContext, configured: str | None) -> int:
    """Return the cores of a local master: the ``configured`` number, 1 without one, or all for ``*``."""
    if configured != "*":
        return int(configured or 1)
    # A configured parallelism is meant for shuffles; the default is the number of cores that the JVM sees.
    return 0 if context.getConf().get("spark.default.parallelism") else context.defaultParallelism
