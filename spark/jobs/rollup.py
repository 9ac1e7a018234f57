"""Aggregate JSON records of topics in windows of their event time, and write the results to a topic, exactly once.

    spark-submit --py-files kafscale.zip spark/jobs/rollup.py --endpoints storage-0:9200 --topics orders \\
        --schema 'country STRING, amount DOUBLE, at TIMESTAMP' --event-time data.at --window '1 minute' \\
        --watermark '5 minutes' --group-by data.country --aggregate 'sum(data.amount) AS total' \\
        --output orders-by-minute --checkpoint s3a://lake/checkpoints/rollup

A result is JSON with window_start, window_end, the groups and the aggregates. Its key is the JSON of everything except
the aggregates, so that a compacted topic keeps the newest result of each window and group. With --mode append, a window
is written once, after the watermark has passed its end; with update, whenever it changes. Records later than the
watermark are dropped and reported by Spark's count, which counts all rows of one window, group and task as one. Records
that do not match --schema are dropped and counted separately.
"""

import argparse
from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kafscale.errors import ConfigError
from kafscale_spark import job
from kafscale_spark.archiving import JSON, Form, is_bad
from kafscale_spark.progress import amount, size
from kafscale_spark.watching import measured, run_queries

_NAME = "rollup"


def _parser() -> argparse.ArgumentParser:
    parser = job.parser(_NAME, __doc__)
    job.add_topics(parser)
    job.add_stream(parser)
    parser.add_argument("--schema", required=True, help="the fields as DDL; expressions refer to them as data.FIELD")
    parser.add_argument("--output", required=True, metavar="TOPIC", help="the topic for the results; it must exist")
    parser.add_argument(
        "--event-time", default="timestamp", help="a SQL expression, such as data.at (default: the record's timestamp)"
    )
    parser.add_argument("--window", default="1 minute", help="the length of windows (default: %(default)s)")
    parser.add_argument("--slide", help="the interval at which windows begin (default: their length)")
    parser.add_argument("--watermark", default="5 minutes", help="how late records may arrive (default: %(default)s)")
    parser.add_argument("--group-by", action="append", default=[], metavar="EXPRESSION", help="may be repeated")
    parser.add_argument(
        "--aggregate", action="append", metavar="EXPRESSION", help="may be repeated (default: count(1) AS count)"
    )
    parser.add_argument("--mode", choices=("append", "update"), default="append", help="default: %(default)s")
    return parser


def main(argv: Sequence[str], spark: SparkSession | None = None) -> int:
    """Run the job and return its exit status: 2, with a message on stderr, if it failed."""
    return job.run(_rollup, _parser().parse_args(argv), spark, _NAME)


def _rollup(spark: SparkSession, args: argparse.Namespace) -> int:
    form = Form(JSON, args.schema)
    records = spark.readStream.format("kafscale").options(**job.reading(args, writes=args.output)).load()
    parsed = measured(form.parsed(records), is_bad()).filter(~is_bad() & f.col("value").isNotNull())
    at = f.coalesce(f.expr(args.event_time).cast("timestamp"), f.col("timestamp"))
    timed = parsed.withColumn("event_time", at).withWatermark("event_time", args.watermark)
    window = f.window("event_time", args.window, args.slide)
    groups = [f.expr(expression) for expression in args.group_by]
    found = timed.groupBy(window, *groups).agg(*map(f.expr, args.aggregate or ["count(1) AS count"]))
    named = [name for name in found.columns if name != "window"]
    bounds = [f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end")]
    columns = [*bounds, *(f.col(f"`{name}`") for name in named)]
    key = f.struct(*columns[: 2 + len(groups)])
    results = found.select(f.to_json(key).alias("key"), f.to_json(f.struct(*columns)).alias("value"))
    writer = results.writeStream.outputMode(args.mode).option("checkpointLocation", args.checkpoint)
    options = {**job.connection(args), "topic": args.output}
    if args.mode == "append":
        writer = writer.format("kafscale").options(**options)
    else:
        # Spark does not support update mode for sinks in Python.
        writer = writer.foreachBatch(partial(_append, options))
    totals = run_queries({"rollup": job.triggered(writer, args)})
    print(
        f"{amount(totals.rows)} records read, {size(totals.bytes)}, {totals.batches} micro-batches, "
        f"{amount(totals.late)} late, {amount(totals.bad)} bad"
    )
    return 0


def _append(options: dict[str, str], results: DataFrame, epoch: int) -> None:
    """Write the results that a micro-batch has changed. A repeated micro-batch changes nothing."""
    query = results.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if query is None:
        # All rollups would share one sink, and one's micro-batches would count as repetitions of another's.
        raise ConfigError("Spark does not provide the query id; PYSPARK_PIN_THREAD must be true")
    options = {**options, "sinkId": f"rollup-{query}", "epochId": str(epoch)}
    results.write.format("kafscale").mode("append").options(**options).save()


if __name__ == "__main__":
    job.main_of(main)
