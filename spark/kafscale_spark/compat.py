"""Where the versions of pyspark differ, and nowhere else. Tested with 4.3.0 and 4.0.0.

What an older version lacks stands here as a class of ours that nothing of that version's knows, so that the rest of
the package has one text for all versions.
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
            """How much a trigger reads."""

        @dataclass
        class ReadAllAvailable(ReadLimit):
            """All that is there."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """So many rows."""

            max_rows: int

        @dataclass
        class ReadMaxBytes(ReadLimit):
            """So many bytes."""

            max_bytes: int

        class SupportsTriggerAvailableNow:
            """That the source stops where the log ended when the query began."""


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
"""Spark hands filters to Python sources: since 4.1."""

PUSHDOWN_CONFIG = "spark.sql.python.filterPushdown.enabled"
"""Spark's own setting, without which no reader is given filters."""

ADMISSION_CONTROL: bool = hasattr(datasource.DataSourceStreamReader, "getDefaultReadLimit")
"""Spark says where a micro-batch begins when it asks where it ends, and knows AvailableNow: since 4.2."""


_NO_PUSH_FILTERS: Any = getattr(datasource.DataSourceReader, "pushFilters", None)


class PushFilters:
    """A reader's `pushFilters`, which where that setting is off is not called.

    Spark refuses a reader that has one of its own then, and knows it by what stands below the method.
    """

    __func__ = staticmethod(_NO_PUSH_FILTERS)

    def __init__(self, push: Callable[[list[Any]], list[Any]]) -> None:
        self._push = push

    def __call__(self, filters: list[Any]) -> list[Any]:
        return self._push(filters)


def register_source(spark: "SparkSession", source: type[datasource.DataSource]) -> None:
    """Make a source known to a session, also where Spark has found it by itself: 4.0 lets nobody replace that."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def keeps_rows_without_columns() -> bool:
    """Whether a RecordBatch of no columns reaches Spark with its rows: 4.0 loses them in silence."""
    try:
        from pyspark.sql import conversion  # noqa: PLC0415 - slow to import, and only wanted for no columns

        transformer: Any = vars(conversion)["ArrowBatchTransformer"]
        rows = pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), 1, [None]))
        return bool(transformer.wrap_struct(rows).num_rows == 1)
    except (ImportError, KeyError, AttributeError):
        return False


_ROWS = 10_000

# Since 4.1 streams are written as Arrow batches; before, as rows.
_STREAMS_ARE_ARROW = hasattr(datasource, "DataSourceStreamArrowWriter")
_Base: Any = datasource.DataSourceStreamArrowWriter if _STREAMS_ARE_ARROW else datasource.DataSourceStreamWriter


class StreamArrowWriter(_Base):  # type: ignore[misc]
    """A streaming writer that is given Arrow batches by every version."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.write_arrow(iterator if _STREAMS_ARE_ARROW else _batches(iterator, self._schema))

    @abstractmethod
    def write_arrow(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """A task's work."""


def _batches(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    from pyspark.sql.conversion import LocalDataToArrowConversion  # noqa: PLC0415 - slow to import, and not for new ones

    while some := list(islice(rows, _ROWS)):
        yield from LocalDataToArrowConversion.convert(some, schema, use_large_var_types=False).to_batches()
