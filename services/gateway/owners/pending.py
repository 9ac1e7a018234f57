"""One partition's records on their way into the log."""

from collections.abc import Callable

from kio.schema.errors import ErrorCode

from kafscale.kafka.wire import Buffer
from kafscale.v1.common_pb2 import PartitionRef


class PendingAppend:
    """From the handler through queue, message and buffer to its outcome, which is told exactly once.

    ``trace``: the place of the span that it belongs to; empty: it is not traced.
    ``wait_for``: the high watermark that lets the reply go. Times are on Trio's clock, ``append_time_ms`` since 1970.
    """

    __slots__ = (
        "_on_finish",
        "append_time_ms",
        "base_offset",
        "deadline",
        "detail",
        "epoch",
        "error",
        "finished",
        "key",
        "log_start",
        "partition",
        "records",
        "size",
        "trace",
        "unacknowledged",
        "wait_for",
    )

    def __init__(
        self,
        partition: PartitionRef,
        key: tuple[bytes, int],
        records: Buffer,
        *,
        unacknowledged: bool,
        deadline: float,
        on_finish: Callable[["PendingAppend"], None],
        trace: str = "",
    ) -> None:
        self.partition = partition
        self.key = key
        self.records = records
        self.size = len(records)
        self.unacknowledged = unacknowledged
        self.deadline = deadline
        self._on_finish = on_finish
        self.trace = trace
        self.finished = False
        self.error = ErrorCode.none
        self.detail = ""
        self.epoch = -1
        self.base_offset = -1
        self.wait_for = 0
        self.log_start = -1
        self.append_time_ms = -1

    def finish(self, error: ErrorCode, detail: str = "") -> None:
        """Tell the outcome; whatever comes after the first time (a reply after its timeout) changes nothing."""
        if self.finished:
            return
        self.finished = True
        self.error = error
        self.detail = detail
        self.records = b""
        self._on_finish(self)
