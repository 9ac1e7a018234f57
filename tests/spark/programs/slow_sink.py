"""``slow_sink.py ENDPOINTS TOPIC INPUT DIRECTORY``: write Parquet as a micro-batch in two tasks, one of them slow.

The first attempt of the first task continues for long after it has staged all its rows. ``DIRECTORY`` gets a file for
each attempt that has staged, and the checkpoint.

The imported packages are shipped with the program or on Python's path.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import kafscale_spark
from kafscale_spark.sink.options import sink_options
from kafscale_spark.sink.staged import Staged
from kafscale_spark.sink.writer import StreamWriter
from kafscale_spark.source import KafscaleDataSource

_MOST_SECONDS = 300.0


def slow_sink(directory: str) -> type[KafscaleDataSource]:
    """The data source `slow`."""

    class Writer(StreamWriter):
        def write_arrow(self, batches: Iterator[pa.RecordBatch]) -> Staged:
            staged = super().write_arrow(batches)
            context = TaskContext.get()
            assert context is not None
            Path(directory, f"{context.partitionId()}-{context.attemptNumber()}").touch()
            until = time.monotonic() + _MOST_SECONDS
            while context.partitionId() == context.attemptNumber() == 0 and time.monotonic() < until:
                time.sleep(0.1)
            return staged

    class Slow(KafscaleDataSource):
        @classmethod
        def name(cls) -> str:
            return "slow"

        def streamWriter(self, schema: StructType, overwrite: bool) -> Writer:  # noqa: N802 - Spark's name
            return Writer(schema, overwrite, sink_options(self.options))

    return Slow


def main(endpoints: str, topic: str, given: str, directory: str) -> None:
    session = SparkSession.builder.getOrCreate()
    kafscale_spark.register(session)
    session.dataSource.register(slow_sink(directory))
    frame = session.readStream.schema("value string").parquet(given).repartition(2)
    writer = frame.writeStream.format("slow").option("kafscale.endpoints", endpoints).option("topic", topic)
    writer = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    writer.start().awaitTermination()
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
