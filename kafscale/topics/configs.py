"""Topic configs: validated when they are set, interpreted when records are appended."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kafscale.errors import KafscaleError
from kafscale.records.batch import BatchHeader
from kafscale.records.codecs import Codec, codec_by_name
from kafscale.records.errors import InvalidTimestamp
from kafscale.topics.definitions import (
    CLEANUP_POLICY,
    COMPACT,
    COMPRESSION_TYPES,
    DEFINITIONS,
    DELETE,
    LONGEST_FLUSH_MS,
    MERGE_ENABLE,
)

_NO_DEFAULTS: Mapping[str, str] = {}
_ANY_AGE = (1 << 63) - 1


class InvalidConfig(KafscaleError):
    """A config has an unknown name or an invalid value. ``name`` is the config's name; the message gives the reason."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def validate(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return the configs in their stored form, in the order of their names. Raises InvalidConfig."""
    checked = {}
    for name, value in sorted(configs.items()):
        definition = DEFINITIONS.get(name)
        if definition is None:
            raise InvalidConfig(name, f"Unknown topic config name: {name}")
        if value is None:
            raise InvalidConfig(name, f"Null value not supported for topic configs: {name}")
        try:
            checked[name] = definition.parse(value.strip())
        except ValueError:
            message = f"Invalid value {value} for configuration {name}: it must be {definition.accepts}"
            raise InvalidConfig(name, message) from None
    return checked


class ClusterDefaults(Protocol):
    """The cluster's defaults for topic configs, from the settings of gateways and storage."""

    @property
    def cleanup_policy(self) -> str: ...
    @property
    def compression_codec(self) -> str: ...
    @property
    def flush_interval_ms(self) -> int: ...
    @property
    def merge(self) -> str: ...
    @property
    def retention_bytes(self) -> int: ...
    @property
    def retention_ms(self) -> int: ...
    @property
    def segment_bytes(self) -> int: ...


def default_values(cluster: ClusterDefaults) -> dict[str, str]:
    """Return the default of every config, which applies if a topic does not set it."""
    return {name: definition.default for name, definition in DEFINITIONS.items()} | {
        CLEANUP_POLICY: cluster.cleanup_policy,
        "compression.type": COMPRESSION_TYPES[cluster.compression_codec],
        "flush.ms": str(cluster.flush_interval_ms),
        MERGE_ENABLE: "true" if cluster.merge == "on" else "false",
        "retention.bytes": str(cluster.retention_bytes),
        "retention.ms": str(cluster.retention_ms),
        "segment.bytes": str(cluster.segment_bytes),
    }


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The effect of a topic's configs on its records."""

    compression: Codec
    """The codec for batches that arrive uncompressed. NONE leaves them uncompressed."""
    max_message_bytes: int
    """The maximum size of a batch as it arrives, in bytes."""
    log_append_time: bool
    """Whether batches are stamped with the time of their append."""
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    """How far a record's timestamp may be before and after the time of its append, unless ``log_append_time``."""
    compacted: bool
    """Whether every record must have a key, because the cleanup policy includes ``compact``."""
    deletes: bool
    """Whether old records may be deleted, because the cleanup policy includes ``delete``."""
    retention_ms: int
    """The maximum age of a segment's newest record. -1 means unlimited, as without ``delete`` in the cleanup policy."""
    retention_bytes: int
    """The oldest segments are deleted while the others have at least this size. -1 means unlimited."""
    segment_bytes: int
    """A write buffer of this size is flushed. Also the size from which older records may be compacted."""
    segment_ms: int
    """The age from which records may be compacted even if fewer bytes follow them."""
    min_cleanable_dirty_ratio: float
    """Compaction begins when the records that it has not seen are more than this share of the log."""
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    """The shortest age of records that are compacted, and the longest of those that are not."""
    delete_retention_ms: int
    """How long tombstones stay after they were compacted first."""
    merges: bool
    """Whether segments are merged, unless the topic is compacted."""
    flush_ms: int
    """A smaller write buffer is flushed this long after the last flush began."""

    @classmethod
    def of(cls, configs: Mapping[str, str], defaults: Mapping[str, str] = _NO_DEFAULTS) -> "TopicConfig":
        """Interpret validated ``configs``. Configs that are not set come from ``defaults``, then from Kafka's."""

        def value(name: str) -> str:
            found = configs.get(name, defaults.get(name))
            return DEFINITIONS[name].default if found is None else found

        def bound(name: str) -> int:
            older = configs.get("message.timestamp.difference.max.ms")
            return int(older if older is not None and name not in configs else value(name))

        flush_ms = int(value("flush.ms"))
        if flush_ms > LONGEST_FLUSH_MS:
            flush_ms = int(defaults.get("flush.ms", LONGEST_FLUSH_MS))
        policy = value(CLEANUP_POLICY).split(",")
        deletes = DELETE in policy
        return cls(
            compression=codec_by_name(value("compression.type")) or Codec.NONE,
            max_message_bytes=int(value("max.message.bytes")),
            log_append_time=value("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms=bound("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=bound("message.timestamp.after.max.ms"),
            compacted=COMPACT in policy,
            deletes=deletes,
            retention_ms=int(value("retention.ms")) if deletes else -1,
            retention_bytes=int(value("retention.bytes")) if deletes else -1,
            segment_bytes=int(value("segment.bytes")),
            segment_ms=int(value("segment.ms")),
            min_cleanable_dirty_ratio=float(value("min.cleanable.dirty.ratio")),
            min_compaction_lag_ms=int(value("min.compaction.lag.ms")),
            max_compaction_lag_ms=int(value("max.compaction.lag.ms")),
            delete_retention_ms=int(value("delete.retention.ms")),
            merges=value(MERGE_ENABLE) == "true",
            flush_ms=flush_ms,
        )

    def check_timestamps(self, header: BatchHeader, now_ms: int) -> None:
        """Check Kafka's bounds of the batch's first and largest timestamp; -1 means none. Raises InvalidTimestamp."""
        if self.log_append_time:
            return
        if header.max_timestamp - now_ms > self.timestamp_after_max_ms:
            raise InvalidTimestamp(f"timestamp {header.max_timestamp} is too far ahead")
        if (
            self.timestamp_before_max_ms < _ANY_AGE
            and header.base_timestamp >= 0
            and now_ms - header.base_timestamp > self.timestamp_before_max_ms
        ):
            raise InvalidTimestamp(f"timestamp {header.base_timestamp} is too far behind")
