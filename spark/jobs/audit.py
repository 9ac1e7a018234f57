"""Verify all segments, rewritten objects and indexes of a bucket, and report leftover objects and costs.

    spark-submit --py-files kafscale.zip spark/jobs/audit.py --endpoints storage-0:9200

The bucket or local directory is taken from the KAFSCALE_S3_* and KAFSCALE_DATA_DIR variables, as for the services. With
--endpoints, logs are compared with the bounds that the storage service reports; otherwise with the topic objects of the
bucket, which do not record where logs end. Nothing is changed. Exit status: 0 if the bucket is sound, 1 if something is
damaged, 2 if the audit failed, for example because the bucket or the service does not answer.
"""

import argparse
import os
from collections.abc import Sequence

import trio
from pyspark.sql import DataFrame, SparkSession

from kafscale.config.settings import load
from kafscale.config.stores import S3Settings, open_credentials
from kafscale_spark import job
from kafscale_spark.audit.bucket import Bucket, LocalBucket, S3Bucket
from kafscale_spark.audit.job import Summary, audit
from kafscale_spark.progress import amount, size

_NAME = "audit"
_GB = 1e9


def _parser() -> argparse.ArgumentParser:
    parser = job.parser(_NAME, __doc__, endpoints_required=False)
    parser.add_argument("--output", help="a directory for the findings as Parquet; it is overwritten")
    parser.add_argument(
        "--segments-per-task", type=int, default=64, help="segments per Spark task (default: %(default)s)"
    )
    parser.add_argument("--show", type=int, default=50, help="the number of findings to print (default: %(default)s)")
    parser.add_argument(
        "--put-price", type=float, default=0.005, help="the price of 1000 PUTs in dollars (default: %(default)s)"
    )
    parser.add_argument(
        "--gb-price", type=float, default=0.023, help="the price of a GB per month in dollars (default: %(default)s)"
    )
    return parser


def main(argv: Sequence[str], spark: SparkSession | None = None) -> int:
    """Run the audit and return its exit status: 1 if something is damaged, 2, with a message, if it failed."""
    return job.run(_audit, _parser().parse_args(argv), spark, _NAME)


def _audit(spark: SparkSession, args: argparse.Namespace) -> int:
    settings = load(S3Settings, os.environ)
    done = audit(
        spark,
        _bucket(settings),
        settings.namespace,
        connection=job.storage(args) if job.connection(args) else None,
        segments_per_task=args.segments_per_task,
    )
    findings = done.findings.orderBy("damage", "topic", "partition", "offset", "kind", ascending=[False] + [True] * 4)
    if args.output:
        findings.coalesce(1).write.mode("overwrite").parquet(args.output)
    _print_findings(findings, args.show)
    _print_summary(done.summary, args.put_price, args.gb_price)
    return 1 if done.summary.damaged else 0


def _bucket(settings: S3Settings) -> Bucket:
    if not settings.bucket:
        return LocalBucket(settings.data_dir.absolute())
    config = settings.s3_config()

    async def open_bucket() -> S3Bucket:
        async with open_credentials(settings) as provider:
            found = provider()
            return S3Bucket(
                config.bucket,
                config.endpoint,
                config.region,
                found.access_key,
                found.secret_key,
                found.session_token or "",
            )

    return trio.run(open_bucket)


def _print_findings(findings: DataFrame, limit: int) -> None:
    for found in findings.take(limit):
        where = f"{found.topic}-{found.partition} offset {found.offset}" if found.partition >= 0 else "bucket"
        print(f"{found.kind}: {where}: {found.detail} ({found.key})")


def _print_summary(summary: Summary, put_price: float, gb_price: float) -> None:
    objects, total = sum(summary.objects.values()), sum(summary.sizes.values())
    print()
    for kind, count in sorted(summary.objects.items()):
        print(f"{kind:<16} {amount(count):>12} objects {size(summary.sizes[kind]):>12}")
    print(
        f"{amount(summary.records)} records in {amount(summary.segments)} segments of {summary.partitions} partitions,"
        f" {size(summary.sizes['segments'] / max(1, summary.segments))} each"
        + (f", and in {amount(summary.rewritten)} rewritten objects" if summary.rewritten else "")
    )
    gb = total / _GB
    print(
        f"cost: {amount(objects)} PUTs or {amount(objects / max(gb, 1e-9))} per GB, ${objects / 1000 * put_price:,.2f}"
        f" once; {size(total)} for ${gb * gb_price:,.2f} a month"
    )
    read = summary.sizes["segments"] + summary.sizes["rewritten"]
    print(f"read in {summary.seconds:.1f} s, {size(read / max(summary.seconds, 1e-9))}/s")
    if not summary.ends_known:
        print("the ends of logs were not checked, because --endpoints is not set")
    for kind, count in sorted(summary.findings.items()):
        print(f"{'DAMAGE' if kind.is_damage else 'no damage'}: {kind}: {count}")
    print("damaged" if summary.damaged else "sound")


if __name__ == "__main__":
    job.main_of(main)
