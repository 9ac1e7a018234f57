"""Looks through a whole bucket: is every segment and index what it should be, what is left over, what does it cost?

    spark-submit --py-files kafscale_spark.zip spark/jobs/audit.py --endpoints storage-0:9200

The bucket, or the local directory, is the one that the KAFSCALE_S3_* and KAFSCALE_DATA_DIR variables name, as for the
services. With --endpoints, logs are compared with what the storage service says of them; without, with the topic
objects of the bucket, which do not know where logs end. Nothing is changed. Exit status 0: the bucket is sound; 1:
something is damaged; 2: it could not be audited, as where the bucket or the service does not answer.
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
from kafscale_spark.audit.run import Summary, audit
from kafscale_spark.progress import amount, size

_NAME = "audit"
_GB = 1e9


def _parser() -> argparse.ArgumentParser:
    parser = job.parser(_NAME, __doc__, endpoints_required=False)
    parser.add_argument("--output", help="where to write the findings as Parquet; what is there is replaced")
    parser.add_argument("--segments-per-task", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--show", type=int, default=50, help="how many findings are printed (default: %(default)s)")
    parser.add_argument(
        "--put-price", type=float, default=0.005, help="of 1000 PUTs, in dollars (default: %(default)s)"
    )
    parser.add_argument(
        "--gb-price", type=float, default=0.023, help="of a GB for a month, in dollars (default: %(default)s)"
    )
    return parser


def main(argv: Sequence[str], spark: SparkSession | None = None) -> int:
    """Exit status 1: something is damaged; 2: it could not be audited, and a line says why."""
    return job.run(_audit, _parser().parse_args(argv), spark, _NAME)


def _audit(spark: SparkSession, asked: argparse.Namespace) -> int:
    settings = load(S3Settings, os.environ)
    done = audit(
        spark,
        _bucket(settings),
        settings.namespace,
        connection=job.storage(asked) if job.connection(asked) else None,
        segments_per_task=asked.segments_per_task,
    )
    findings = done.findings.orderBy("damage", "topic", "partition", "offset", "kind", ascending=[False] + [True] * 4)
    if asked.output:
        findings.coalesce(1).write.mode("overwrite").parquet(asked.output)
    _show(findings, asked.show)
    _tell(done.summary, asked.put_price, asked.gb_price)
    return 1 if done.summary.damaged else 0


def _bucket(settings: S3Settings) -> Bucket:
    if not settings.bucket:
        return LocalBucket(settings.data_dir.absolute())
    config = settings.s3_config()

    async def credentials() -> S3Bucket:
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

    return trio.run(credentials)


def _show(findings: DataFrame, most: int) -> None:
    for found in findings.take(most):
        where = f"{found.topic}-{found.partition} offset {found.offset}" if found.partition >= 0 else "bucket"
        print(f"{found.kind}: {where}: {found.detail} ({found.key})")


def _tell(summary: Summary, put_price: float, gb_price: float) -> None:
    objects, total = sum(summary.objects.values()), sum(summary.sizes.values())
    print()
    for kind, count in sorted(summary.objects.items()):
        print(f"{kind:<16} {amount(count):>12} objects {size(summary.sizes[kind]):>12}")
    print(
        f"{amount(summary.records)} records in {amount(summary.segments)} segments of {summary.partitions} partitions,"
        f" {size(summary.sizes['segments'] / max(1, summary.segments))} each"
    )
    gb = total / _GB
    print(
        f"cost: {amount(objects)} PUTs or {amount(objects / max(gb, 1e-9))} per GB, ${objects / 1000 * put_price:,.2f}"
        f" once; {size(total)} for ${gb * gb_price:,.2f} a month"
    )
    print(f"read in {summary.seconds:.1f} s, {size(summary.sizes['segments'] / max(summary.seconds, 1e-9))}/s")
    if not summary.ends_known:
        print("where logs end was not asked: no --endpoints")
    for kind, count in sorted(summary.findings.items()):
        print(f"{'DAMAGE' if kind.is_damage else 'left over'}: {kind}: {count}")
    print("damaged" if summary.damaged else "sound")


if __name__ == "__main__":
    job.main_of(main)
