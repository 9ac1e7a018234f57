"""The columns that the sink takes, as Spark's Kafka sink has them, and rows by topic in one form for the encoder."""

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
_NO_MOMENT = "it names no moment without a time zone; cast it to timestamp, which takes it for one of the session's"
ENCODED = pa.schema([COLUMNS.field(name) for name in ("key", "value", "partition", "timestamp", "headers")])
"""What the encoder is given, of these those columns that there are."""


class WrongRows(KafscaleError):
    """Columns or rows that the sink cannot take; the words are those of Spark's Kafka sink where it has any."""


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """``types``: Spark's names of the columns' types. ``topic``: the option. Raises WrongRows.

    Other columns than those in `TAKEN` are passed over, as Spark's Kafka sink does.
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
            why = _NO_MOMENT if naive else f"it has to be {' or '.join(known)}"
            raise WrongRows(f"{name} attribute unsupported type {found}: {why}")


def rows_by_topic(rows: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in their order, with the columns of `ENCODED`. Raises WrongRows for a null topic."""
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
    """Spark's types vary: strings or bytes, large or not, any time zone; a header's fields in either nullability."""
    return column if column.type == kind else column.cast(kind)
