"""The source's options: their table, from which the reference is generated, and the settings of a query."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafscale.errors import ConfigError
from kafscale_spark.connection import CONNECTION_OPTIONS, Connection, connection_of
from kafscale_spark.edges import EARLIEST, LATEST, Edge, assigned, offsets_parser, timestamp_parser, timestamps_parser
from kafscale_spark.options import (
    BOOLEAN,
    Option,
    Options,
    Parser,
    choice,
    duration,
    integer,
    optional,
    read_options,
    size,
)
from kafscale_spark.rates import Rates
from kafscale_spark.schema import COLUMNS
from kafscale_spark.subscription import Subscription, java_pattern, one_of, topic_names

_MIB = 1 << 20
_BOTH, _BATCH, _STREAMING = "batch, streaming", "batch", "streaming"


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = [name for name in names if name not in COLUMNS.names]
    if unknown or len(set(names)) != len(names):
        raise ValueError(f"{unknown[0]} is not a column" if unknown else "a column is named twice")
    return names


SUBSCRIBE: Option[Subscription | None] = Option(
    "subscribe",
    Parser("names separated by commas", lambda text: Subscription(topics=topic_names(text))),
    None,
    "The topics to read. Set exactly one of `subscribe`, `subscribePattern` and `assign`.",
    _BOTH,
)
SUBSCRIBE_PATTERN: Option[Subscription | None] = Option(
    "subscribePattern",
    Parser("a regular expression", lambda text: Subscription(pattern=java_pattern(text))),
    None,
    "The topics whose name contains a match, including topics that are created later. For example, `^orders$` matches "
    "a single topic. The syntax is that of Python's re. Java's `\\p{...}` and `&&` in character classes are refused.",
    _BOTH,
)
ASSIGN: Option[Subscription | None] = Option(
    "assign",
    Parser('JSON such as `{"topic":[0,1]}`', lambda text: Subscription(partitions=assigned(text))),
    None,
    "The partitions to read.",
    _BOTH,
)
STARTING_OFFSETS: Option[Edge | None] = Option(
    "startingOffsets",
    optional(offsets_parser("startingOffsets")),
    None,
    "Where reading begins. The default is `earliest` for a batch and `latest` for a stream. A stream with a checkpoint "
    "continues from the checkpoint. It reads new partitions from their beginning. A batch cannot begin at latest.",
    _BOTH,
)
ENDING_OFFSETS: Option[Edge | None] = Option(
    "endingOffsets",
    optional(offsets_parser("endingOffsets")),
    None,
    "Where reading ends. This offset itself is not read. The default is `latest`. A batch cannot end at earliest.",
    _BATCH,
)
STARTING_TIMESTAMP = Option(
    "startingTimestamp",
    timestamp_parser("startingTimestamp"),
    None,
    "In each partition, begin at the first record with this timestamp or a later one. Takes precedence over "
    "`startingOffsetsByTimestamp`, which takes precedence over `startingOffsets`.",
    _BOTH,
)
ENDING_TIMESTAMP = Option(
    "endingTimestamp",
    timestamp_parser("endingTimestamp"),
    None,
    "In each partition, end before the first record with this timestamp or a later one, or at the latest offset if "
    "there is none. Takes precedence over `endingOffsetsByTimestamp`, which takes precedence over `endingOffsets`.",
    _BATCH,
)
STARTING_OFFSETS_BY_TIMESTAMP = Option(
    "startingOffsetsByTimestamp",
    timestamps_parser("startingOffsetsByTimestamp"),
    None,
    "The same as `startingTimestamp`, with a timestamp for each partition.",
    _BOTH,
)
ENDING_OFFSETS_BY_TIMESTAMP = Option(
    "endingOffsetsByTimestamp",
    timestamps_parser("endingOffsetsByTimestamp"),
    None,
    "The same as `endingTimestamp`, with a timestamp for each partition.",
    _BATCH,
)
STRATEGY = Option(
    "startingOffsetsByTimestampStrategy",
    choice("error", "latest"),
    "error",
    "What to do if no record has the starting timestamp or a later one: fail, or begin at the latest offset.",
    _BOTH,
    "error",
)
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    BOOLEAN,
    True,
    "Whether to fail if records that should be read no longer exist, because of retention or because a topic was "
    "deleted or recreated. If false, a warning is logged and the remaining records are read. Damaged objects always "
    "cause a failure.",
    _BOTH,
    "true",
)
INCLUDE_HEADERS = Option(
    "includeHeaders", BOOLEAN, False, "Whether the result has a column of headers.", _BOTH, "false"
)
COLUMNS_OPTION: Option[tuple[str, ...] | None] = Option(
    "columns",
    Parser("names separated by commas, or nothing", _columns),
    None,
    "The columns to read, in this order. `.schema(...)` has the same effect. Spark does not tell Python sources which "
    "columns a query needs. With no columns, or with only `topic` or `partition`, records are counted without being "
    "read.",
    _BOTH,
)
MIN_PARTITIONS = Option(
    "minPartitions", integer(0, 1_000_000), 0, "The minimum number of tasks that the read is split into.", _BOTH
)
MAX_RECORDS_PER_PARTITION = Option(
    "maxRecordsPerPartition", integer(0), 0, "The maximum number of offsets per task.", _BOTH
)
SPLIT_BYTES = Option(
    "splitBytes",
    optional(size(1, 1 << 40)),
    None,
    "The approximate maximum size of segments per task. If not set, 1 GB, or 256 MB if the number of concurrent tasks "
    "is not known. If records are only counted, the limit is 4 times this size, or about a million records per task as "
    "long as that makes no more than about 1,000 tasks.",
    _BOTH,
)
MAX_OFFSETS = Option(
    "maxOffsetsPerTrigger",
    optional(integer(1)),
    None,
    "The maximum number of offsets per trigger. They are divided among the partitions in proportion to their lag. Each "
    "partition that lags gets at least one.",
    _STREAMING,
)
MIN_OFFSETS = Option(
    "minOffsetsPerTrigger",
    optional(integer(1)),
    None,
    "Wait until this many offsets can be read, or until `maxTriggerDelay` has passed since the last trigger that read. "
    "The first trigger of a run does not wait. Has no effect with Trigger.AvailableNow.",
    _STREAMING,
)
MAX_DELAY = Option(
    "maxTriggerDelay", duration(0, 86_400), 900.0, "The maximum wait for `minOffsetsPerTrigger`.", _STREAMING, "15m"
)
MAX_BYTES = Option(
    "maxBytesPerTrigger",
    optional(size(1, 1 << 50)),
    None,
    "The approximate maximum number of bytes of segments per trigger. They are divided as for `maxOffsetsPerTrigger`.",
    _STREAMING,
)
PUSH_DOWN_FILTERS = Option(
    "pushDownFilters",
    BOOLEAN,
    True,
    "Whether to read only the records that filters on topic, partition, offset and timestamp select. This requires "
    "pyspark 4.1 or later and `spark.sql.python.filterPushdown.enabled`, which registering the source sets. Like "
    "timestamp lookups, a filter on timestamp skips batches by the maximum timestamp in their header. If a client "
    "writes a smaller value there than its records have, such a filter misses these records. None of Kafka's clients "
    "does this. With `false`, Spark filters all records.",
    _BATCH,
    "true",
)
PIECE_BYTES = Option(
    "pieceBytes",
    size(64 << 10, 32 * _MIB),
    4 * _MIB,
    "The size of the piece of a segment that is sent to a task in one message. A larger batch is sent whole. A task "
    "holds at most four pieces and 4 MiB of the next data in memory. It also holds the decoded data: 16 MiB of Arrow, "
    "and three times its largest batch, decompressed.",
    _BOTH,
    "4MB",
)

SOURCE_OPTIONS: tuple[Option[Any], ...] = (
    *CONNECTION_OPTIONS,
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
    ASSIGN,
    STARTING_OFFSETS,
    ENDING_OFFSETS,
    STARTING_TIMESTAMP,
    ENDING_TIMESTAMP,
    STARTING_OFFSETS_BY_TIMESTAMP,
    ENDING_OFFSETS_BY_TIMESTAMP,
    STRATEGY,
    FAIL_ON_DATA_LOSS,
    INCLUDE_HEADERS,
    COLUMNS_OPTION,
    MIN_PARTITIONS,
    MAX_RECORDS_PER_PARTITION,
    SPLIT_BYTES,
    MAX_OFFSETS,
    MIN_OFFSETS,
    MAX_DELAY,
    MAX_BYTES,
    PUSH_DOWN_FILTERS,
    PIECE_BYTES,
)

KAFKA_HINTS = {
    r"kafka\.bootstrap\.servers": "use kafscale.endpoints instead, with the addresses of storage instances",
    r"kafka\.ssl\..*|kafka\.security\.protocol": "use the kafscale.tls.* options instead",
    r"groupidprefix|kafka\.group\.id": "remove it, because the source uses no consumer group",
    r"kafka\..*|kafkaconsumer\..*|fetchoffset\..*": "remove it, because the source uses no Kafka client",
    "path": "load() takes no path; name the topics with subscribe, subscribePattern or assign",
}
"""Hints for options of Spark's Kafka source and of Spark itself, by pattern."""

