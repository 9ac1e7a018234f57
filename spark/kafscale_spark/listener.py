"""Reports the progress of streaming queries: rows, bytes and lag, as log lines and as values."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from kafscale.errors import KafscaleError
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.client import Client
from kafscale_spark.connection import CONNECTION_OPTIONS, Connection, connection_of
from kafscale_spark.edges import TopicPartition
from kafscale_spark.options import read_options
from kafscale_spark.planning import is_gone, plan
from kafscale_spark.stream_offsets import StreamOffsets, is_ours, parse_offsets
from kafscale_spark.subscription import Found

_MOST_QUERIES = 1000
_LISTED = 5

_log = logging.getLogger("kafscale_spark.progress")


@dataclass(frozen=True, slots=True)
class Progress:
    """A query after a trigger. ``behind`` is the number of unread offsets by partition, or None if unknown."""

    query: str
    batch: int
    rows: int
    rows_per_second: float
    bytes_per_second: float | None = None
    behind: Mapping[str, int] | None = field(default_factory=dict)

    @property
    def offsets_behind(self) -> int | None:
        return None if self.behind is None else sum(self.behind.values())

    def __str__(self) -> str:
        parts = [f"{self.rows:,} rows", f"{self.rows_per_second:,.0f} rows/s"]
        if self.bytes_per_second is not None:
            parts.append(f"{self.bytes_per_second / 1e6:,.1f} MB/s")
        if self.behind is None:
            parts.append("offsets behind unknown")
        else:
            most = sorted(((n, name) for name, n in self.behind.items() if n), reverse=True)
            listed = ", ".join(f"{name} {n:,}" for n, name in most[:_LISTED])
            more = f", and {len(most) - _LISTED} more partitions" if len(most) > _LISTED else ""
            parts.append(f"{self.offsets_behind:,} offsets behind{f' ({listed}{more})' if most else ''}")
        return f"{self.query}, batch {self.batch}: {', '.join(parts)}"


class KafscaleListener(StreamingQueryListener):
    """`spark.streams.addListener(KafscaleListener())`: a log line at INFO after every trigger of a kafscale source.

    ``progress`` has the newest progress of each query, by its name, or by its id if it has no name. ``options`` are
    those of the connection, as for the source, including `kafscale.endpoints`. With them, storage is asked for bytes
    and for the ends of logs, which Spark itself reports from 4.2 on. A query's first batch has no rate of bytes,
    because Spark does not report its start.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.progress: dict[str, Progress] = {}
        self._connection: Connection | None = None
        if options is not None:
            self._connection = connection_of(read_options(CONNECTION_OPTIONS, options))

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing: no offset has changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the last progress stays available."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Log and keep the progress. Spark calls this after every trigger."""
        found = self._progress(event.progress)
        if found is None:
            return
        self.progress.pop(found.query, None)
        while len(self.progress) >= _MOST_QUERIES:
            del self.progress[next(iter(self.progress))]
        self.progress[found.query] = found
        _log.info("%s", found)

    def _progress(self, reported: Any) -> Progress | None:
        """Return a query's progress, or None if it has no kafscale source."""
        sources = [source for source in reported.sources if is_ours(_json(source.endOffset))]
        if not sources:
            return None
        behind: dict[str, int] | None = {}
        read_bytes: int | None = 0
        for source in sources:
            start, end, latest = (
                _offsets(text) for text in (source.startOffset, source.endOffset, source.latestOffset)
            )
            if self._connection is not None:
                latest, of_source = self._from_storage(start, end)
                read_bytes = None if read_bytes is None or of_source is None else read_bytes + of_source
            if latest is None or end is None or behind is None:
                behind = None
            else:
                for key, newest in latest.offsets.items():
                    behind[_name(key)] = max(0, newest - end.offsets.get(key, 0))
        seconds = reported.durationMs.get("triggerExecution", 0) / 1000
        rate = read_bytes / seconds if self._connection is not None and read_bytes is not None and seconds else None
        rows = sum(source.numInputRows for source in sources)
        return Progress(
            str(reported.name or reported.id),
            reported.batchId,
            rows,
            rows / seconds if seconds else 0.0,
            rate,
            behind,
        )

    def _from_storage(
        self, start: StreamOffsets | None, end: StreamOffsets | None
    ) -> tuple[StreamOffsets | None, int | None]:
        """Ask storage for the ends of logs and the number of bytes from ``start`` to ``end``. None means unknown."""
        if self._connection is None or end is None:
            return None, None
        found = Found(tuple(sorted(end.offsets)), end.ids)
        begun = end.offsets if start is None else start.offsets
        try:
            with Client(self._connection) as client:
                plans = plan(
                    client,
                    {
                        key: pb.PartitionScan(
                            partition=found.ref(key),
                            # New partitions are read from their beginning.
                            start=pb.Bound(offset=begun[key]) if key in begun else pb.Bound(earliest=True),
                            end=pb.Bound(offset=end.offsets[key]),
                        )
                        for key in found.partitions
                    },
                )
        except KafscaleError as error:
            _log.warning("the lag of a query is unknown: %s", error)
            return None, None
        ends = {key: one.high_watermark for key, one in plans.items() if not is_gone(one)}
        of_all = sum(split.bytes for one in plans.values() for split in one.splits)
        return StreamOffsets(ends, end.ids), None if start is None else of_all


def _offsets(text: str | None) -> StreamOffsets | None:
    found = _json(text)
    return parse_offsets(found) if is_ours(found) else None


def _json(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def _name(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"
