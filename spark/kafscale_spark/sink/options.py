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
    r"kafka\.bootstrap\.servers": "use kafscale.endpoints instead, with the addresses of storage instances",
    r"kafka\.compression\.type": "use compression instead",
    r"kafka\..*": "remove it, because the sink uses no Kafka client",
    "path": "save() and start() take no path; name the topic with the option topic or a column",
}
_KIB, _MIB = 1 << 10, 1 << 20


def _sink_id(text: str) -> str:
    if not paths.is_sink_name(text):
        raise ValueError(f"it has {len(text)} characters, {len(paths.sink_segment(text))} percent-encoded")
    return text


TOPIC: Option[str | None] = Option(
    "topic", optional(TEXT), None, "The topic for all rows. Overrides a `topic` column.", _BOTH
)
SINK_ID: Option[str | None] = Option(
    "sinkId",
    optional(Parser("1 to 200 characters, 255 when percent-encoded", _sink_id)),
    None,
    "The identity of the writer. Each epoch of a sink is committed once, in ascending order. A repeated or earlier "
    "epoch changes nothing. If not set, a stream uses the query id from its checkpoint, and each batch write uses an "
    "id of its own. A batch write with `sinkId` also requires `epochId`. A stream that starts over with another "
    "checkpoint needs another id, because its epochs begin at 0 again.",
    _BOTH,
)
EPOCH_ID: Option[int | None] = Option(
    "epochId",
    optional(integer(0)),
    None,
    "The epoch of this write, such as the batch id in `foreachBatch`. Set both `sinkId` and `epochId`, or neither. A "
    "write that is repeated with the same values is committed only once. Write only once per sink and epoch, because a "
    "second write counts as a repetition.",
    "batch",
)
COMPRESSION = Option(
    "compression",
    choice("topic", "none", "gzip", "snappy", "lz4", "zstd"),
    "topic",
    "The compression of record batches. With `topic`, the topic's `compression.type` applies. If that is `producer`, "
    "batches are not compressed.",
    _BOTH,
    "topic",
)
BATCH_BYTES = Option(
    "batchBytes",
    size(_KIB, 16 * _MIB),
    128 * _KIB,
    "The approximate size, before compression, at which a record batch is closed. The topic's `max.message.bytes` is "
    "also a limit.",
    _BOTH,
    "128KB",
)
STAGE_BYTES = Option(
    "stageBytes",
    size(64 * _KIB, 32 * _MIB),
    8 * _MIB,
    "The batches of a partition are stored as one object when they reach this size. The rest is stored at the end of "
    "the task. This size plus one batch must not exceed KAFSCALE_STAGE_BYTES of the storage instances.",
    _BOTH,
    "8MB",
)
MEMORY_BYTES = Option(
    "memoryBytes",
    size(_MIB, 1024 * _MIB),
    64 * _MIB,
    "The maximum size of the batches of all topics that a task holds. Beyond it, the task stores some batches earlier. "
    "If there are very many partitions, the task needs another 16 KB for each of them. The data of `uploads` calls is "
    "not included.",
    _BOTH,
    "64MB",
)
UPLOADS = Option("uploads", integer(1, 16), 2, "The number of objects that a task stores at the same time.", _BOTH, "2")
COMMIT_TIMEOUT = Option(
    "commitTimeout",
    duration(1, 86_400),
    120.0,
    "How long a commit is retried until its outcome is known, and how long it waits until all partitions show it.",
    _BOTH,
    "120s",
)
CHECKPOINT: Option[str | None] = Option(
    "checkpointLocation", optional(TEXT), None, "Spark's own option: where the query stores its progress.", "streaming"
)
QUERY_NAME: Option[str | None] = Option("queryName", optional(TEXT), None, "Spark's own option.", "streaming")

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
    """The settings of a write, which every task gets. Units are seconds and bytes. None means not set."""

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


def sink_options(texts: Mapping[str, str]) -> SinkOptions:
    """Parse the sink's options. Raises ConfigError, which names the option."""
    options = read_options(SINK_OPTIONS, texts, _KAFKA_HINTS)
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