_ENDING = (ENDING_OFFSETS, ENDING_TIMESTAMP, ENDING_OFFSETS_BY_TIMESTAMP)


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The settings of a batch or a stream: see `batch_settings` and `stream_settings`."""

    connection: Connection
    subscription: Subscription
    start: Edge
    end: Edge
    fail_on_data_loss: bool
    latest_if_no_timestamp: bool
    min_partitions: int
    split_records: int
    split_bytes: int | None
    piece_bytes: int
    rates: Rates


def columns_of(options: Options) -> tuple[str, ...]:
    """Return the requested columns."""
    chosen = options[COLUMNS_OPTION]
    if chosen is None:
        return tuple(name for name in COLUMNS.names if name != "headers" or options[INCLUDE_HEADERS])
    return chosen


def source_options(texts: Mapping[str, str]) -> Options:
    """Parse the source's options. Raises ConfigError, which names the option."""
    return read_options(SOURCE_OPTIONS, texts, KAFKA_HINTS)


def batch_settings(options: Options) -> SourceSettings:
    """Return a batch's settings. Trigger options have no effect, as in Spark's Kafka source.

    Raises ConfigError if options conflict.
    """
    start = _first(options, STARTING_TIMESTAMP, STARTING_OFFSETS_BY_TIMESTAMP, STARTING_OFFSETS)
    end = _first(options, ENDING_TIMESTAMP, ENDING_OFFSETS_BY_TIMESTAMP, ENDING_OFFSETS)
    if start and not start.by_time and LATEST in {start.everywhere, *start.each.values()}:
        raise ConfigError(f"option {start.option}: a batch cannot begin at latest{_which(start, LATEST)}")
    if end and not end.by_time and EARLIEST in {end.everywhere, *end.each.values()}:
        raise ConfigError(f"option {end.option}: a batch cannot end at earliest{_which(end, EARLIEST)}")
    return _settings(options, start or Edge("startingOffsets", EARLIEST), end or Edge("endingOffsets", LATEST), Rates())


