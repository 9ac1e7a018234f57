"""Checks the sink's columns, which are those of Spark's Kafka sink, and converts rows by topic for the encoder."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafscale.errors import KafscaleError
from kafscale_spark.schema import COLUMNS

_TYPES: Mapping[str, tuple[str, ...]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
TAKEN = tuple(_TYPES)
_NO_TIME_ZONE = "it has no time zone; cast it to timestamp, which interprets it in the session's time zone"
ENCODED = pa.schema([COLUMNS.field(name) for name in ("key", "value", "partition", "timestamp", "headers")])
"""The columns that the encoder gets, if they exist."""


class WrongRows(KafscaleError):
    """The sink cannot write these columns or rows. Messages are those of Spark's Kafka sink if it has one."""


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """Check Spark's names of the columns' types. ``topic`` is the option. Raises WrongRows.

    Columns that are not in `TAKEN` are ignored, as by Spark's Kafka sink.
    """
    if "value" not in types:
        raise WrongRows("Required attribute 'value' not found")
    if topic is None and "topic" not in types:
        raise WrongRows(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    for name, known in _TYPES.items():
        found = types.get(name, known[0])
        if found not in known:
            naive = (name, found) == ("timestamp", "timestamp_ntz")
            why = _NO_TIME_ZONE if naive else f"it must be {' or '.join(known)}"
            raise WrongRows(f"{name} attribute unsupported type {found}: {why}")


def rows_by_topic(rows: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each topic, in order, with the columns of `ENCODED`. Raises WrongRows for a null topic."""
    encodable = _encodable(rows)
    if topic is not None:
        yield topic, encodable
        return
    topics = rows.column("topic")
    if topics.null_count:
        raise WrongRows("null topic present in the data. Use the topic option for setting a topic.")
    names = pc.unique(topics).to_pylist()
    for name in names:
        yield name, encodable if len(names) == 1 else encodable.filter(pc.equal(topics, name))


def _encodable(rows: pa.RecordBatch) -> pa.RecordBatch:
    fields = [field for field in ENCODED if field.name in rows.schema.names]
    arrays = [_cast(rows.column(field.name), field.type) for field in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _cast(column: pa.Array, kind: Any) -> pa.Array:
    """Cast to one type. Spark's vary: string or binary, large or not, any time zone, nullable header fields or not."""
    return column if column.type == kind else column.cast(kind)
