"""The sink as PySpark writers: `write` runs in tasks, `commit` and `abort` in processes that the driver starts."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafscale.errors import ConfigError
from kafscale.v1.storage_pb2 import Stage
from kafscale_spark.compat import StreamArrowWriter
from kafscale_spark.connection import Connection
from kafscale_spark.sink.columns import WrongRows, check_columns
from kafscale_spark.sink.commit import commit, discard
from kafscale_spark.sink.options import SinkOptions
from kafscale_spark.sink.staged import Staged, Target

# Properties that Spark 4.0 to 4.3 passes to the tasks of a micro-batch: the query id of the checkpoint, and its number.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"

Messages = Sequence[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    """A batch write, which commits all of its rows or none."""

    def __init__(self, schema: StructType, overwrite: bool, options: SinkOptions) -> None:
        _check(schema, overwrite, options)
        self._options = options
        self._target = _target(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return _stage_rows(iterator, self._target, self._options)

    def commit(self, messages: Messages) -> None:
        again = (
            "Repeating the write with the same sinkId and epochId is safe, because it is committed once."
            if self._options.sink_id
            else "Its records may exist or still appear; check before you repeat it, or set sinkId and epochId."
        )
        _commit(messages, self._target, self._options, again)

    def abort(self, messages: Messages) -> None:
        _abort(messages, self._options)


class StreamWriter(StreamArrowWriter):
    """A streaming write. Each micro-batch of a query id, or ``sinkId``, is committed once."""

    def __init__(self, schema: StructType, overwrite: bool, options: SinkOptions) -> None:
        super().__init__(schema)
        _check(schema, overwrite, options)
        if options.epoch_id is not None:
            raise WrongRows("epochId is only for batch writes; a stream's epochs are its micro-batches")
        self._options = options

    def write_arrow(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        sink, number = self._options.sink_id or _task_property(_QUERY_ID), _task_property(_BATCH_ID)
        if not sink or not number:
            raise WrongRows("Spark did not pass a query id and a micro-batch number, so this is not a streaming query")
        return _stage_rows(batches, Target(sink, int(number)), self._options)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        targets = {message.target for message in staged}
        if not targets:
            return
        target = targets.pop()
        if targets or target.epoch != batchId:
            raise WrongRows(f"tasks of micro-batch {batchId} staged for {[target, *targets]}")
        again = "Restarting the query is safe, because the micro-batch is committed once."
        _commit(messages, target, self._options, again)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        _abort(messages, self._options)


def _target(options: SinkOptions) -> Target:
    """Return the target of a batch write. Raises ConfigError."""
    if options.sink_id is None and options.epoch_id is None:
        return Target(f"batch-{uuid.uuid4()}", 0, once=True)
    if options.sink_id is None or options.epoch_id is None:
        raise ConfigError(
            "options sinkId and epochId go together for a batch write: a second write with the same values counts as a "
            "repetition of the first"
        )
    return Target(options.sink_id, options.epoch_id)


def _stage_rows(batches: Iterator[pa.RecordBatch], target: Target, options: SinkOptions) -> Staged:
    # Only tasks encode. The processes that create writers and commit need not import the encoder.
    from kafscale_spark.sink.staging import stage_rows  # noqa: PLC0415

    return stage_rows(batches, target, options)


def _task_property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _check(schema: StructType, overwrite: bool, options: SinkOptions) -> None:
    if overwrite:
        raise WrongRows("records are appended to topics; use mode('append') or outputMode('append')")
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, options.topic)


def _commit(messages: Messages, target: Target, options: SinkOptions, again: str) -> None:
    stages = _stages(messages)
    if stages:
        connection = _connection(messages, options)
        commit(connection, target, stages, timeout=options.commit_seconds, again=again)


def _abort(messages: Messages, options: SinkOptions) -> None:
    # Spark also aborts after a failed commit. In that case all tasks' messages are present, and the stages may be
    # committed by now, so they must not be discarded.
    if any(message is None for message in messages):
        discard(_connection(messages, options), _stages(messages))


def _staged(messages: Messages) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _stages(messages: Messages) -> list[Stage]:
    """Return the stages, in the order of the tasks."""
    return [Stage.FromString(stage) for message in _staged(messages) for stage in message.stages]


def _connection(messages: Messages, options: SinkOptions) -> Connection:
    """Return the connection with all instances that tasks know, because the configured ones may be gone."""
    learned = [endpoint for message in _staged(messages) for endpoint in message.endpoints]
    return replace(options.connection, endpoints=tuple(dict.fromkeys([*options.connection.endpoints, *learned])))
