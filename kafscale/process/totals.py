"""Implements the gRPC service ``kafscale.v1.Process``: what the process has done, from its metrics."""

import time
import uuid
from collections.abc import Iterable

import trio

from kafscale.process.metrics import Metrics
from kafscale.telemetry import Histogram
from kafscale.v1.process_pb2 import ProcessTotals, TotalsRequest

_REQUESTS, _BYTES = "kafscale_s3_requests_total", "kafscale_s3_bytes_total"
_PUTS, _GETS, _LISTS, _DELETES = (
    ("put_if_absent", "replace_if_match"),
    ("get", "get_range", "head"),
    ("list_from",),
    ("delete_many",),
)


class Totals:
    """The totals of the process that has ``metrics``."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._process = uuid.uuid4().hex
        self._started = time.monotonic()

    async def totals(self, _: TotalsRequest) -> ProcessTotals:
        await trio.lowlevel.checkpoint()
        return self.current()

    def current(self) -> ProcessTotals:
        """Return the current totals."""
        return ProcessTotals(
            process=self._process,
            uptime_ms=round((time.monotonic() - self._started) * 1000),
            produced_records=self._sum("kafscale_storage_appended_records_total"),
            produced_bytes=self._sum("kafscale_storage_appended_bytes_total"),
            fetched_bytes=self._sum("kafscale_storage_fetched_bytes_total"),
            scanned_bytes=self._sum("kafscale_storage_scanned_bytes_total"),
            puts=self._sum(_REQUESTS, _PUTS),
            gets=self._sum(_REQUESTS, _GETS),
            lists=self._sum(_REQUESTS, _LISTS),
            deletes=self._sum(_REQUESTS, _DELETES),
            stored_bytes=self._sum(_BYTES, _PUTS),
            read_bytes=self._sum(_BYTES, _GETS),
        )

    def _sum(self, name: str, operations: Iterable[str] = ()) -> int:
        """Add up the values of a counter, with ``operations`` only those whose first label is one of them."""
        total: float = 0
        for labels, value in self._metrics.values(name).items():
            if not isinstance(value, Histogram) and (not operations or labels[0] in operations):
                total += value
        return int(total)
