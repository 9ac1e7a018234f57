"""Archive topics as Parquet by topic, date and hour of the event time (UTC), exactly once.

    spark-submit --py-files kafscale.zip spark/jobs/archive.py --endpoints storage-0:9200 --topics orders \\
        --output s3a://lake/archive --checkpoint s3a://lake/checkpoints/archive

A run with the same checkpoint continues where the last one ended. A file holds at most --max-file-records records, and
only those of one micro-batch (--max-bytes). Read the archive with Spark, which ignores files that are not listed in the
output's _spark_metadata. With --format json, a column `data` has the fields of --schema. Records that do not match go
to --dead-letters unchanged, with headers kafscale.topic, kafscale.partition and kafscale.offset. A separate query
writes them and reads the topics again.
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
    parser.add_argument("--format", choices=FORMATS, default=RAW, help="how values are stored (default: %(default)s)")
    parser.add_argument("--schema", default="", help="with json: the fields as DDL, such as 'id BIGINT, at TIMESTAMP'")
    parser.add_argument("--dead-letters", metavar="TOPIC", help="with json: the topic for records that do not match")
    parser.add_argument(
        "--event-time", default="timestamp", help="a SQL expression, such as data.at (default: the record's timestamp)"
    )
    parser.add_argument(
        "--max-file-records", type=int, default=1_000_000, help="records per file (default: %(default)s)"
    )
    return parser


def main(argv: Sequence[str], spark: SparkSession | None = None) -> int:
    """Run the job and return its exit status: 2, with a message on stderr, if it failed."""
    return job.run(_archive, _parser().parse_args(argv), spark, _NAME)


def _archive(spark: SparkSession, args: argparse.Namespace) -> int:
    if args.format == JSON and not (args.schema and args.dead_letters):
        raise ConfigError("--format json needs --schema and --dead-letters")
    form = Form(args.format, args.schema, args.event_time)
    records = spark.readStream.format("kafscale").options(**job.reading(args, writes=args.dead_letters)).load()
    archived = form.archived(measured(records))
    writer = (
        archived.writeStream.format("parquet")
        .partitionBy(*PARTITIONED_BY)
        .option("path", args.output)
        .option("maxRecordsPerFile", args.max_file_records)
        .option("checkpointLocation", f"{args.checkpoint}/archive")
    )
    queries = {"archive": job.triggered(writer, args)}
    if args.format == JSON:
        bad = form.bad(records).writeStream.format("kafscale").options(**job.connection(args))
        bad = bad.option("topic", args.dead_letters).option("checkpointLocation", f"{args.checkpoint}/dead-letters")
        queries["dead letters"] = job.triggered(bad, args)
    totals = run_queries(queries)
    print(f"{amount(totals.rows)} records read, {size(totals.bytes)}, {totals.batches} micro-batches")
    return 0


if __name__ == "__main__":
    job.main_of(main)
