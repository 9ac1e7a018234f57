"""How many tasks run at a time: the planners of Python sources are not told by Spark.

A driver that registers the source tells them, in the environment of its Python functions. Where Spark finds an
installed source by itself it asks no driver: then the variable must be in the environment in which the driver starts.
"""

import os

from pyspark import SparkContext
from pyspark.sql import SparkSession

SLOTS = "KAFSCALE_SPARK_SLOTS"


def tell_planners(spark: SparkSession) -> None:
    """Those of sources that are registered from now on, unless the driver's environment says it."""
    # A session of Spark Connect is none of this class: its driver is elsewhere.
    if not isinstance(spark, SparkSession):
        return
    context = spark.sparkContext
    context.environment[SLOTS] = os.environ.get(SLOTS) or str(slots_of(context))


def told_slots() -> int:
    """In a planner; 0: not known."""
    told = os.environ.get(SLOTS, "")
    return int(told) if told.isdecimal() else 0


def slots_of(context: SparkContext) -> int:
    """0: not known, as where executors come and go, or each takes all cores of its machine."""
    conf = context.getConf()
    executors, cores, most = (
        int(conf.get(f"spark.{name}", "0") or 0) for name in ("executor.instances", "executor.cores", "cores.max")
    )
    if (context.master or "").startswith("local"):
        found = context.defaultParallelism
    elif conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        found = 0
    else:
        found = executors * cores or most
    return found // int(conf.get("spark.task.cpus", "1") or 1)
