"""The source's options: their table, from which the documents derive, and what they say together."""

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
        raise ValueError(f"{unknown[0]} is no column" if unknown else "a column stands there twice")
    return names


SUBSCRIBE: Option[Subscription | None] = Option(
    "subscribe",
    Parser("names with commas", lambda text: Subscription(topics=topic_names(text))),
    None,
    "The topics to read. Exactly one of `subscribe`, `subscribePattern` and `assign` is given.",
    _BOTH,
)
SUBSCRIBE_PATTERN: Option[Subscription | None] = Option(
    "subscribePattern",
    Parser("a regular expression", lambda text: Subscription(pattern=java_pattern(text))),
    None,
    "The topics in whose name it is found, those that are made later included: `^orders$` is one topic alone. It is "
    "for Python's re: Java's `\\p{...}` "
    "and `&&` in classes of characters are refused.",
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
    "Where reading begins: by default at `earliest` in a batch and at `latest` in a stream, which goes on where its "
    "checkpoint says, and reads partitions that are new from their beginning. A batch cannot begin at latest.",
    _BOTH,
)
ENDING_OFFSETS: Option[Edge | None] = Option(
    "endingOffsets",
    optional(offsets_parser("endingOffsets")),
    None,
    "Where reading ends, this offset left out: by default at `latest`. It cannot end at earliest.",
    _BATCH,
)
STARTING_TIMESTAMP = Option(
    "startingTimestamp",
    timestamp_parser("startingTimestamp"),
    None,
    "Begin in each partition at the first record of this timestamp or a later one. It goes before "
    "`startingOffsetsByTimestamp`, which goes before `startingOffsets`.",
    _BOTH,
)
ENDING_TIMESTAMP = Option(
    "endingTimestamp",
    timestamp_parser("endingTimestamp"),
    None,
    "End in each partition before the first record of this timestamp or a later one, or at the latest. It goes before "
    "`endingOffsetsByTimestamp`, which goes before `endingOffsets`.",
    _BATCH,
)
STARTING_OFFSETS_BY_TIMESTAMP = Option(
    "startingOffsetsByTimestamp",
    timestamps_parser("startingOffsetsByTimestamp"),
    None,
    "As `startingTimestamp`, with a timestamp for every partition.",
    _BOTH,
)
ENDING_OFFSETS_BY_TIMESTAMP = Option(
    "endingOffsetsByTimestamp",
    timestamps_parser("endingOffsetsByTimestamp"),
    None,
    "As `endingTimestamp`, with a timestamp for every partition.",
    _BATCH,
)
STRATEGY = Option(
    "startingOffsetsByTimestampStrategy",
    choice("error", "latest"),
    "error",
    "What to do where no record has the starting timestamp or a later one: fail, or begin at the latest.",
    _BOTH,
    "error",
)
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    BOOLEAN,
    True,
    "Fail when records that were to be read are not there any more (retention, a topic that was deleted or made anew). "
    "Otherwise a warning is logged and what is there is read. Damaged objects always fail.",
    _BOTH,
    "true",
)
INCLUDE_HEADERS = Option("includeHeaders", BOOLEAN, False, "Whether there is a column of headers.", _BOTH, "false")
COLUMNS_OPTION: Option[tuple[str, ...] | None] = Option(
    "columns",
    Parser("names with commas, or nothing", _columns),
    None,
    "The columns to read, in this order, as `.schema(...)` says it too: Spark does not tell Python sources which ones "
    "a query needs. With none, `topic` or `partition` alone, records are counted without being read.",
    _BOTH,
)
MIN_PARTITIONS = Option(
    "minPartitions", integer(0, 1_000_000), 0, "Split what is read for at least so many tasks.", _BOTH
)
MAX_RECORDS_PER_PARTITION = Option(
    "maxRecordsPerPartition", integer(0), 0, "At most so many offsets for one task.", _BOTH
)
SPLIT_BYTES = Option(
    "splitBytes",
    optional(size(1, 1 << 40)),
    None,
    "Of segments for one task at most, about: where it is not given 1 GB, or 256 MB when it is not known how many "
    "tasks run at a time. Where records are only counted 4 times as much, or about a million of them while that makes "
    "no more than about 1,000 tasks.",
    _BOTH,
)
MAX_OFFSETS = Option(
    "maxOffsetsPerTrigger",
    optional(integer(1)),
    None,
    "Read at most so many offsets in a trigger, shared between partitions as they are behind; each that is behind "
    "gets one at least.",
    _STREAMING,
)
MIN_OFFSETS = Option(
    "minOffsetsPerTrigger",
    optional(integer(1)),
    None,
    "Wait until there are so many offsets to read, or `maxTriggerDelay` is over since the last trigger that read: the "
    "first one of a run waits for nothing. Not with Trigger.AvailableNow.",
    _STREAMING,
)
MAX_DELAY = Option(
    "maxTriggerDelay", duration(0, 86_400), 900.0, "The longest wait for `minOffsetsPerTrigger`.", _STREAMING, "15m"
)
MAX_BYTES = Option(
    "maxBytesPerTrigger",
    optional(size(1, 1 << 50)),
    None,
    "Read about so many bytes of segments at most in a trigger, shared as for `maxOffsetsPerTrigger`.",
    _STREAMING,
)
PUSH_DOWN_FILTERS = Option(
    "pushDownFilters",
    BOOLEAN,
    True,
    "Read only what filters on topic, partition, offset and timestamp want (pyspark 4.1 and later, with "
    "`spark.sql.python.filterPushdown.enabled`, which registering the source sets). Batches are passed over by the "
    "largest timestamp that their header tells, as look-ups by time do: a client that writes a smaller one there than "
    "its records have, which none of Kafka's does, hides those from a filter on time. `false` has Spark look at all.",
    _BATCH,
    "true",
)
PIECE_BYTES = Option(
    "pieceBytes",
    size(64 << 10, 32 * _MIB),
    4 * _MIB,
    "Of a segment, for one message to a task; a batch that is larger comes whole. A task holds two of "
    "these at most and 4 MiB that come next, besides what it decodes: 16 MiB of Arrow, and three times its largest "
    "batch, decompressed.",
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
    r"kafka\.bootstrap\.servers": "give kafscale.endpoints instead, the addresses of storage instances",
    r"kafka\.ssl\..*|kafka\.security\.protocol": "give kafscale.tls.ca and its like instead",
    r"groupidprefix|kafka\.group\.id": "no consumer group is used: leave it out",
    r"kafka\..*|kafkaconsumer\..*|fetchoffset\..*": "no Kafka client is used: leave it out",
    "path": "load() takes no path: topics are named by subscribe, subscribePattern or assign",
}
"""What to say of options that Spark's Kafka source and Spark itself have."""

