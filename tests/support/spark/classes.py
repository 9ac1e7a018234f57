"""A class archive that JVMs share, so that Spark starts and answers its first query in half the time.

`share_classes` creates the archive (Java's CDS, a minute once for each virtual environment, 170 MB there) with a JVM
that runs a little of everything that tests do.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tests.support.spark.session import SHARED_CLASSES, SHARING_JAVA, spark_session

_ROWS = pa.record_batch({"id": [1, 2, 3]})


class _Reader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield _ROWS


class _StreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"at": 0}

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"at": 3}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["at"], end["at"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield _ROWS


class _Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "three"

    def schema(self) -> str:
        return "id bigint"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return _StreamReader()


def share_classes() -> None:
    """Create the archive unless one exists that is not older than this pyspark."""
    if SHARED_CLASSES.exists() and SHARED_CLASSES.stat().st_mtime > Path(pyspark.__file__).stat().st_mtime:
        return
    print(f"archiving the classes of Spark in {SHARED_CLASSES} (a minute) ...", flush=True)
    SHARED_CLASSES.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as name, spark_session(Path(name), SHARING_JAVA) as spark:
        _use(spark, Path(name))


def _use(spark: SparkSession, directory: Path) -> None:
    spark.dataSource.register(_Source)
    read = spark.read.format("three").load()
    read.write.parquet(str(directory / "parquet"))
    parsed = spark.read.parquet(str(directory / "parquet")).selectExpr(
        "id % 2 as k", """from_json('{"a": 1}', 'a int') as parsed"""
    )
    parsed.groupBy("k").count().orderBy("k").collect()
    read.mapInArrow(lambda batches: batches, "id bigint").collect()
    stream = spark.readStream.format("three").load().writeStream.format("noop")
    query = stream.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
