"""A driver that copies topics, whose tasks and commits obey orders: to die, or to wait until the driver is killed.

Arguments: Spark's settings as JSON, and a directory. An order is a file there, named after the point at which it is
obeyed. The process that renames the file obeys it. The sink's events are appended to the file ``events`` there.
Commands on standard input and answers are JSON lines.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

import kafscale_spark
from kafscale_spark.sink.options import sink_options
from kafscale_spark.sink.staged import Staged
from kafscale_spark.sink.writer import Messages, StreamWriter
from kafscale_spark.source import KafscaleDataSource

_DIRECTORY = "FAULTS_DIRECTORY"


class Points:
    """The points that the sink passes, and the orders there."""

    def __init__(self) -> None:
        self._directory = Path(os.environ[_DIRECTORY])

    def tell(self, event: str, **what: Any) -> None:
        line = json.dumps({"event": event, "at": time.monotonic(), "pid": os.getpid(), **what}) + "\n"
        file = os.open(self._directory / "events", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def obey(self, point: str, **what: Any) -> None:
        try:
            taken = (self._directory / point).rename(self._directory / f"{point}.taken")
        except FileNotFoundError:
            return
        order = json.loads(taken.read_text())
        self.tell("obeyed", point=point, **what)
        if order["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
        # Wait until the driver is killed. That ends this process too, or leaves it behind to continue later.
        if order["goes_on"]:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        time.sleep(order["seconds"])


class FaultyWriter(StreamWriter):
    def write_arrow(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        points = Points()
        points.obey("task-begins")

        def watched() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield batch
                points.obey("task-stages")

        staged = super().write_arrow(watched())
        points.obey("task-staged")
        return staged

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        points = Points()
        sink = next((message.target.sink for message in messages if isinstance(message, Staged)), "")
        points.obey("commit-before", sink=sink, epoch=batchId)
        points.tell("commits", sink=sink, epoch=batchId)
        super().commit(messages, batchId)
        points.tell("committed", sink=sink, epoch=batchId)
        points.obey("commit-after", sink=sink, epoch=batchId)


class FaultySource(KafscaleDataSource):
    @classmethod
    def name(cls) -> str:
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        return FaultyWriter(schema, overwrite, sink_options(self.options))


def main(settings: str, directory: str) -> None:
    # Answers go to the original standard output. The JVM's output goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ[_DIRECTORY] = directory
    builder = SparkSession.builder
    for name, value in json.loads(settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    kafscale_spark.register(spark)
    spark.dataSource.register(FaultySource)

    def say(**what: Any) -> None:
        print(json.dumps(what), file=answers, flush=True)

    def start(source: dict[str, str], sink: dict[str, str], trigger: dict[str, Any]) -> StreamingQuery:
        read = spark.readStream.format("kafscale").options(**source).load().select("key", "value")
        return read.writeStream.format("faulty").options(**sink).trigger(**trigger).start()

    def await_end(query: StreamingQuery) -> None:
        try:
            query.awaitTermination()
            say(said="ended", error="")
        except Exception as error:  # noqa: BLE001 - the answer says what it was
            say(said="ended", error=f"{type(error).__name__}: {error}")

    say(said="ready")
    query: StreamingQuery | None = None
    for line in sys.stdin:
        command = json.loads(line)
        if command.pop("op") == "stop":
            if query is not None:
                query.stop()
            continue
        try:
            query = start(**command)
        except Exception as error:  # noqa: BLE001 - the answer says what it was
            say(said="ended", error=f"{type(error).__name__}: {error}")
            continue
        threading.Thread(target=await_end, args=[query], daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
