"""What the processes of a cluster did in each interval of the last hour, from the totals that they report. No IO."""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafscale.v1.admin_pb2 import ClusterTotalsReply
from kafscale.v1.process_pb2 import ProcessTotals

EVERY_SECONDS = 10
KEPT_SECONDS = 3600
KEPT_POINTS = KEPT_SECONDS // EVERY_SECONDS
LONGEST_SECONDS = 3.5 * EVERY_SECONDS
"""A longer interval is not kept. Two reports may be missing."""
COUNTED = (
    "produced_records",
    "produced_bytes",
    "fetched_bytes",
    "scanned_bytes",
    "puts",
    "gets",
    "lists",
    "deletes",
    "stored_bytes",
    "read_bytes",
)
"""The fields of ProcessTotals that grow."""


class _Point(NamedTuple):
    """``counts``: by the order of COUNTED. ``silent``: the number of processes that did not report their totals."""

    time_ms: int
    seconds: float
    silent: int
    counts: tuple[int, ...]


class Rates:
    """The intervals between the reports that `take` got. The last hour is kept."""

    def __init__(self) -> None:
        self._points: deque[_Point] = deque(maxlen=KEPT_POINTS)
        self._known: dict[str, tuple[float, ProcessTotals]] = {}  # by process, with the time of the report
        self._last: float | None = None

    def due(self, now: float) -> bool:
        """Whether most of an interval has passed since the last report. ``now``: seconds of a monotonic clock."""
        return self._last is None or now - self._last >= 0.8 * EVERY_SECONDS

    def take(self, reply: ClusterTotalsReply, now: float, now_ms: int) -> None:
        """Add the interval that ends now, unless it is longer than LONGEST_SECONDS.

        A process that has started since the last report is counted from its start. One that is seen for the first time
        and is older, or that did not report for LONGEST_SECONDS, is counted from now on.
        What a process did between its last report and its end stays unknown.
        """
        seconds = 0.0 if self._last is None else now - self._last
        self._known = {name: seen for name, seen in self._known.items() if now - seen[0] <= LONGEST_SECONDS}
        sums, silent = [0] * len(COUNTED), 0
        for instance in reply.instances:
            if not instance.HasField("totals"):
                silent += 1
                continue
            totals = instance.totals
            _, former = self._known.get(totals.process, (0.0, None))
            if former is None:
                former = ProcessTotals() if totals.uptime_ms <= 1000 * seconds else totals
            for at, field in enumerate(COUNTED):
                sums[at] += getattr(totals, field) - getattr(former, field)
            self._known[totals.process] = now, totals
        if self._last is not None and seconds <= LONGEST_SECONDS:
            self._points.append(_Point(now_ms, seconds, silent, tuple(sums)))
        self._last = now

    def columns(self, now_ms: int) -> Mapping[str, list[Any]]:
        """Return the intervals of the last hour in columns: their ends, lengths in seconds, and counts."""
        points = [each for each in self._points if now_ms - each.time_ms < 1000 * KEPT_SECONDS]
        columns: dict[str, list[Any]] = {
            "time_ms": [each.time_ms for each in points],
            "seconds": [round(each.seconds, 3) for each in points],
            "silent": [each.silent for each in points],
        }
        return columns | {name: [each.counts[at] for each in points] for at, name in enumerate(COUNTED)}
