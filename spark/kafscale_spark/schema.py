"""The columns of Spark's Kafka source, with its names, types and order, as Arrow types."""

from collections.abc import Iterable

import pyarrow as pa

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TIMESTAMP = pa.timestamp("us", tz="UTC")

COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(HEADER_TYPE)),
    ]
)

_OF_PARTITIONS = {"topic", "partition"}


def only_counted(columns: Iterable[str]) -> bool:
    """Return whether all records of a partition have equal values in these columns, so that a count suffices."""
    return set(columns) <= _OF_PARTITIONS


def schema_of(columns: Iterable[str]) -> pa.Schema:
    """Return the schema of the columns, in this order. Raises ValueError for no, unknown or duplicate names."""
    names = list(columns)
    unknown = [name for name in names if name not in COLUMNS.names]
    if not names or unknown or len(set(names)) != len(names):
        raise ValueError(f"columns {names}: expected one or more of {COLUMNS.names}, each once")
    return pa.schema([COLUMNS.field(name) for name in names])
