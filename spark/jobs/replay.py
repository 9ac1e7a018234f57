"""Brings archived records back to a topic, with their keys, timestamps and headers: all of them at once, or none.

    spark-submit --py-files kafscale_spark.zip spark/jobs/replay.py --endpoints storage-0:9200 \\
        --input s3a://lake/archive --archived orders --topic orders-again \\
        --from 2024-05-06T07:00 --until 2024-05-06T08:00 --id orders-again-1

The input is an archive of the job `archive`, or any Parquet with --key-column and its like. Records of an archive are
written in the order that they had in their partition. With --id a replay that is repeated, whether it is known to have
failed or not, is there once.

Records keep their timestamps, and retention goes by them: what is older than the topic's retention.ms, 7 days where it
has none of its own, is deleted within minutes. Make the topic with retention.ms=-1, or one that is long enough; a
warning tells how many records are older.
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
    parser.add_argument("--topic", required=True, help="where the records go; it must exist")
    parser.add_argument("--archived", metavar="TOPICS", help="only of these topics of the archive, with commas between")
    parser.add_argument("--from", dest="since", type=_time, metavar="TIME", help="no older ones; ISO 8601, UTC")
    parser.add_argument("--until", type=_time, metavar="TIME", help="none of this time or later ones")
    parser.add_argument("--id", help="of this replay: done again with the same one, it changes nothing")
    parser.add_argument("--keep-partitions", action="store_true", help="into the partitions that they were in")
    parser.add_argument("--key-column", default="key", help="or none (default: %(default)s)")
    parser.add_argument("--value-column", help="a structure is written as JSON (default: value, or data)")
    parser.add_argument(
        "--timestamp-column", default="timestamp", help="or none: the time of writing (default: %(default)s)"
    )
    parser.add_argument("--headers-column", default="headers", help="or none (default: %(default)s)")
    return parser


def main(argv: Sequence[str], spark: SparkSession | None = None) -> int:
    """Exit status 2: it was not possible; the message says why."""
    return job.run(_replay, _parser().parse_args(argv), spark, _NAME)


def _replay(spark: SparkSession, asked: argparse.Namespace) -> int:
    frame = spark.read.parquet(asked.input)
    if asked.archived:
        frame = frame.filter(f.col("topic").isin(asked.archived.split(",")))
    if asked.since or asked.until:
        if asked.timestamp_column == _NONE:
            raise ConfigError("--from and --until need --timestamp-column")
        frame = _within(frame, f.col(asked.timestamp_column), asked.since, asked.until)
    counted, pace = Observation(), Pace()
    records = _records(_in_order(frame), asked)
    lengths = [f.coalesce(f.length(f.col(name)), f.lit(0)) for name in ("key", "value")]
    total = f.coalesce(f.sum(lengths[0] + lengths[1]), f.lit(0))
    kept_ms = _kept_ms(asked)
    old = _older(kept_ms).alias("old")
    records = records.observe(counted, f.count(f.lit(1)).alias("rows"), total.alias("bytes"), old)
    options = {**job.connection(asked), "topic": asked.topic}
    if asked.id:
        options |= {"sinkId": f"replay-{asked.id}", "epochId": "0"}
    with ticking(lambda: _tasks(spark)):
        records.write.format("kafscale").mode("append").options(**options).save()
    found = counted.get
    rate = f"{size(pace.per_second(found['bytes']))}/s"
    print(f"{amount(found['rows'])} records, {size(found['bytes'])} in {pace.seconds:.1f} s, {rate}")
    if found["old"]:
        print(
            f"{_NAME}: {amount(found['old'])} records are older than topic {asked.topic} keeps any "
            f"({_RETENTION}={kept_ms}): they are deleted within minutes, unless that is set to more",
            file=sys.stderr,
        )
    return 0


def _kept_ms(asked: argparse.Namespace) -> int:
    """The topic's retention.ms; -1: for ever, or it is not known, or records get the time of writing."""
    if asked.timestamp_column == _NONE:
        return -1
    with Client(job.storage(asked)) as client:
        found = client.call(TOPICS, pb.TopicsRequest(names=[asked.topic])).topics
    return int(found[0].configs.get(_RETENTION, "-1")) if found else -1


def _older(kept_ms: int) -> Column:
    """How many records are older than that by now."""
    if kept_ms < 0:
        return f.count_if(f.lit(False))
    oldest_ms = time.time_ns() // 1_000_000 - kept_ms
    return f.count_if(f.unix_millis(f.col("timestamp").cast("timestamp")) < oldest_ms)


def _within(frame: DataFrame, at: Column, since: datetime | None, until: datetime | None) -> DataFrame:
    if since is not None:
        frame = frame.filter(at >= f.lit(since))
    return frame if until is None else frame.filter(at < f.lit(until))


def _in_order(frame: DataFrame) -> DataFrame:
    """Records of one partition of an archive in one task, as they stood there."""
    if not set(_ORDER) <= set(frame.columns):
        return frame
    return frame.repartition("topic", "partition").sortWithinPartitions(*_ORDER)


def _records(frame: DataFrame, asked: argparse.Namespace) -> DataFrame:
    """With the columns that the sink takes."""
    value = asked.value_column or ("value" if "value" in frame.columns else "data")
    wanted = {"key": asked.key_column, "value": value, "timestamp": asked.timestamp_column}
    wanted["headers"] = asked.headers_column
    if asked.keep_partitions:
        wanted["partition"] = "partition"
    given = {name: column for name, column in wanted.items() if column != _NONE}
    missing = sorted(set(given.values()) - set(frame.columns))
    if missing:
        raise ConfigError(f"{asked.input} has no column {missing[0]}: it has {', '.join(frame.columns)}")
    records = frame.select(*(_as_taken(frame, column, name) for name, column in given.items()))
    return records if "key" in given else records.withColumn("key", f.lit(None).cast("binary"))


def _as_taken(frame: DataFrame, column: str, name: str) -> Column:
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
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2024-05-06T07:08") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


if __name__ == "__main__":
    job.main_of(main)
