"""Keeps topics as Parquet, partitioned by topic, date and hour of the event time (UTC). Exactly once.

    spark-submit --py-files kafscale_spark.zip spark/jobs/archive.py --endpoints storage-0:9200 --topics orders \\
        --output s3a://lake/archive --checkpoint s3a://lake/checkpoints/archive

Started again with the same checkpoint it goes on where it was. Files hold --max-file-records records at most, and what
one micro-batch of --max-bytes brings; read them with Spark, which knows from the output's _spark_metadata which count.
With --format json a column `data` has the fields of --schema; what is no such JSON goes to --dead-letters, unchanged,
with its place in headers kafscale.topic, kafscale.partition and kafscale.offset; that is a query of its own, which
reads the topics once more.
"""

import argparse
from collections.abc import Sequence

from pyspark.sql import SparkSession

from kafscale.errors import ConfigError
from kafscale_spark import job
from kafscale_spark.archiving import FORMATS, JSON, PARTITIONED_BY, RAW, Form
from kafscale_spark.progress import amount, size
from kafscale_spark.watching import measured, run_queries

_NAME = "archive"


def _parser() -> argparse.ArgumentParser:
    parser = job.parser(_NAME, __doc__)
    job.add_topics(parser)
    job.add_stream(parser)
    parser.add_argument("--output", required=True, help="the directory of the archive")
    parser.add_argument("--format", choices=FORMATS, default=RAW, help="of values (default: %(default)s)")
    parser.add_argument("--schema", default="", help="with json: the fields as DDL, such as 'id BIGINT, at TIMESTAMP'")
    parser.add_argument("--dead-letters", metavar="TOPIC", help="with json: where bad records go")
    parser.add_argument(
        "--event-time", default="timestamp", help="a SQL expression, such as data.at (default: the record's timestamp)"
    )
    parser.add_argument("--max-file-records", type=int, default=1_000_000, help="of a file (default: %(default)s)")
    return parser


def main(argv: Sequence[str], spark: SparkSession | None = None) -> int:
    """Exit status 2: it was not possible; the message says why."""
    return job.run(_archive, _parser().parse_args(argv), spark, _NAME)


def _archive(spark: SparkSession, asked: argparse.Namespace) -> int:
    if asked.format == JSON and not (asked.schema and asked.dead_letters):
        raise ConfigError("--format json needs --schema and --dead-letters")
    form = Form(asked.format, asked.schema, asked.event_time)
    records = spark.readStream.format("kafscale").options(**job.reading(asked, writes=asked.dead_letters)).load()
    archived = form.archived(measured(records))
    writer = (
        archived.writeStream.format("parquet")
        .partitionBy(*PARTITIONED_BY)
        .option("path", asked.output)
        .option("maxRecordsPerFile", asked.max_file_records)
        .option("checkpointLocation", f"{asked.checkpoint}/archive")
    )
    queries = {"archive": job.triggered(writer, asked)}
    if asked.format == JSON:
        bad = form.bad(records).writeStream.format("kafscale").options(**job.connection(asked))
        bad = bad.option("topic", asked.dead_letters).option("checkpointLocation", f"{asked.checkpoint}/dead-letters")
        queries["dead letters"] = job.triggered(bad, asked)
    totals = run_queries(queries)
    print(f"{amount(totals.rows)} records read, {size(totals.bytes)}, {totals.batches} micro-batches")
    return 0


if __name__ == "__main__":
    job.main_of(main)
