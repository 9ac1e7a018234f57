"""The sink as pyspark's writers: `write` runs in tasks, `commit` and `abort` in processes that the driver starts."""

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

# What Spark, 4.0 as well as 4.3, tells the tasks of a micro-batch: the id that the checkpoint keeps, and its number.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"

Messages = Sequence[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    """All rows of a batch write become visible at once, or none."""

    def __init__(self, schema: StructType, overwrite: bool, options: SinkOptions) -> None:
        _check(schema, overwrite, options)
        self._options = options
        self._target = _target(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return _stage_rows(iterator, self._target, self._options)

    def commit(self, messages: Messages) -> None:
        again = (
            "Repeating the write with the same sinkId and epochId is safe: it is committed once."
            if self._options.sink_id
            else "It may be there or appear yet: look before repeating it, or give writes a sinkId and an epochId."
        )
        _commit(messages, self._target, self._options, again)

    def abort(self, messages: Messages) -> None:
        _abort(messages, self._options)


class StreamWriter(StreamArrowWriter):
    """Each micro-batch is committed once: by the query's id, or ``sinkId``, and its number."""

    def __init__(self, schema: StructType, overwrite: bool, options: SinkOptions) -> None:
        super().__init__(schema)
        _check(schema, overwrite, options)
        if options.epoch_id is not None:
            raise WrongRows("epochId is for batch writes: a stream's epochs are its micro-batches")
        self._options = options

    def write_arrow(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        sink, number = self._options.sink_id or _told(_QUERY_ID), _told(_BATCH_ID)
        if not sink or not number:
            raise WrongRows("Spark does not tell which micro-batch of which query this is: it is no streaming query")
        return _stage_rows(batches, Target(sink, int(number)), self._options)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        targets = {message.target for message in staged}
        if not targets:
            return
        target = targets.pop()
        if targets or target.epoch != batchId:
            raise WrongRows(f"tasks of micro-batch {batchId} staged for {[target, *targets]}")
        again = "Starting the query again is safe: the micro-batch is committed once."
        _commit(messages, target, self._options, again)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        _abort(messages, self._options)


def _target(options: SinkOptions) -> Target:
    """Of a batch write. Raises ConfigError."""
    if options.sink_id is None and options.epoch_id is None:
        return Target(f"batch-{uuid.uuid4()}", 0, once=True)
    if options.sink_id is None or options.epoch_id is None:
        raise ConfigError(
            "options sinkId and epochId go together for a batch write: an epoch is one of a sink's, and a second write "
            "with the same two is taken for a repetition of the first"
        )
    return Target(options.sink_id, options.epoch_id)


def _stage_rows(batches: Iterator[pa.RecordBatch], target: Target, options: SinkOptions) -> Staged:
    # Tasks alone encode; a writer is made, and commits, in a process of its own each time.
    from kafscale_spark.sink.staging import stage_rows  # noqa: PLC0415

    return stage_rows(batches, target, options)


def _told(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _check(schema: StructType, overwrite: bool, options: SinkOptions) -> None:
    if overwrite:
        raise WrongRows("records are appended to topics: mode('append'), or outputMode('append')")
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, options.topic)


def _commit(messages: Messages, target: Target, options: SinkOptions, again: str) -> None:
    stages = _stages(messages)
    if stages:
        connection = _connection(messages, options)
        commit(connection, target, stages, timeout=options.commit_seconds, again=again)


def _abort(messages: Messages, options: SinkOptions) -> None:
    # Spark aborts after a commit that raised, too, and only then are all tasks' messages here: what was staged may be
    # committed by now, so it has to stay.
    if any(message is None for message in messages):
        discard(_connection(messages, options), _stages(messages))


def _staged(messages: Messages) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _stages(messages: Messages) -> list[Stage]:
    """In the order of the tasks."""
    return [Stage.FromString(stage) for message in _staged(messages) for stage in message.stages]


def _connection(messages: Messages, options: SinkOptions) -> Connection:
    """With all instances that any task knew of, for those that were given may have gone."""
    learnt = [endpoint for message in _staged(messages) for endpoint in message.endpoints]
    return replace(options.connection, endpoints=tuple(dict.fromkeys([*options.connection.endpoints, *learnt])))
