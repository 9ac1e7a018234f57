"""Audits a bucket with Spark: tasks check objects, and the driver checks each log and each intake as a whole.

The part of a log that was rewritten is what its newest root names. Roots are listed after the segments are read,
because segments are deleted some time after a root took their place.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession

from kafscale.paths import parse_segment_key
from kafscale.rewritten.keys import all_rewritten_prefix
from kafscale_spark.audit.bucket import Bucket
from kafscale_spark.audit.chain import check_chain
from kafscale_spark.audit.findings import Finding, Kind
from kafscale_spark.audit.intakes import (
    CheckedIntake,
    EntryRange,
    check_intake,
    check_intakes,
    check_tails,
    is_lost,
)
from kafscale_spark.audit.listing import Listing
from kafscale_spark.audit.metadata import Logs, around, logs_of_bucket, logs_of_storage
from kafscale_spark.audit.objects import Checked, Entry, check_object
from kafscale_spark.audit.pages import check_pages
from kafscale_spark.audit.rewritten import (
    CheckedRewritten,
    Lost,
    RewrittenPart,
    check_rewritten,
    check_rewritten_part,
    missing_objects,
)
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
_FINDINGS = "findings array<struct<kind:string,topic:string,partition:int,offset:bigint,key:string,detail:string>>"
_CHECKED = (
    "key string, topic string, partition int, base_offset bigint, next_offset bigint, epoch int, size bigint, "
    "records bigint, gone boolean, topic_id binary, "
    f"entries array<struct<{','.join(f'{name}:bigint' for name, _ in _ENTRY)}>>, {_FINDINGS}"
)
_RANGE = [
    ("topic", pa.string()),
    ("topic_id", pa.binary()),
    ("partition", pa.int32()),
    ("epoch", pa.int32()),
    ("base_offset", pa.int64()),
    ("next_offset", pa.int64()),
]
_INTAKE_ARROW = pa.schema(
    [
        ("key", pa.string()),
        ("run_id", pa.string()),
        ("number", pa.int64()),
        ("size", pa.int64()),
        ("checkpoint", pa.int64()),
        ("seal", pa.bool_()),
        ("gone", pa.bool_()),
        ("entries", pa.list_(pa.struct(_RANGE))),
        ("findings", pa.list_(pa.struct(_FOUND))),
    ]
)
_INTAKE = (
    "key string, run_id string, number bigint, size bigint, checkpoint bigint, seal boolean, gone boolean, entries "
    "array<struct<topic:string,topic_id:binary,partition:int,epoch:int,base_offset:bigint,next_offset:bigint>>, "
    f"{_FINDINGS}"
)
_REWRITTEN_ARROW = pa.schema(
    [
        ("key", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("size", pa.int64()),
        ("gone", pa.bool_()),
        ("content", pa.binary()),
        ("findings", pa.list_(pa.struct(_FOUND))),
    ]
)
_REWRITTEN = f"key string, topic string, partition int, size bigint, gone boolean, content binary, {_FINDINGS}"
_ROWS_AT_A_TIME = 10_000
Check = Callable[[Bucket, str], Checked | CheckedIntake | CheckedRewritten]
_NOT_REWRITTEN = RewrittenPart([])


@dataclass(frozen=True, slots=True)
class Summary:
    """The totals of an audit. ``objects``, ``sizes`` (bytes) and ``findings`` are by kind.

    ``rewritten`` is the number of rewritten objects in logs.
    """

    objects: Counter[str]
    sizes: Counter[str]
    segments: int
    rewritten: int
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
    metadata = logs_of_bucket(bucket, namespace)
    before = logs_of_storage(connection) if connection else metadata.logs
    listing = Listing.of(namespace, bucket.list(f"{namespace}/"))
    tasks = _Tasks(spark, bucket, pace, listing, segments_per_task)
    of_intakes, entries = check_intakes(tasks.intakes(), partial(is_lost, bucket, namespace))
    # Read after the objects of intakes: what was deleted meanwhile is below these ends.
    logs = around(before, logs_of_storage(connection)) if connection else metadata.logs
    findings = [*metadata.findings, *of_intakes, *check_tails(entries, logs)]
    findings += listing.leftovers(logs, time.time_ns() // 1_000_000)
    checked = tasks.segments_and_pages()
    rewritten = Listing.of(namespace, bucket.list(all_rewritten_prefix(namespace))).rewritten
    parts = _parts(tasks.rewritten([*rewritten]), logs, partial(missing_objects, bucket))
    findings += [finding for part in parts.values() for finding in part.findings]
    segments, partitions = 0, set[tuple[str, int]]()
    records = sum(part.records for part in parts.values())
    for (topic, partition), rows in groupby(_in_order(checked), lambda row: (row.topic, row.partition)):
        of_partition = list(rows)
        part = parts.get((topic, partition), _NOT_REWRITTEN)
        pages = [row for row in of_partition if not parse_segment_key(row.key)]
        of_log = [row for row in of_partition if parse_segment_key(row.key) and row.base_offset >= part.through]
        replaced = [row for row in of_partition if parse_segment_key(row.key) and row.base_offset < part.through]
        findings += [*part.leftovers(replaced), *(finding for row in [*of_log, *pages] for finding in row.findings)]
        of_log = [row for row in of_log if not row.gone]
        bounds = logs.get((topic, partition))
        if bounds is not None:
            findings += check_chain(topic, partition, of_log, part.bounds(bounds))
            findings += check_pages(pages, of_log, bounds)
        if of_log:
            partitions.add((topic, partition))
        segments += len(of_log)
        records += sum(row.records for row in of_log)
    # Logs without any segment have no row above.
    present = {(name.topic, name.partition) for name in listing.segments.values()}
    for (topic, partition), bounds in logs.items():
        if (topic, partition) not in present:
            part = parts.get((topic, partition), _NOT_REWRITTEN)
            findings += check_chain(topic, partition, [], part.bounds(bounds))
    summary = Summary(
        listing.objects,
        listing.sizes,
        segments,
        sum(part.objects for part in parts.values()),
        records,
        len(partitions | {name for name, part in parts.items() if part.objects}),
        Counter(finding.kind for finding in findings),
        pace.seconds,
        connection is not None,
    )
    return Audit(_as_rows(spark, findings), summary)


class _Tasks:
    """Runs the checks of single objects on the executors. Shows the progress of all of them together."""

    def __init__(
        self, spark: SparkSession, bucket: Bucket, pace: Pace, listing: Listing, objects_per_task: int
    ) -> None:
        self._spark = spark
        self._bucket = bucket
        self._pace = pace
        self._listing = listing
        self._objects_per_task = objects_per_task
        self._bytes_done = spark.sparkContext.accumulator(0)
        self._objects_done = spark.sparkContext.accumulator(0)

    def segments_and_pages(self) -> pa.Table:
        return self._checked([*self._listing.segments, *self._listing.pages], check_object, _ARROW, _CHECKED)

    def rewritten(self, keys: Sequence[str]) -> list[CheckedRewritten]:
        table = self._checked(keys, check_rewritten, _REWRITTEN_ARROW, _REWRITTEN)
        return [
            CheckedRewritten(**row, findings=_findings(found))
            for row in table.to_pylist()
            for found in [row.pop("findings")]
        ]

    def intakes(self) -> list[CheckedIntake]:
        table = self._checked(self._listing.intakes, check_intake, _INTAKE_ARROW, _INTAKE)
        return [
            CheckedIntake(**row, entries=[EntryRange(**each) for each in entries], findings=_findings(found))
            for row in table.to_pylist()
            for entries, found in [(row.pop("entries"), row.pop("findings"))]
        ]

    def _checked(self, keys: Sequence[str], check: Check, schema: pa.Schema, columns: str) -> pa.Table:
        if not keys:
            return schema.empty_table()
        slices = -(-len(keys) // self._objects_per_task)
        frame = self._spark.createDataFrame([(key,) for key in keys], "key string").repartition(slices)
        checker = _checker(self._bucket, check, schema, self._bytes_done, self._objects_done)
        with ticking(self._status):
            return frame.mapInArrow(checker, columns).toArrow()

    def _status(self) -> str:
        listing = self._listing
        total = len(listing.segments) + len(listing.pages) + len(listing.rewritten) + len(listing.intakes)
        rate = self._pace.per_second(self._bytes_done.value)
        return f"{amount(self._objects_done.value)} of {amount(total)} objects, {size(rate)}/s"


def _checker(
    bucket: Bucket, check: Check, schema: pa.Schema, bytes_done: Accumulator[int], objects_done: Accumulator[int]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def check_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for key in batch.column("key").to_pylist():
                row = check(bucket, key)
                bytes_done.add(row.size)
                objects_done.add(1)
                yield pa.RecordBatch.from_pylist([asdict(row)], schema=schema)

    return check_all


def _parts(rows: Iterable[CheckedRewritten], logs: Logs, lost: Lost) -> dict[tuple[str, int], RewrittenPart]:
    """Return the rewritten part of each log that has one."""
    by_log: dict[tuple[str, int], list[CheckedRewritten]] = {}
    for row in rows:
        by_log.setdefault((row.topic, row.partition), []).append(row)
    return {name: check_rewritten_part(found, logs[name], lost) for name, found in by_log.items() if name in logs}


def _in_order(checked: pa.Table) -> Iterator[Checked]:
    """Yield the results by partition and ascending offset."""
    keys = [(name, "ascending") for name in ("topic", "partition", "base_offset")]
    for batch in checked.sort_by(keys).to_batches(_ROWS_AT_A_TIME):
        for row in batch.to_pylist():
            found = _findings(row.pop("findings"))
            entries = [Entry(**each) for each in row.pop("entries")]
            yield Checked(**row, entries=entries, findings=found)


def _findings(rows: list[dict[str, Any]]) -> list[Finding]:
    return [Finding(**{**row, "kind": Kind(row["kind"])}) for row in rows]


def _as_rows(spark: SparkSession, findings: list[Finding]) -> DataFrame:
    rows = [{**asdict(found), "damage": found.kind.is_damage} for found in findings]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=FINDINGS))
