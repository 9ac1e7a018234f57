"""Where Spark finds the source by itself: it looks for packages that are called pyspark_* and have a DefaultSource."""

from kafscale_spark.source import KafscaleDataSource as DefaultSource

__all__ = ["DefaultSource"]
