"""The sink's options."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafscale import paths
from kafscale_spark.connection import CONNECTION_OPTIONS, Connection, connection_of
from kafscale_spark.options import (
    TEXT,
    Option,
    Parser,
    choice,
    duration,
    integer,
    optional,
    read_options,
    size,
)

_BOTH = "batch, streaming"
_KAFKA_HINTS = {
    r"kafka\.bootstrap\.servers": "give kafscale.endpoints instead, the addresses of storage instances",
    r"kafka\.compression\.type": "give compression instead",
    r"kafka\..*": "no Kafka client is used: leave it out",
    "path": "save() and start() take no path: the topic is named by topic, or by a column",
}
_KIB, _MIB = 1 << 10, 1 << 20


def _sink_id(text: str) -> str:
    if not paths.is_sink_name(text):
        raise ValueError(f"it has {len(text)} characters, {len(paths.sink_segment(text))} percent-encoded")
    return text


TOPIC: Option[str | None] = Option(
    "topic", optional(TEXT), None, "Where all rows go, whatever a column `topic` says.", _BOTH
)
SINK_ID: Option[str | None] = Option(
    "sinkId",
    optional(Parser("1 to 200 characters, 255 when percent-encoded", _sink_id)),
    None,
    "Who writes: of one sink each epoch is committed once, in ascending order; a repeated or earlier one changes "
    "nothing. Not given: a stream has the id that its checkpoint gives the query, a batch write one of its own. A "
    "batch write with it needs `epochId` too. A stream that begins anew, with another checkpoint, needs another one: "
    "its epochs begin at 0 again.",
    _BOTH,
)
EPOCH_ID: Option[int | None] = Option(
    "epochId",
    optional(integer(0)),
    None,
    "With `sinkId`, both or none: the epoch that this write is, such as the batch id in `foreachBatch`. The same write "
    "done again is then committed once. One write for each sink and epoch: a second one is taken for a repetition.",
    "batch",
)
COMPRESSION = Option(
    "compression",
    choice("topic", "none", "gzip", "snappy", "lz4", "zstd"),
    "topic",
    "Of record batches. `topic`: as the topic's `compression.type` says, not at all where that is `producer`.",
    _BOTH,
    "topic",
)
BATCH_BYTES = Option(
    "batchBytes",
    size(_KIB, 16 * _MIB),
    128 * _KIB,
    "A record batch is closed at about this size, before compression, or at the topic's `max.message.bytes`.",
    _BOTH,
    "128KB",
)
STAGE_BYTES = Option(
    "stageBytes",
    size(64 * _KIB, 32 * _MIB),
    8 * _MIB,
    "A partition's batches are stored as one object when there is as much, and what is left at the end of the task. "
    "With a batch more it must be within KAFSCALE_STAGE_BYTES of the storage instances.",
    _BOTH,
    "8MB",
)
MEMORY_BYTES = Option(
    "memoryBytes",
    size(_MIB, 1024 * _MIB),
    64 * _MIB,
    "What a task holds of batches of all its topics before it stores some earlier, and 16 KB more for each partition "
    "where there are very many; beside it, what `uploads` calls carry.",
    _BOTH,
    "64MB",
)
UPLOADS = Option("uploads", integer(1, 16), 2, "How many objects a task stores at a time.", _BOTH, "2")
COMMIT_TIMEOUT = Option(
    "commitTimeout",
    duration(1, 86_400),
    120.0,
    "How long a commit is repeated until its outcome is known, and waits until all partitions show it.",
    _BOTH,
    "120s",
)
CHECKPOINT: Option[str | None] = Option(
    "checkpointLocation", optional(TEXT), None, "Spark's own: where the query keeps its progress.", "streaming"
)
QUERY_NAME: Option[str | None] = Option("queryName", optional(TEXT), None, "Spark's own.", "streaming")

SINK_OPTIONS: tuple[Option[Any], ...] = (
    *CONNECTION_OPTIONS,
    TOPIC,
    SINK_ID,
    EPOCH_ID,
    COMPRESSION,
    BATCH_BYTES,
    STAGE_BYTES,
    MEMORY_BYTES,
    UPLOADS,
    COMMIT_TIMEOUT,
    CHECKPOINT,
    QUERY_NAME,
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What was asked for; goes to every task. Seconds and bytes; None: not given."""

    connection: Connection
    topic: str | None = None
    sink_id: str | None = None
    epoch_id: int | None = None
    compression: str = "topic"
    batch_bytes: int = 128 * _KIB
    stage_bytes: int = 8 * _MIB
    memory_bytes: int = 64 * _MIB
    uploads: int = 2
    commit_seconds: float = 120.0


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Raises ConfigError that names the option that is wrong."""
    options = read_options(SINK_OPTIONS, given, _KAFKA_HINTS)
    return SinkOptions(
        connection=connection_of(options),
        topic=options[TOPIC],
        sink_id=options[SINK_ID],
        epoch_id=options[EPOCH_ID],
        compression=options[COMPRESSION],
        batch_bytes=options[BATCH_BYTES],
        stage_bytes=options[STAGE_BYTES],
        memory_bytes=options[MEMORY_BYTES],
        uploads=options[UPLOADS],
        commit_seconds=options[COMMIT_TIMEOUT],
    )
