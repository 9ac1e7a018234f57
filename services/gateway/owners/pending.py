"""An append of records to one partition."""

from collections.abc import Callable

from kio.schema.errors import ErrorCode

from kafscale.kafka.wire import Buffer
from kafscale.records.batch import BatchHeader, walk
from kafscale.v1.common_pb2 import PartitionRef
from services.gateway.owners.refused import SentSequence

_ALL = -1
_ENTRY_BYTES = 32
"""The size of an append in a message, excluding its records and the name of its partition."""


class PendingAppend:
    """An append, from the handler through queue, message and buffer to its outcome, which is reported exactly once.

    ``trace`` identifies the span that the append belongs to, or is empty if it is not traced. ``sequence`` is set for
    idempotent producers. ``header`` is set if the records are one batch that was checked. The response is sent when the
    high watermark has reached ``wait_for`` and the end of the segments ``hold_until``. ``size`` is the number of bytes
    of the records, ``message_size`` of all in a message. `keep_records` sets ``records``. Times are Trio's, except
    ``append_time_ms``, which is Unix time.
    """

    __slots__ = (
        "_given",
        "_on_finish",
        "acks",
        "append_time_ms",
        "base_offset",
        "deadline",
        "detail",
        "epoch",
        "error",
        "finished",
        "header",
        "hold_until",
        "key",
        "log_start",
        "message_size",
        "partition",
        "records",
        "sequence",
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
        acks: int,
        deadline: float,
        on_finish: Callable[["PendingAppend"], None],
        header: BatchHeader | None = None,
        sequence: SentSequence | None = None,
        trace: str = "",
    ) -> None:
        self.partition = partition
        self.key = key
        self._given: Buffer = records
        self.records: Buffer = b""
        self.size = len(records)
        # A message of many small appends consists mostly of their framing.
        self.message_size = self.size + partition.ByteSize() + _ENTRY_BYTES
        self.acks = acks
        self.unacknowledged = acks != _ALL
        self.deadline = deadline
        self._on_finish = on_finish
        self.header = header
        self.sequence = sequence
        self.trace = trace
        self.finished = False
        self.error = ErrorCode.none
        self.detail = ""
        self.epoch = -1
        self.base_offset = -1
        self.wait_for = 0
        self.hold_until = 0
        self.log_start = -1
        self.append_time_ms = -1

    @property
    def batches(self) -> list[tuple[int, BatchHeader]]:
        """The batches with their positions. Raises CorruptData if the records were not checked."""
        return list(walk(self.records)) if self.header is None else [(0, self.header)]

    def keep_records(self) -> None:
        """Copy the records, because a view would keep all that was received together with them.

        Records that are most of a request that was received in several parts are not copied. Its buffer has no more.
        """
        given, self._given = self._given, b""
        request = given.obj if isinstance(given, memoryview) else None
        is_most = isinstance(request, bytearray) and 8 * len(given) > 7 * len(request)
        self.records = given if is_most else bytes(given)

    def finish(self, error: ErrorCode, detail: str = "") -> None:
        """Report the outcome. Only the first call has an effect, because a reply can arrive after the timeout."""
        if self.finished:
            return
        self.finished = True
        self.error = error
        self.detail = detail
        self.records, self._given, self.header = b"", b"", None
        self._on_finish(self)
