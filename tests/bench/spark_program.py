"""The Spark program of `spark_compare`: it reads JSON lines and answers each with the seconds that it took.

Its arguments are Spark's settings as JSON, the brokers of Apache Kafka, and KafScale's storage. It runs in the
environment of ``tests/spark/spark40``.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import kafscale_spark
from kafscale_spark.schema import schema_of
from kafscale_spark.types import spark_schema

JSON_SCHEMA = "id long, level string"
_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
# The size of a RecordBatch, like those of our source.
_ROWS, _BATCH_BYTES = 1 << 16, 8 << 20
# The number of concurrent tasks, like our source has for this much data.
_TASKS = 2


class Memory(DataSource):
    """A source that returns the same RecordBatch repeatedly, the lower bound of all sources in Python.

    ``subscribe`` is the number of records and their size, such as 1200000x1000. ``columns`` is as in our source.
    """

    @classmethod
    def name(cls) -> str:
        return "memory"

    def schema(self) -> StructType:
        columns = self.options.get("columns")
        return spark_schema(columns.split(",") if columns else _COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        records, _, record_bytes = self.options["subscribe"].partition("x")
        return MemoryReader(int(records), int(record_bytes), schema.fieldNames())


class MemoryReader(DataSourceReader):
    """Tasks of equal size."""

    def __init__(self, records: int, record_bytes: int, columns: list[str]) -> None:
        self._records = records
        self._record_bytes = record_bytes
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._records * (n + 1) // _TASKS - self._records * n // _TASKS) for n in range(_TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        values = {"value": bytes(self._record_bytes), "topic": "memory", "partition": 0, "offset": 0, "timestamp": 0}
        rows, left = min(_ROWS, _BATCH_BYTES // self._record_bytes), partition.value
        schema = schema_of(self._columns)
        columns = [pa.repeat(pa.scalar(values.get(field.name), field.type), rows) for field in schema]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        while left > 0:
            yield batch.slice(0, min(rows, left))
            left -= rows


class Sources:
    """Spark's own Kafka source and sink on Apache Kafka ("kafka"), ours ("kafscale"), and "memory"."""

    def __init__(self, spark: SparkSession, bootstrap: str, endpoints: str) -> None:
        self._spark = spark
        self._where = {"kafka": {"kafka.bootstrap.servers": bootstrap}, "kafscale": {"kafscale.endpoints": endpoints}}

    def count(self, source: str, topic: str) -> int:
        # Spark 4.0 loses rows without columns.
        return self._read(source, topic, "partition").count()

    def sum(self, source: str, topic: str) -> int:
        rows = self._read(source, topic, "value").selectExpr("count(value)", "sum(length(value))").collect()
        return int(rows[0][0])

    def scan(self, source: str, topic: str) -> int:
        """Read all columns into a sink that discards them."""
        self._read(source, topic, None).write.format("noop").mode("overwrite").save()
        return -1

    def json(self, source: str, topic: str) -> int:
        parsed = f"from_json(cast(value as string), '{JSON_SCHEMA}') as parsed"
        rows = self._read(source, topic, "value").selectExpr(parsed).where("parsed.level = 'error'")
        rows.selectExpr("count(parsed.id)").collect()
        return -1

    def write(self, source: str, topic: str, records: int, record_bytes: int) -> int:
        """Write records with keys and values that the JVM generates."""
        value = f"rpad(cast(id as string), {record_bytes - 8}, '.') as value"
        rows = self._spark.range(0, records, 1, 2).selectExpr("lpad(cast(id as string), 8, '0') as key", value)
        rows.write.format(source).options(**self._where[source], topic=topic).mode("append").save()
        return records

    def _read(self, source: str, topic: str, columns: str | None) -> DataFrame:
        reader = self._spark.read.format(source).options(**self._where.get(source, {}), subscribe=topic)
        if source != "kafka" and columns is not None:
            reader = reader.option("columns", columns)
        return reader.load()


def main(settings: str, bootstrap: str, endpoints: str) -> None:
    """Answer lines until the input ends."""
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in json.loads(settings).items():
        builder = builder.config(name, value)
    # Standard output is only for answers. Redirect the output of Spark's launcher to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = builder.getOrCreate()
    kafscale_spark.register(spark)
    spark.dataSource.register(Memory)
    sources = Sources(spark, bootstrap, endpoints)
    for line in sys.stdin:
        question = json.loads(line)
        measure: Callable[..., int] = getattr(sources, question.pop("measure"))
        started = time.perf_counter()
        rows = measure(**question)
        print(json.dumps({"seconds": time.perf_counter() - started, "rows": rows}), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
