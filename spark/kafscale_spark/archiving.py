"""The columns of an archive: the records of topics, with the day and the hour of their event time."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

RAW, STRING, JSON = "raw", "string", "json"
FORMATS = (RAW, STRING, JSON)
PARTITIONED_BY = ("topic", "date", "hour")
_WRONG = "_wrong"
_PARSED = "data"


@dataclass(frozen=True, slots=True)
class Form:
    """How values are archived.

    ``format`` is ``raw`` for bytes, ``string`` for text, or ``json`` for the fields of ``schema`` (DDL) in a column
    ``data``, which is null for records without a value. A value that does not match the schema makes a bad record.
    ``event_time`` is a SQL expression; if it is null, the record's timestamp is used.
    """

    format: str
    schema: str = ""
    event_time: str = "timestamp"

    def archived(self, records: DataFrame) -> DataFrame:
        """Return the archive's rows of good records, including the columns by which it is partitioned."""
        frame = self.parsed(records)
        if self.format == JSON:
            frame = frame.filter(~is_bad()).withColumn(_PARSED, f.col(_PARSED).dropFields(_WRONG)).drop("value")
        at = f.coalesce(f.expr(self.event_time).cast("timestamp"), f.col("timestamp"))
        return frame.withColumn("date", f.to_date(at)).withColumn("hour", f.hour(at))

    def bad(self, records: DataFrame) -> DataFrame:
        """Return rows for a dead-letter topic: the bad records unchanged, with headers for their position."""
        frame = self.parsed(records).filter(is_bad())
        places = {"topic": "topic", "partition": "partition", "offset": "offset"}
        header = [
            f.struct(f.lit(f"kafscale.{name}").alias("key"), f.col(column).cast("string").cast("binary").alias("value"))
            for name, column in places.items()
        ]
        headers = f.concat(
            f.coalesce(f.col("headers"), f.array().cast(records.schema["headers"].dataType)), f.array(*header)
        )
        return frame.select("key", "value", "timestamp", headers.alias("headers"))

    def parsed(self, records: DataFrame) -> DataFrame:
        """Return the records with values in the archive's format, including the bad ones."""
        if self.format == RAW:
            return records
        if self.format == STRING:
            return records.withColumn("value", f.col("value").cast("string"))
        schema = f"{self.schema}, {_WRONG} string"
        how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _WRONG}
        return records.withColumn(_PARSED, f.from_json(f.col("value").cast("string"), schema, how))


def is_bad() -> Column:
    """Return whether a parsed record has a value that does not match the schema."""
    wrong = f.col(_PARSED).isNull() | f.col(f"{_PARSED}.{_WRONG}").isNotNull()
    return f.col("value").isNotNull() & wrong
