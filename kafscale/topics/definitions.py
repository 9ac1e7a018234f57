"""Topic configs: Kafka's with names, types, defaults and bounds as in Apache Kafka 4.1, and those of KafScale alone.

The table includes configs that 4.0 removed but older clients still send. Configs without an effect are validated as in
Kafka, so that mistakes are reported in the same way.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1
_NO_EFFECT = "Accepted and stored, but has no effect."

MERGE_ENABLE = "kafscale.merge.enable"
CLEANUP_POLICY = "cleanup.policy"
COMPACT, DELETE = "compact", "delete"
"""The values that a cleanup policy may list."""

CLEANUP_POLICIES = (DELETE, COMPACT, f"{COMPACT},{DELETE}", f"{DELETE},{COMPACT}")
"""The allowed values of the cluster's default."""

LONGEST_FLUSH_MS = 10_000
"""The longest time that records of any topic wait to be stored."""


class ConfigType(IntEnum):
    """Kafka's codes of config types, as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Definition:
    """A config. ``parse`` returns the stored form of a value or raises ValueError; ``accepts`` describes valid values.

    ``broker`` is Kafka's name of the broker config that applies if a topic does not set it, or empty.
    ``variable`` is the setting that provides that value here. If empty, it is always the default.
    ``fixed`` is the value in effect regardless of the one that is set. If empty, the one that is set.
    """

    name: str
    type: ConfigType
    default: str
    accepts: str
    parse: Callable[[str], str]
    effect: str
    broker: str = ""
    variable: str = ""
    fixed: str = ""


def _number(
    name: str, type_: ConfigType, default: int, bounds: tuple[int, int], effect: str = _NO_EFFECT
) -> Definition:
    low, high = bounds

    def parse(text: str) -> str:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise ValueError(text)
        return str(int(text))

    accepts = f"a whole number from {low} to {high}"
    return Definition(name, type_, str(default), accepts, parse, effect)


def _int(name: str, default: int, low: int, effect: str = _NO_EFFECT) -> Definition:
    return _number(name, ConfigType.INT, default, (low, _INT_MAX), effect)


def _level(name: str, default: int, low: int, high: int) -> Definition:
    return _number(name, ConfigType.INT, default, (low, high))


def _long(name: str, default: int, low: int, effect: str = _NO_EFFECT) -> Definition:
    return _number(name, ConfigType.LONG, default, (low, _LONG_MAX), effect)


def _boolean(name: str, default: str, effect: str = _NO_EFFECT) -> Definition:
    def parse(text: str) -> str:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower()

    return Definition(name, ConfigType.BOOLEAN, default, "true or false", parse, effect)


def _ratio(name: str, default: str, effect: str) -> Definition:
    def parse(text: str) -> str:
        if not 0 <= float(text) <= 1:
            raise ValueError(text)
        return text

    return Definition(name, ConfigType.DOUBLE, default, "a number from 0 to 1", parse, effect)


def _free(name: str, type_: ConfigType, default: str) -> Definition:
    return Definition(name, type_, default, "text", str, _NO_EFFECT)


def _one_of(name: str, default: str, values: Mapping[str, str], effect: str) -> Definition:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(text)
        return values[text]

    return Definition(name, ConfigType.STRING, default, f"one of {', '.join(values)}", parse, effect)


def _cleanup_policy() -> Definition:
    def parse(text: str) -> str:
        items = [item.strip() for item in text.split(",")]
        if text and not set(items) <= {COMPACT, DELETE}:
            raise ValueError(text)
        return ",".join(items)

    accepts = "a list of compact and delete, or empty"
    effect = (
        "With `compact`, only the last record of each key stays, and every record must have a key. Records without a "
        "key are refused with INVALID_RECORD. Logs are compacted in clusters of state format 3. `retention.ms` and "
        "`retention.bytes` apply only with `delete`. Nothing is removed from topics with an empty list."
    )
    return Definition(CLEANUP_POLICY, ConfigType.LIST, DELETE, accepts, parse, effect)


COMPRESSION_TYPES: Mapping[str, str] = {
    **{name: name for name in ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")},
    "none": "uncompressed",
}
"""Accepted values of compression.type, and the stored form of each."""
_TIMESTAMP_TYPES = {name: name for name in ("CreateTime", "LogAppendTime")}
_THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")

_TABLE = (
    _cleanup_policy(),
    _one_of(
        "compression.type",
        "producer",
        COMPRESSION_TYPES,
        "The codec for batches that arrive uncompressed. They are compressed if that makes them smaller. Batches that "
        "arrive compressed are not changed. `producer` and `uncompressed` (or `none`) compress nothing.",
    ),
    _level("compression.gzip.level", -1, -1, 9),
    _level("compression.lz4.level", 9, 1, 17),
    _level("compression.zstd.level", 3, -131072, 22),
    _long(
        "delete.retention.ms",
        86_400_000,
        0,
        "How long tombstones stay after they were compacted first. KAFSCALE_REWRITE_GRACE_MS and an hour are added, so "
        "that no reader misses one.",
    ),
    _long("file.delete.delay.ms", 60_000, 0),
    _long("flush.messages", _LONG_MAX, 1),
    _long(
        "flush.ms",
        _LONG_MAX,
        0,
        "The longest time that records wait for an object of the intake. Also the shortest time between flushes of a "
        "buffer that is not full, unless KAFSCALE_SEGMENT_INTERVAL_MS is longer. Without intakes (state format 1), "
        f"producers with acks=all wait for these flushes. A value above {LONGEST_FLUSH_MS}, such as Kafka's default, "
        "counts as not set, because clients would time out.",
    ),
    *(_free(name, ConfigType.LIST, "") for name in _THROTTLED),
    _int("index.interval.bytes", 4096, 0),
    _boolean(
        MERGE_ENABLE,
        "false",
        "Whether the segments of the topic are merged into larger objects. Apache Kafka does not have this config. It "
        "has no effect on compacted topics. What was merged before stays merged if it is set to false.",
    ),
    _long("local.retention.bytes", -2, -2),
    _long("local.retention.ms", -2, -2),
    _long("max.compaction.lag.ms", _LONG_MAX, 1, "Compaction begins when uncompacted records have this age."),
    _int(
        "max.message.bytes",
        1_048_588,
        0,
        "The maximum size of a batch in bytes, as it arrives. Larger batches are refused.",
    ),
    _boolean("message.downconversion.enable", "true"),
    _free("message.format.version", ConfigType.STRING, "3.0-IV1"),
    _long(
        "message.timestamp.after.max.ms",
        3_600_000,
        0,
        "How far a record's timestamp may be ahead of the broker's clock, with message.timestamp.type=CreateTime.",
    ),
    _long(
        "message.timestamp.before.max.ms",
        _LONG_MAX,
        0,
        "How far a record's timestamp may be behind the broker's clock, with message.timestamp.type=CreateTime.",
    ),
    _long(
        "message.timestamp.difference.max.ms",
        _LONG_MAX,
        0,
        "Replaces message.timestamp.after.max.ms and message.timestamp.before.max.ms if they are not set (Kafka before "
        "4.0).",
    ),
    _one_of(
        "message.timestamp.type",
        "CreateTime",
        _TIMESTAMP_TYPES,
        "With LogAppendTime, the timestamp of batches is the broker's time.",
    ),
    _ratio(
        "min.cleanable.dirty.ratio",
        "0.5",
        "Compaction begins when the uncompacted part of the log is larger than this share of it.",
    ),
    _long("min.compaction.lag.ms", 0, 0, "Records that are younger are not compacted."),
    _int(
        "min.insync.replicas",
        1,
        1,
        "Accepted and stored for tools that set it together with a replication factor, but without effect. Clients see "
        "one replica, because the object store keeps the copies. Requests with acks=all are answered when the records "
        "are in the object store, and never fail with NOT_ENOUGH_REPLICAS because of this config. DescribeConfigs "
        "reports the effective value, 1, and the value that was set as a synonym, so that tools do not list partitions "
        "with one replica as under min ISR. Tools that compare their configuration with DescribeConfigs (topicctl, "
        "Terraform) set any other value again at each run.",
    ),
    _boolean("preallocate", "false"),
    _boolean("remote.log.copy.disable", "false"),
    _boolean("remote.log.delete.on.disable", "false"),
    _boolean("remote.storage.enable", "false"),
    _long(
        "retention.bytes",
        -1,
        -1,
        "The oldest segments are deleted while the partition is at least this large without them.",
    ),
    _long(
        "retention.ms",
        604_800_000,
        -1,
        "The oldest segments are deleted when all their records are older than this. For segments without timestamps, "
        "the time of their creation is used.",
    ),
    _int(
        "segment.bytes",
        1_073_741_824,
        1_048_576,
        "A buffer is stored as a segment when it reaches this size, or a quarter of KAFSCALE_PARTITION_BUFFER_BYTES if "
        "that is smaller.",
    ),
    _int("segment.index.bytes", 10_485_760, 4),
    _long("segment.jitter.ms", 0, 0),
    _long(
        "segment.ms",
        604_800_000,
        1,
        "Records are compacted when they are older, or when about segment.bytes were written after them.",
    ),
    _boolean("unclean.leader.election.enable", "false"),
)

_BROKER = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    MERGE_ENABLE: "kafscale.log.merge.enable",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.downconversion.enable": "log.message.downconversion.enable",
    "message.format.version": "log.message.format.version",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms": "log.message.timestamp.difference.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
_VARIABLES = {
    "cleanup.policy": "KAFSCALE_CLEANUP_POLICY",
    "compression.type": "KAFSCALE_COMPRESSION_CODEC",
    "flush.ms": "KAFSCALE_FLUSH_INTERVAL_MS",
    MERGE_ENABLE: "KAFSCALE_MERGE",
    "retention.bytes": "KAFSCALE_RETENTION_BYTES",
    "retention.ms": "KAFSCALE_RETENTION_MS",
    "segment.bytes": "KAFSCALE_SEGMENT_BYTES",
}
_FIXED = {"min.insync.replicas": "1"}

DEFINITIONS: Mapping[str, Definition] = {
    definition.name: replace(
        definition,
        broker=_BROKER.get(definition.name, ""),
        variable=_VARIABLES.get(definition.name, ""),
        fixed=_FIXED.get(definition.name, ""),
    )
    for definition in _TABLE
}
"""All configs by name."""
