"""Lets Spark discover the source: it searches for packages named pyspark_* that have a DefaultSource."""

from kafscale_spark.source import KafscaleDataSource as DefaultSource

__all__ = ["DefaultSource"]
