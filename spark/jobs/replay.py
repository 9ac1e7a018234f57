"""Write archived records back to a topic, with their keys, timestamps and headers: all of them or none.

    spark-submit --py-files kafscale.zip spark/jobs/replay.py --endpoints storage-0:9200 \\
        --input s3a://lake/archive --archived orders --topic orders-again \\
        --from 2024-05-06T07:00 --until 2024-05-06T08:00 --id orders-again-1

The input is an archive of the job `archive`, or any Parquet with --key-column and the other column arguments. Records
of an archive are written in the original order of their partition. With --id, a replay can be repeated safely, because
its records are written only once.

Records keep their timestamps, which retention uses: records older than the topic's retention.ms (7 days by default) are
deleted within minutes. Create the topic with retention.ms=-1, or with a sufficiently long retention. A warning reports
the number of older records.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, MapType, StructType, TimestampNTZType

from kafscale.errors import ConfigError
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark import job
from kafscale_spark.client import TOPICS, Client
from kafscale_spark.progress import Pace, amount, size, ticking

_NAME = "replay"
_ORDER = ("topic", "partition", "offset")
_NONE = "none"
_RETENTION = "retention.ms"


def _parser() -> argparse.ArgumentParser:
    parser = job.parser(_NAME, __doc__)
    parser.add_argument("--input", required=True, help="the archive, or a directory of Parquet files")
    parser.add_argument("--topic", required=True, help="the topic to write to; it must exist")
    parser.add_argument("--archived", metavar="TOPICS", help="only these topics of the archive, separated by commas")
    parser.add_argument(
        "--from", dest="since", type=_time, metavar="TIME", help="replay only records from this time on; ISO 8601, UTC"
    )
    parser.add_argument("--until", type=_time, metavar="TIME", help="replay only records before this time")
    parser.add_argument("--id", help="an id of this replay; a repetition with it changes nothing")
    parser.add_argument("--keep-partitions", action="store_true", help="write each record to its original partition")
    parser.add_argument("--key-column", default="key", help="a column, or none (default: %(default)s)")
    parser.add_argument("--value-column", help="a column; a structure is written as JSON (default: value or data)")
    parser.add_argument(
        "--timestamp-column", default="timestamp", help="or none, for the time of writing (default: %(default)s)"
    )
    parser.add_argument("--headers-column", default="headers", help="a column, or none (default: %(default)s)")
    return parser


def main(argv: Sequence[str], spark: SparkSession | None = None) -> int:
    """Run the job and return its exit status: 2, with a message on stderr, if it failed."""
    return job.run(_replay, _parser().parse_args(argv), spark, _NAME)


def _replay(spark: SparkSession, args: argparse.Namespace) -> int:
    frame = spark.read.parquet(args.input)
    if args.archived:
        frame = frame.filter(f.col("topic").isin(args.archived.split(",")))
    if args.since or args.until:
        if args.timestamp_column == _NONE:
            raise ConfigError("--from and --until need --timestamp-column")
        frame = _within(frame, f.col(args.timestamp_column), args.since, args.until)
    counted, pace = Observation(), Pace()
    records = _records(_in_order(frame), args)
    lengths = [f.coalesce(f.length(f.col(name)), f.lit(0)) for name in ("key", "value")]
    total = f.coalesce(f.sum(lengths[0] + lengths[1]), f.lit(0))
    retention_ms = _retention_ms(args)
    old = _older(retention_ms).alias("old")
    records = records.observe(counted, f.count(f.lit(1)).alias("rows"), total.alias("bytes"), old)
    options = {**job.connection(args), "topic": args.topic}
    if args.id:
        options |= {"sinkId": f"replay-{args.id}", "epochId": "0"}
    with ticking(lambda: _tasks(spark)):
        records.write.format("kafscale").mode("append").options(**options).save()
    found = counted.get
    rate = f"{size(pace.per_second(found['bytes']))}/s"
    print(f"{amount(found['rows'])} records, {size(found['bytes'])} in {pace.seconds:.1f} s, {rate}")
    if found["old"]:
        print(
            f"{_NAME}: {amount(found['old'])} records are older than the retention of topic {args.topic} "
            f"({_RETENTION}={retention_ms}) and will be deleted within minutes unless you increase it",
            file=sys.stderr,
        )
    return 0


def _retention_ms(args: argparse.Namespace) -> int:
    """Return the topic's retention.ms, or -1 if it is unlimited, unknown, or records get the time of writing."""
    if args.timestamp_column == _NONE:
        return -1
    with Client(job.storage(args)) as client:
        found = client.call(TOPICS, pb.TopicsRequest(names=[args.topic])).topics
    return int(found[0].configs.get(_RETENTION, "-1")) if found else -1


def _older(retention_ms: int) -> Column:
    """Count the records that are older than the retention by now."""
    if retention_ms < 0:
        return f.count_if(f.lit(False))
    oldest_ms = time.time_ns() // 1_000_000 - retention_ms
    return f.count_if(f.unix_millis(f.col("timestamp").cast("timestamp")) < oldest_ms)


def _within(frame: DataFrame, at: Column, since: datetime | None, until: datetime | None) -> DataFrame:
    if since is not None:
        frame = frame.filter(at >= f.lit(since))
    return frame if until is None else frame.filter(at < f.lit(until))


def _in_order(frame: DataFrame) -> DataFrame:
    """Put the records of each archived partition into one task, in their original order."""
    if not set(_ORDER) <= set(frame.columns):
        return frame
    return frame.repartition("topic", "partition").sortWithinPartitions(*_ORDER)


def _records(frame: DataFrame, args: argparse.Namespace) -> DataFrame:
    """Select the columns of the sink. Raises ConfigError if a column is missing."""
    value = args.value_column or ("value" if "value" in frame.columns else "data")
    columns = {"key": args.key_column, "value": value, "timestamp": args.timestamp_column}
    columns["headers"] = args.headers_column
    if args.keep_partitions:
        columns["partition"] = "partition"
    selected = {name: column for name, column in columns.items() if column != _NONE}
    missing = sorted(set(selected.values()) - set(frame.columns))
    if missing:
        raise ConfigError(f"{args.input} has no column {missing[0]}: it has {', '.join(frame.columns)}")
    records = frame.select(*(_as_sink_column(frame, column, name) for name, column in selected.items()))
    return records if "key" in selected else records.withColumn("key", f.lit(None).cast("binary"))


def _as_sink_column(frame: DataFrame, column: str, name: str) -> Column:
    kind = frame.schema[column].dataType
    if name in ("key", "value") and isinstance(kind, StructType | ArrayType | MapType):
        return f.to_json(f.col(column)).alias(name)
    if name == "timestamp" and isinstance(kind, TimestampNTZType):
        return f.col(column).cast("timestamp").alias(name)
    return f.col(column).alias(name)


def _tasks(spark: SparkSession) -> str:
    tracker = spark.sparkContext.statusTracker()
    stages = [stage for stage in map(tracker.getStageInfo, tracker.getActiveStageIds()) if stage]
    done, total = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
    return f"{done} of {total} tasks"


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2024-05-06T07:08") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


if __name__ == "__main__":
    job.main_of(main)