def stream_settings(options: Options) -> SourceSettings:
    """Return a stream's settings. Raises ConfigError if options conflict or do not apply to streams."""
    for option in _ENDING:
        if options.is_set(option):
            raise ConfigError(f"option {option.name}: a stream has no end")
    start = _first(options, STARTING_TIMESTAMP, STARTING_OFFSETS_BY_TIMESTAMP, STARTING_OFFSETS)
    rates = Rates(options[MAX_OFFSETS], options[MIN_OFFSETS], options[MAX_DELAY], options[MAX_BYTES])
    if rates.max_offsets and rates.min_offsets and rates.min_offsets > rates.max_offsets:
        raise ConfigError("option minOffsetsPerTrigger is greater than maxOffsetsPerTrigger")
    return _settings(options, start or Edge("startingOffsets", LATEST), Edge("endingOffsets", LATEST), rates)


def _settings(options: Options, start: Edge, end: Edge, rates: Rates) -> SourceSettings:
    return SourceSettings(
        connection_of(options),
        one_of({option.name: options[option] for option in (SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN)}),
        start,
        end,
        options[FAIL_ON_DATA_LOSS],
        options[STRATEGY] == "latest",
        options[MIN_PARTITIONS],
        options[MAX_RECORDS_PER_PARTITION],
        options[SPLIT_BYTES],
        options[PIECE_BYTES],
        rates,
    )


def _first(options: Options, *edges: Option[Edge | None]) -> Edge | None:
    return next((edge for option in edges if (edge := options[option]) is not None), None)


def _which(edge: Edge, value: int) -> str:
    return next((f" ({topic}-{number}: {value})" for (topic, number), v in edge.each.items() if v == value), "")
