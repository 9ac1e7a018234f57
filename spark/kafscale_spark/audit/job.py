"""Audits a bucket with Spark: tasks check segments and catalog pages, and the driver checks each log as a whole."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from itertools import groupby

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession

from kafscale.paths import parse_segment_key
from kafscale_spark.audit.bucket import Bucket
from kafscale_spark.audit.chain import check_chain
from kafscale_spark.audit.findings import Finding, Kind
from kafscale_spark.audit.listing import Listing
from kafscale_spark.audit.metadata import Logs, around, logs_of_bucket, logs_of_storage
from kafscale_spark.audit.objects import Checked, Entry, check_object
from kafscale_spark.audit.pages import check_pages
from kafscale_spark.connection import Connection
from kafscale_spark.progress import Pace, amount, size, ticking

_FOUND = [
    ("kind", pa.string()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("key", pa.string()),
    ("detail", pa.string()),
]
FINDINGS = pa.schema([("damage", pa.bool_()), *_FOUND])
_ENTRY = [(field.name, pa.int64()) for field in fields(Entry)]
_ARROW = pa.schema(
    [
        ("key", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("next_offset", pa.int64()),
        ("epoch", pa.int32()),
        ("size", pa.int64()),
        ("records", pa.int64()),
        ("gone", pa.bool_()),
        ("topic_id", pa.binary()),
        ("entries", pa.list_(pa.struct(_ENTRY))),
        ("findings", pa.list_(pa.struct(_FOUND))),
    ]
)
_CHECKED = (
    "key string, topic string, partition int, base_offset bigint, next_offset bigint, epoch int, size bigint, "
    "records bigint, gone boolean, topic_id binary, "
    f"entries array<struct<{','.join(f'{name}:bigint' for name, _ in _ENTRY)}>>, "
    "findings array<struct<kind:string,topic:string,partition:int,offset:bigint,key:string,detail:string>>"
)
_ROWS_AT_A_TIME = 10_000


@dataclass(frozen=True, slots=True)
class Summary:
    """The totals of an audit. ``objects``, ``sizes`` (bytes) and ``findings`` are by kind."""

    objects: Counter[str]
    sizes: Counter[str]
    segments: int
    records: int
    partitions: int
    findings: Counter[Kind]
    seconds: float
    ends_known: bool

    @property
    def damaged(self) -> bool:
        return any(kind.is_damage for kind in self.findings)


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit. ``findings`` has a row for each finding, with the columns of `FINDINGS`."""

    findings: DataFrame
    summary: Summary


def audit(
    spark: SparkSession, bucket: Bucket, namespace: str, *, connection: Connection | None, segments_per_task: int = 64
) -> Audit:
    """Audit a bucket. The bounds of logs come from storage, or from the topic objects if ``connection`` is None.

    Raises Unavailable, and PySparkException if a task fails.
    """
    pace = Pace()
    logs, listing, findings = _listed(bucket, namespace, connection)
    findings += listing.leftovers(logs, time.time_ns() // 1_000_000)
    bytes_done = spark.sparkContext.accumulator(0)
    objects_done = spark.sparkContext.accumulator(0)
    keys = [*listing.segments, *listing.pages]

    def status() -> str:
        rate = pace.per_second(bytes_done.value)
        return f"{amount(objects_done.value)} of {amount(len(keys))} segments and pages, {size(rate)}/s"

    slices = max(1, -(-len(keys) // segments_per_task))
    frame = spark.createDataFrame([(key,) for key in keys], "key string").repartition(slices)
    with ticking(status):
        checked = frame.mapInArrow(_checker(bucket, bytes_done, objects_done), _CHECKED).toArrow()
    segments = records = partitions = 0
    for (topic, partition), rows in groupby(_in_order(checked), lambda row: (row.topic, row.partition)):
        of_partition = list(rows)
        findings += [finding for row in of_partition for finding in row.findings]
        of_log = [row for row in of_partition if parse_segment_key(row.key) and not row.gone]
        bounds = logs.get((topic, partition))
        if bounds is not None:
            findings += check_chain(topic, partition, of_log, bounds)
            pages = (row for row in of_partition if not parse_segment_key(row.key))
            findings += check_pages(pages, of_log, bounds)
        partitions += bool(of_log)
        segments += len(of_log)
        records += sum(row.records for row in of_log)
    # Logs without any segment have no row above.
    present = {(name.topic, name.partition) for name in listing.segments.values()}
    for (topic, partition), bounds in logs.items():
        if (topic, partition) not in present:
            findings += check_chain(topic, partition, [], bounds)
    summary = Summary(
        listing.objects,
        listing.sizes,
        segments,
        records,
        partitions,
        Counter(finding.kind for finding in findings),
        pace.seconds,
        connection is not None,
    )
    return Audit(_as_rows(spark, findings), summary)


def _listed(bucket: Bucket, namespace: str, connection: Connection | None) -> tuple[Logs, Listing, list[Finding]]:
    metadata = logs_of_bucket(bucket, namespace)
    before = logs_of_storage(connection) if connection else metadata.logs
    listing = Listing.of(namespace, bucket.list(f"{namespace}/"))
    logs = around(before, logs_of_storage(connection)) if connection else metadata.logs
    return logs, listing, metadata.findings


def _checker(
    bucket: Bucket, bytes_done: Accumulator[int], objects_done: Accumulator[int]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for key in batch.column("key").to_pylist():
                row = check_object(bucket, key)
                bytes_done.add(row.size)
                objects_done.add(1)
                yield pa.RecordBatch.from_pylist([asdict(row)], schema=_ARROW)

    return check


def _in_order(checked: pa.Table) -> Iterator[Checked]:
    """Yield the results by partition and ascending offset."""
    keys = [(name, "ascending") for name in ("topic", "partition", "base_offset")]
    for batch in checked.sort_by(keys).to_batches(_ROWS_AT_A_TIME):
        for row in batch.to_pylist():
            found = [Finding(**{**each, "kind": Kind(each["kind"])}) for each in row.pop("findings")]
            entries = [Entry(**each) for each in row.pop("entries")]
            yield Checked(**row, entries=entries, findings=found)


def _as_rows(spark: SparkSession, findings: list[Finding]) -> DataFrame:
    rows = [{**asdict(found), "damage": found.kind.is_damage} for found in findings]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=FINDINGS))