_ENDING = (ENDING_OFFSETS, ENDING_TIMESTAMP, ENDING_OFFSETS_BY_TIMESTAMP)


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """What the options say, for a batch or for a stream: see `batch_settings` and `stream_settings`."""

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
    """The columns that the options ask for."""
    chosen = options[COLUMNS_OPTION]
    if chosen is None:
        return tuple(name for name in COLUMNS.names if name != "headers" or options[INCLUDE_HEADERS])
    return chosen


def source_options(given: Mapping[str, str]) -> Options:
    """Raises ConfigError that names the option."""
    return read_options(SOURCE_OPTIONS, given, KAFKA_HINTS)


def batch_settings(options: Options) -> SourceSettings:
    """Raises ConfigError where options do not go together. What is of triggers has no effect, as in Spark's own."""
    start = _first(options, STARTING_TIMESTAMP, STARTING_OFFSETS_BY_TIMESTAMP, STARTING_OFFSETS)
    end = _first(options, ENDING_TIMESTAMP, ENDING_OFFSETS_BY_TIMESTAMP, ENDING_OFFSETS)
    if start and not start.by_time and LATEST in {start.everywhere, *start.each.values()}:
        raise ConfigError(f"option {start.option}: a batch cannot begin at latest{_which(start, LATEST)}")
    if end and not end.by_time and EARLIEST in {end.everywhere, *end.each.values()}:
        raise ConfigError(f"option {end.option}: a batch cannot end at earliest{_which(end, EARLIEST)}")
    return _settings(options, start or Edge("startingOffsets", EARLIEST), end or Edge("endingOffsets", LATEST), Rates())


def stream_settings(options: Options) -> SourceSettings:
    """Raises ConfigError where options do not go together, or are none of a stream's."""
    for option in _ENDING:
        if options.given(option):
            raise ConfigError(f"option {option.name}: a stream has no end")
    start = _first(options, STARTING_TIMESTAMP, STARTING_OFFSETS_BY_TIMESTAMP, STARTING_OFFSETS)
    rates = Rates(options[MAX_OFFSETS], options[MIN_OFFSETS], options[MAX_DELAY], options[MAX_BYTES])
    if rates.max_offsets and rates.min_offsets and rates.min_offsets > rates.max_offsets:
        raise ConfigError("option minOffsetsPerTrigger is more than maxOffsetsPerTrigger")
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
