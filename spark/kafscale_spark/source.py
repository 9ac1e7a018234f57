"""The data source `kafscale` of PySpark, which reads and writes topics through the storage service."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from kafscale.errors import ConfigError
from kafscale_spark.client import Client
from kafscale_spark.compat import (
    ADMISSION_CONTROL,
    PUSHED_FILTERS,
    PushFilters,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    keeps_rows_without_columns,
)
from kafscale_spark.filters import Pushed, push
from kafscale_spark.planning import Split, plan_batch
from kafscale_spark.rates import Rates
from kafscale_spark.schema import only_counted
from kafscale_spark.sink.options import sink_options
from kafscale_spark.sink.writer import BatchWriter, StreamWriter
from kafscale_spark.source_options import (
    PUSH_DOWN_FILTERS,
    SourceSettings,
    batch_settings,
    columns_of,
    source_options,
    stream_settings,
)
from kafscale_spark.stream import Stream
from kafscale_spark.stream_offsets import StreamOffsets, parse_offsets
from kafscale_spark.types import checked_columns, spark_schema
from kafscale_spark.workers import begin_task


class KafscaleDataSource(DataSource):
    """`spark.read.format("kafscale")`, and `readStream`, `write`, `writeStream`; see docs/spark/tutorial.md."""

    @classmethod
    def name(cls) -> str:
        return "kafscale"

    def schema(self) -> StructType:
        begin_task()
        return spark_schema(columns_of(source_options(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        begin_task()
        options = source_options(self.options)
        reader = FilteringReader if PUSHED_FILTERS and options[PUSH_DOWN_FILTERS] else BatchReader
        return reader(batch_settings(options), _columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        settings = stream_settings(source_options(self.options))
        reader = StreamReader if ADMISSION_CONTROL else UnaskedStreamReader
        return reader(settings, _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(schema, overwrite, sink_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        return StreamWriter(schema, overwrite, sink_options(self.options))


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, settings: SourceSettings, columns: tuple[str, ...]) -> None:
        self._settings = settings
        self._columns = columns
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        with Client(self._settings.connection) as client:
            # Without partitions Spark makes one task with no partition, which `read` recognizes.
            return plan_batch(client, self._settings, self._pushed, counted=only_counted(self._columns))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        pushed = self._pushed
        return _read(self._settings, self._columns, partition, pushed.since_ms, pushed.until_ms)


class FilteringReader(BatchReader):
    """A `BatchReader` that accepts filters, which Spark pushes only if its own setting allows it."""

    @property
    def pushFilters(self) -> PushFilters:  # noqa: N802 - Spark's name
        return PushFilters(self._push)

    def _push(self, filters: list[Any]) -> list[Any]:
        self._pushed, remaining = push(filters)
        return remaining


class _StreamReader(DataSourceStreamReader):
    """The methods that all versions of Spark call on a stream."""

    def __init__(self, settings: SourceSettings, columns: tuple[str, ...]) -> None:
        self._settings = settings
        self._columns = columns
        self._stream = Stream(settings)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._stream.initial().json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        return self._stream.partitions(parse_offsets(start), parse_offsets(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._settings, self._columns, partition, None, None)


class StreamReader(_StreamReader, SupportsTriggerAvailableNow):
    """For versions of Spark that pass the start of a trigger when they ask for its end."""

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._stream.latest(parse_offsets(start), self._rates(limit)).json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        rates = self._settings.rates
        if rates.max_offsets is not None or rates.min_offsets is not None:
            return ReadMaxRows(rates.max_offsets or 2**63 - 1)
        return ReadAllAvailable() if rates.max_bytes is None else ReadMaxBytes(rates.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._stream.stop_here()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return None if self._stream.newest is None else self._stream.newest.json()

    def _rates(self, limit: ReadLimit) -> Rates:
        """Return all configured limits, of which Spark passes only one; none if Spark reads all that is available."""
        return Rates() if isinstance(limit, ReadAllAvailable) else self._settings.rates


class UnaskedStreamReader(_StreamReader):
    """For versions of Spark that ask only for the end of the log. Limits apply from the end of the last trigger.

    They ask before they pass the start of the query, so the first trigger of each run has no limits.
    """

    def __init__(self, settings: SourceSettings, columns: tuple[str, ...]) -> None:
        super().__init__(settings, columns)
        self._reached: StreamOffsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        self._reached = self._stream.initial()
        return self._reached.json()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - Spark's name
        rates = Rates() if self._reached is None else self._settings.rates
        return self._stream.latest(self._reached or StreamOffsets(), rates).json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        self._reached = parse_offsets(end)
        return super().partitions(start, end)

    def commit(self, end: Mapping[str, Any]) -> None:
        self._reached = parse_offsets(end)


def _columns(schema: StructType) -> tuple[str, ...]:
    columns = checked_columns(schema)
    if not columns and not keeps_rows_without_columns():
        raise ConfigError("this pyspark loses rows that have no columns; count with the option columns=partition")
    return columns


def _read(
    settings: SourceSettings,
    columns: tuple[str, ...],
    partition: InputPartition,
    since_ms: int | None,
    until_ms: int | None,
) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, Split):
        return iter(())
    # Imported in tasks only, because the decoder is slow to import.
    from kafscale_spark.reading import Reading, read_split  # noqa: PLC0415

    reading = Reading(
        settings.connection, columns, settings.fail_on_data_loss, settings.piece_bytes, since_ms, until_ms
    )
    return read_split(reading, partition)
