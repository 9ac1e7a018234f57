"""The source as users call it, and its rows in short form."""

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


class Read:
    """`read(subscribe="t")`: options that are not text are passed as JSON, and `stream=True` is `readStream`."""

    def __init__(self, spark: SparkSession, endpoints: str) -> None:
        self._spark = spark
        self.endpoints = endpoints

    def __call__(self, *, schema: StructType | str | None = None, stream: bool = False, **options: Any) -> DataFrame:
        reader: Any = self._spark.readStream if stream else self._spark.read
        reader = reader.format("kafscale").option("kafscale.endpoints", self.endpoints)
        for name, value in options.items():
            reader = reader.option(name, value if isinstance(value, str) else json.dumps(value))
        frame: DataFrame = (reader if schema is None else reader.schema(schema)).load()
        return frame


def offsets(frame: DataFrame) -> dict[int, list[int]]:
    """Return the offsets of each partition, in order."""
    found: dict[int, list[int]] = {}
    for row in frame.select("partition", "offset").collect():
        found.setdefault(row.partition, []).append(row.offset)
    return {number: sorted(each) for number, each in sorted(found.items())}
