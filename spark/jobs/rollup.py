"""Adds up JSON records of topics in windows of their event time, into a topic. Exactly once.

    spark-submit --py-files kafscale_spark.zip spark/jobs/rollup.py --endpoints storage-0:9200 --topics orders \\
        --schema 'country STRING, amount DOUBLE, at TIMESTAMP' --event-time data.at --window '1 minute' \\
        --watermark '5 minutes' --group-by data.country --aggregate 'sum(data.amount) AS total' \\
        --output orders-by-minute --checkpoint s3a://lake/checkpoints/rollup

A result is JSON: window_start, window_end, what it is grouped by, and the aggregates; its key is the JSON of all but
the aggregates, so that a compacted topic keeps the newest of each. With --mode append a window is written once, when
the watermark has passed its end; with update whenever it changes. Records that come later than the watermark are not
counted in; how many there were is told, by Spark's own count, which takes those of one window, group and task for one.
What is no such JSON is left out and counted too.
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
    parser.add_argument("--schema", required=True, help="the fields as DDL; expressions name them data.FIELD")
    parser.add_argument("--output", required=True, metavar="TOPIC", help="where results go; it must exist")
    parser.add_argument(
        "--event-time", default="timestamp", help="a SQL expression, such as data.at (default: the record's timestamp)"
    )
    parser.add_argument("--window", default="1 minute", help="how long windows are (default: %(default)s)")
    parser.add_argument("--slide", help="how far apart they begin (default: as they are long)")
    parser.add_argument("--watermark", default="5 minutes", help="how late records may be (default: %(default)s)")
    parser.add_argument("--group-by", action="append", default=[], metavar="EXPRESSION", help="may be repeated")
    parser.add_argument(
        "--aggregate", action="append", metavar="EXPRESSION", help="may be repeated (default: count(1) AS count)"
    )
    parser.add_argument("--mode", choices=("append", "update"), default="append", help="default: %(default)s")
    return parser


def main(argv: Sequence[str], spark: SparkSession | None = None) -> int:
    """Exit status 2: it was not possible; the message says why."""
    return job.run(_rollup, _parser().parse_args(argv), spark, _NAME)


def _rollup(spark: SparkSession, asked: argparse.Namespace) -> int:
    form = Form(JSON, asked.schema)
    records = spark.readStream.format("kafscale").options(**job.reading(asked, writes=asked.output)).load()
    parsed = measured(form.parsed(records), is_bad()).filter(~is_bad() & f.col("value").isNotNull())
    at = f.coalesce(f.expr(asked.event_time).cast("timestamp"), f.col("timestamp"))
    timed = parsed.withColumn("event_time", at).withWatermark("event_time", asked.watermark)
    window = f.window("event_time", asked.window, asked.slide)
    groups = [f.expr(expression) for expression in asked.group_by]
    found = timed.groupBy(window, *groups).agg(*map(f.expr, asked.aggregate or ["count(1) AS count"]))
    named = [name for name in found.columns if name != "window"]
    bounds = [f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end")]
    columns = [*bounds, *(f.col(f"`{name}`") for name in named)]
    key = f.struct(*columns[: 2 + len(groups)])
    results = found.select(f.to_json(key).alias("key"), f.to_json(f.struct(*columns)).alias("value"))
    writer = results.writeStream.outputMode(asked.mode).option("checkpointLocation", asked.checkpoint)
    options = {**job.connection(asked), "topic": asked.output}
    if asked.mode == "append":
        writer = writer.format("kafscale").options(**options)
    else:
        # Spark takes no updates for sinks in Python.
        writer = writer.foreachBatch(partial(_append, options))
    totals = run_queries({"rollup": job.triggered(writer, asked)})
    print(
        f"{amount(totals.rows)} records read, {size(totals.bytes)}, {totals.batches} micro-batches, "
        f"{amount(totals.late)} late, {amount(totals.bad)} bad"
    )
    return 0


def _append(options: dict[str, str], results: DataFrame, epoch: int) -> None:
    """What a micro-batch has changed; the same one again changes nothing."""
    query = results.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if query is None:
        # Another rollup's sink would be the same one, and its micro-batches would be taken for this one's.
        raise ConfigError("Spark does not tell which query this is: leave PYSPARK_PIN_THREAD at true")
    options = {**options, "sinkId": f"rollup-{query}", "epochId": str(epoch)}
    results.write.format("kafscale").mode("append").options(**options).save()


if __name__ == "__main__":
    job.main_of(main)
