"""``read_topic.py ENDPOINTS TOPIC DIRECTORY``: print rows, the locations of executors, and the number of tasks.

The rows are those of a batch, and those of a stream that uses ``DIRECTORY``. The imported packages are shipped with the
program or installed where it runs.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

import kafscale_spark

_PLACE = "python string, directory string, kafscale string, kafscale_spark string"


def places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add to each row where it is processed: the interpreter, the executor's directory, and the packages'."""
    import kafscale

    modules = [os.path.abspath(str(module.__file__)) for module in (kafscale, kafscale_spark)]
    for batch in batches:
        columns = [pa.array([place] * len(batch)) for place in (sys.executable, os.getcwd(), *modules)]
        names = ["partition", "offset", "value", "python", "directory", "kafscale", "kafscale_spark"]
        yield pa.RecordBatch.from_arrays([*batch.columns, *columns], names)


def main(endpoints: str, topic: str, directory: str) -> None:
    session = SparkSession.builder.getOrCreate()
    kafscale_spark.register(session)
    options = {"kafscale.endpoints": endpoints, "subscribe": topic, "startingOffsets": "earliest"}
    batch = _placed(session.read.format("kafscale").options(**options).load())
    stream = _placed(session.readStream.format("kafscale").options(**options).load())
    written = stream.writeStream.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    written.format("parquet").start(f"{directory}/rows").awaitTermination()
    found = {"batch": batch, "stream": session.read.parquet(f"{directory}/rows")}
    rows = {name: [_plain(row) for row in frame.collect()] for name, frame in found.items()}
    print(json.dumps({**rows, "tasks": batch.rdd.getNumPartitions()}))
    session.stop()


def _placed(read: DataFrame) -> DataFrame:
    rows = read.select("partition", "offset", "value")
    return rows.mapInArrow(places, f"partition int, offset long, value binary, {_PLACE}")


def _plain(row: Row) -> dict[str, Any]:
    return {**row.asDict(), "value": bytes(row.value).decode()}


if __name__ == "__main__":
    main(*sys.argv[1:])
