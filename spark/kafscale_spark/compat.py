"""All code that depends on the version of pyspark. Tested with 4.3.0 and 4.0.0.

Classes that an older version lacks are defined here, and that version never uses them. The rest of the package is thus
the same for all versions.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import datasource
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:
        from dataclasses import dataclass

        class ReadLimit:
            """The limit of a trigger."""

        @dataclass
        class ReadAllAvailable(ReadLimit):
            """No limit."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """A limit of rows."""

            max_rows: int

        @dataclass
        class ReadMaxBytes(ReadLimit):
            """A limit of bytes."""

            max_bytes: int

        class SupportsTriggerAvailableNow:
            """Marks a source that can stop at the end that the log had when the query began."""


__all__ = [
    "ADMISSION_CONTROL",
    "PUSHDOWN_CONFIG",
    "PUSHED_FILTERS",
    "PushFilters",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "keeps_rows_without_columns",
    "register_source",
]

PUSHED_FILTERS: bool = hasattr(datasource, "Filter")
"""Whether Spark pushes filters to Python sources: since 4.1."""

PUSHDOWN_CONFIG = "spark.sql.python.filterPushdown.enabled"
"""Spark's own setting, without which it pushes no filters."""

ADMISSION_CONTROL: bool = hasattr(datasource.DataSourceStreamReader, "getDefaultReadLimit")
"""Whether Spark passes the start of a micro-batch when it asks for its end, and supports AvailableNow: since 4.2."""


_NO_PUSH_FILTERS: Any = getattr(datasource.DataSourceReader, "pushFilters", None)


class PushFilters:
    """A reader's `pushFilters`, which Spark does not call if the setting is off.

    In that case Spark refuses readers that override the method, which it detects by comparing its ``__func__``.
    """

    __func__ = staticmethod(_NO_PUSH_FILTERS)

    def __init__(self, push: Callable[[list[Any]], list[Any]]) -> None:
        self._push = push

    def __call__(self, filters: list[Any]) -> list[Any]:
        return self._push(filters)


def register_source(spark: "SparkSession", source: type[datasource.DataSource]) -> None:
    """Register a source. If Spark 4.0 has discovered it already, which cannot be replaced, keep that one."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def keeps_rows_without_columns() -> bool:
    """Return whether a RecordBatch without columns reaches Spark with its rows. 4.0 silently loses them."""
    try:
        from pyspark.sql import conversion  # noqa: PLC0415 - slow to import, and only needed without columns

        transformer: Any = vars(conversion)["ArrowBatchTransformer"]
        rows = pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), 1, [None]))
        return bool(transformer.wrap_struct(rows).num_rows == 1)
    except (ImportError, KeyError, AttributeError):
        return False


_ROWS = 10_000

# Streams are written as Arrow batches since 4.1, and as rows before.
_STREAMS_ARE_ARROW = hasattr(datasource, "DataSourceStreamArrowWriter")
_Base: Any = datasource.DataSourceStreamArrowWriter if _STREAMS_ARE_ARROW else datasource.DataSourceStreamWriter


class StreamArrowWriter(_Base):  # type: ignore[misc]
    """A streaming writer that gets Arrow batches from every version."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.write_arrow(iterator if _STREAMS_ARE_ARROW else _batches(iterator, self._schema))

    @abstractmethod
    def write_arrow(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""


def _batches(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    from pyspark.sql.conversion import LocalDataToArrowConversion  # noqa: PLC0415 - slow to import, and unused since 4.1

    while some := list(islice(rows, _ROWS)):
        yield from LocalDataToArrowConversion.convert(some, schema, use_large_var_types=False).to_batches()
