"""The columns with Spark's types."""

from collections.abc import Iterable

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafscale.errors import ConfigError
from kafscale_spark.schema import COLUMNS

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}


def spark_schema(columns: Iterable[str]) -> StructType:
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def checked_columns(schema: StructType) -> tuple[str, ...]:
    """Return the columns of a schema, which a user may have passed. Raises ConfigError if they do not match ours."""
    names = schema.fieldNames()
    for field in schema.fields:
        kind = _TYPES.get(field.name)
        if kind is None:
            raise ConfigError(
                f"schema: {field.name!r} is not a column of the source, which has {', '.join(COLUMNS.names)}"
            )
        if field.dataType != kind or not field.nullable:
            raise ConfigError(f"schema: column {field.name} must be a nullable {kind.simpleString()}")
    if len(set(names)) != len(names):
        raise ConfigError(f"schema: duplicate column in {', '.join(names)}")
    return tuple(names)
