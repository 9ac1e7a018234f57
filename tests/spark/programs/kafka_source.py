"""Spark's own Kafka source and sink, and KafScale's, controlled by JSON lines with one answer each.

Arguments: Spark's settings as JSON, the storage instances' addresses, the brokers' addresses. It runs in the
environment of ``spark40/requirements.lock``.
"""

import base64
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import kafscale_spark

AWAIT_SECONDS = 120
_RECORD = "topic string, partition int, key binary, value binary, headers array<struct<key: string, value: binary>>"


class KafkaSource:
    """``options`` of every command are those of the source or the sink of ``kind``. They may replace addresses."""

    def __init__(self, spark: SparkSession, endpoints: str, bootstrap: str) -> None:
        self._spark = spark
        self._addresses = {
            "kafka": {"kafka.bootstrap.servers": bootstrap},
            "kafscale": {"kafscale.endpoints": endpoints},
        }
        self._queries: dict[str, StreamingQuery] = {}

    def read(self, options: dict[str, str], kind: str = "kafka") -> dict[str, Any]:
        """Return all rows and the number of tasks."""
        frame = self._frame(options, kind)
        rows = [_plain(row.asDict(recursive=True)) for row in frame.collect()]
        return {"rows": rows, "tasks": frame.rdd.getNumPartitions()}

    def count(self, options: dict[str, str], kind: str) -> int:
        return self._frame(options, kind).count()

    def write(
        self, rows: list[dict[str, Any]], columns: list[str], options: dict[str, str], kind: str = "kafka"
    ) -> None:
        """Write ``columns`` of rows. Bytes are base64."""
        records = [
            (
                row.get("topic"),
                row.get("partition"),
                _bytes(row.get("key")),
                _bytes(row.get("value")),
                [(name, _bytes(value)) for name, value in row.get("headers", [])],
            )
            for row in rows
        ]
        frame = self._spark.createDataFrame(records, _RECORD).select(*columns)
        frame.write.format(kind).options(**{**self._addresses[kind], **options}).mode("append").save()

    def start(
        self,
        source: dict[str, str],
        sink: dict[str, str],
        checkpoint: str,
        trigger: dict[str, Any],
        name: str,
        kind: str = "kafka",
    ) -> None:
        """Start a stream from topics to topics, called ``name``.

        The header ``from`` gets the position of the original record.
        """
        read = self._spark.readStream.format(kind).options(**self._addresses[kind], **source).load()
        written = _with_origin(read).writeStream.format(kind).options(**self._addresses[kind], **sink)
        self._queries[name] = written.option("checkpointLocation", checkpoint).trigger(**trigger).start()

    def caught_up(self, name: str) -> list[int]:
        """Wait until all current records are written, and return the rows of each micro-batch."""
        self._queries[name].processAllAvailable()
        return self._batches(name)

    def ended(self, name: str) -> list[int]:
        """Wait until the stream has ended, and return the rows of each micro-batch."""
        if not self._queries[name].awaitTermination(AWAIT_SECONDS):
            raise TimeoutError(f"{name} has not ended within {AWAIT_SECONDS} s")
        return self._batches(name)

    def stop(self, name: str) -> None:
        self._queries.pop(name).stop()

    def version(self) -> str:
        return self._spark.version

    def _batches(self, name: str) -> list[int]:
        return [progress.numInputRows for progress in self._queries[name].recentProgress]

    def _frame(self, options: dict[str, str], kind: str) -> DataFrame:
        return self._spark.read.format(kind).options(**{**self._addresses[kind], **options}).load()


def _with_origin(read: DataFrame) -> DataFrame:
    origin = "concat(topic, '/', cast(partition as string), '/', cast(offset as string))"
    return read.selectExpr(
        "key", "value", f"array(named_struct('key', 'from', 'value', cast({origin} as binary))) headers"
    )


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    headers = row.get("headers")
    return {
        **row,
        "key": _text(row["key"]),
        "value": _text(row["value"]),
        "timestamp": round(row["timestamp"].timestamp() * 1000),
        "headers": headers and [[header["key"], _text(header["value"])] for header in headers],
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def main(settings: str, endpoints: str, bootstrap: str) -> None:
    # Answers go to the original standard output. The JVM's output goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    builder = SparkSession.builder.master("local[2]").appName("kafka-source")
    for name, value in json.loads(settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    kafscale_spark.register(spark)
    source = KafkaSource(spark, endpoints, bootstrap)
    for line in sys.stdin:
        command = json.loads(line)
        call: Callable[..., Any] = getattr(source, command.pop("op"))
        try:
            answer = {"result": call(**command)}
        except Exception as e:  # noqa: BLE001 - the answer says what it was
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
