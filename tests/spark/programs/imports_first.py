"""A typical program: all imports at the top, then a session, without any registration."""

import json
import sys

from pyspark.sql import SparkSession

import kafscale_spark  # noqa: F401


def main() -> None:
    """Arguments: endpoints, a topic, Spark's settings."""
    endpoints, topic, settings = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]")
    for name, value in json.loads(settings).items():
        builder = builder.config(name, value)
    reader = builder.getOrCreate().read.format("kafscale").option("kafscale.endpoints", endpoints)
    read = reader.option("subscribe", topic).option("columns", "offset").load()
    print(read.where("offset >= 498").count(), read.rdd.getNumPartitions())


if __name__ == "__main__":
    main()
