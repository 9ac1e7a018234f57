"""How many tasks run at a time: the planners of Python sources are not told by Spark.

A driver that registers the source tells them, in the environment of its Python functions. Where Spark finds an
installed source by itself it asks no driver: then the variable must be in the environment in which the driver starts.
"""

import os
import re

from pyspark import SparkContext
from pyspark.sql import SparkSession

from kafscale.errors import ConfigError

SLOTS = "KAFSCALE_SPARK_SLOTS"
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")


def tell_planners(spark: SparkSession) -> None:
    """Those of sources that are registered from now on, unless the driver's environment says it."""
    # A session of Spark Connect is none of this class: its driver is elsewhere.
    if not isinstance(spark, SparkSession):
        return
    context = spark.sparkContext
    context.environment[SLOTS] = os.environ.get(SLOTS) or str(slots_of(context))


def told_slots() -> int:
    """In a planner; 0: not known. Raises ConfigError."""
    told = os.environ.get(SLOTS) or "0"
    if not told.isdecimal():
        raise ConfigError(
            f"{SLOTS} is {told!r}, and must be a whole number: how many tasks run at a time, 0: not known"
        )
    return int(told)


def slots_of(context: SparkContext) -> int:
    """0: not known, as where executors come and go, or each takes all cores of its machine."""
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


def _cores(context: SparkContext, said: str | None) -> int:
    """Of a local master, which says how many, or that it takes all."""
    if said != "*":
        return int(said or 1)
    # What is set there is for shuffles; else it is the cores that the JVM sees.
    return 0 if context.getConf().get("spark.default.parallelism") else context.defaultParallelism
