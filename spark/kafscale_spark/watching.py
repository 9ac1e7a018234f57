"""Runs the queries of a job, shows their progress on a terminal, and returns their totals."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kafscale_spark.progress import Pace, amount, size, ticking

_METRICS = "kafscale_rows"


def measured(frame: DataFrame, bad: Column | None = None) -> DataFrame:
    """Let the query report the number and bytes of these records, and how many are ``bad``. Use once per query."""
    lengths = [f.coalesce(f.length(f.col(name)), f.lit(0)) for name in ("key", "value")]
    wrong = f.lit(0) if bad is None else bad.cast("int")
    return frame.observe(
        _METRICS,
        f.count(f.lit(1)).alias("rows"),
        f.sum(lengths[0] + lengths[1]).alias("bytes"),
        f.sum(wrong).alias("bad"),
    )


@dataclass(slots=True)
class Totals:
    """Totals of all queries of a job. ``late`` is Spark's count of rows that arrived after the watermark."""

    rows: int = 0
    bytes: int = 0
    bad: int = 0
    late: int = 0
    batches: int = 0
    lag: dict[str, int] = field(default_factory=dict)
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def add(self, name: str, progress: Mapping[str, Any]) -> None:
        """Add the progress of one micro-batch. The same micro-batch is counted once."""
        found = (f"{name} {progress['runId']}", int(progress["batchId"]))
        self.lag[name] = lag_of(progress)
        if found in self._seen:
            return
        self._seen.add(found)
        self.batches += 1
        row = (progress.get("observedMetrics") or {}).get(_METRICS) or {}
        self.rows += int(row.get("rows") or 0)
        self.bytes += int(row.get("bytes") or 0)
        self.bad += int(row.get("bad") or 0)
        self.late += sum(int(part.get("numRowsDroppedByWatermark") or 0) for part in progress.get("stateOperators", []))


def lag_of(progress: Mapping[str, Any]) -> int:
    """Return the lag of a query's sources in offsets, as far as they report it."""
    behind = 0
    for source in progress.get("sources", []):
        latest, end = (_offsets(source.get(name)) for name in ("latestOffset", "endOffset"))
        behind += sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())
    return behind


def _offsets(reported: Any) -> dict[tuple[str, str], int]:
    offsets = json.loads(reported) if isinstance(reported, str) and reported.startswith("{") else reported
    if not isinstance(offsets, dict):
        return {}
    return {
        (topic, number): offset
        for topic, partitions in offsets.items()
        if isinstance(partitions, dict)
        for number, offset in partitions.items()
        if isinstance(offset, int)
    }


def run_queries(writers: Mapping[str, DataStreamWriter]) -> Totals:
    """Start all queries, show their progress, and return when all have ended. If one fails, stop the others."""
    totals, pace = Totals(), Pace()
    queries: dict[str, StreamingQuery] = {}

    def status() -> str:
        rate = f"{amount(pace.per_second(totals.rows))} rows/s, {size(pace.per_second(totals.bytes))}/s"
        late = f", {amount(totals.late)} late" if totals.late else ""
        return f"{amount(totals.rows)} rows, {rate}, {amount(sum(totals.lag.values()))} behind{late}"

    try:
        for name, writer in writers.items():
            queries[name] = writer.start()
        with ticking(status):
            while any(query.isActive for query in queries.values()) and not any(map(_failed, queries.values())):
                _wait(list(queries.values()))
                _gather(queries, totals)
        for query in sorted(queries.values(), key=_failed, reverse=True):
            query.awaitTermination()
        _gather(queries, totals)
    finally:
        for query in queries.values():
            query.stop()
    return totals


def _failed(query: StreamingQuery) -> bool:
    return not query.isActive and query.exception() is not None


def _wait(queries: Sequence[StreamingQuery]) -> None:
    """Wait at most a second, less if a query fails."""
    for query in queries:
        if query.isActive:
            query.awaitTermination(1)
            return


def _gather(queries: Mapping[str, StreamingQuery], totals: Totals) -> None:
    for name, query in queries.items():
        for progress in query.recentProgress:
            totals.add(name, json.loads(progress.json))
