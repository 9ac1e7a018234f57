"""The columns of an archive: records as they are in the topics, by the day and the hour of their event time."""

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

    ``raw``: bytes. ``string``: text. ``json``: the fields that ``schema`` (DDL) names, in a column ``data``; records
    without a value have none, and what does not fit the schema is a bad record. ``event_time``: a SQL expression; null:
    the record's timestamp.
    """

    format: str
    schema: str = ""
    event_time: str = "timestamp"

    def archived(self, records: DataFrame) -> DataFrame:
        """The archive's rows of good records, with the columns that it is partitioned by."""
        frame = self.parsed(records)
        if self.format == JSON:
            frame = frame.filter(~is_bad()).withColumn(_PARSED, f.col(_PARSED).dropFields(_WRONG)).drop("value")
        at = f.coalesce(f.expr(self.event_time).cast("timestamp"), f.col("timestamp"))
        return frame.withColumn("date", f.to_date(at)).withColumn("hour", f.hour(at))

    def bad(self, records: DataFrame) -> DataFrame:
        """Rows for a dead-letter topic: the bad records as they are, with where they were among their headers."""
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
        """Values as they are to be; of json, those that are bad too."""
        if self.format == RAW:
            return records
        if self.format == STRING:
            return records.withColumn("value", f.col("value").cast("string"))
        schema = f"{self.schema}, {_WRONG} string"
        how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _WRONG}
        return records.withColumn(_PARSED, f.from_json(f.col("value").cast("string"), schema, how))


def is_bad() -> Column:
    """Of parsed records: there is a value, and it is not what the schema says."""
    wrong = f.col(_PARSED).isNull() | f.col(f"{_PARSED}.{_WRONG}").isNotNull()
    return f.col("value").isNotNull() & wrong
