"""Reads the ranges of a task from any instances and decodes or counts their records, each exactly once.

If a scan ends before its range does, it is continued at the next offset on the next instance.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from kafscale.errors import CorruptData, KafscaleError, Refused, Unavailable
from kafscale.v1 import common_pb2
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.client import SCAN, Client
from kafscale_spark.connection import Connection
from kafscale_spark.decode import Decoder
from kafscale_spark.loss import data_lost
from kafscale_spark.pieces import Partition, Piece, Wanted
from kafscale_spark.planning import GONE, Range, Split
from kafscale_spark.schema import COLUMNS, only_counted
from kafscale_spark.workers import begin_task

_COUNTED_ROWS = 1 << 16
_LATER = (common_pb2.UNAVAILABLE, common_pb2.NOT_OWNER, common_pb2.BUFFER_FULL)


@dataclass(frozen=True, slots=True)
class Reading:
    """The settings of all tasks of a query. ``since_ms`` and ``until_ms`` are as in a ScanRequest."""

    connection: Connection
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    piece_bytes: int
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def counts(self) -> bool:
        """Return whether records are only counted."""
        return only_counted(self.columns)


def read_split(reading: Reading, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges in order. Raises CorruptData, DataLoss, Unavailable, which name the place."""
    begin_task()
    with Client(reading.connection) as client:
        instances = _Instances(split.endpoints)
        for part in split.ranges:
            yield from _Range(reading, split.ids[part.partition[0]], part, client, instances).read()
            instances.turn()


class _Instances:
    """The instances that a task asks, in turn for its ranges. Those that failed come last."""

    def __init__(self, endpoints: tuple[str, ...]) -> None:
        self._ready = deque(endpoints)
        self._failed: deque[str] = deque()

    def __len__(self) -> int:
        return len(self._ready) + len(self._failed)

    @property
    def next(self) -> str:
        return self._ready[0] if self._ready else self._failed[0]

    def turn(self) -> None:
        self._ready.rotate(-1)

    def failed(self) -> None:
        """Record that `next` failed."""
        if self._ready:
            self._failed.append(self._ready.popleft())
        else:
            self._failed.rotate(-1)


class _Range:
    """The progress in one range: ``_next`` is the first offset that has not been yielded yet."""

    def __init__(self, reading: Reading, topic_id: bytes, part: Range, client: Client, instances: _Instances) -> None:
        self._reading = reading
        self._topic_id = topic_id
        self._part = part
        self._client = client
        self._instances = instances
        self._topic, self._number = part.partition
        self._next = part.start

    def read(self) -> Iterator[pa.RecordBatch]:
        attempts = self._client.attempts()
        tries = 0
        while self._next < self._part.end:
            before = self._next
            endpoint = self._instances.next
            tries += 1
            try:
                yield from self._scan(endpoint)
                reason = f"{endpoint}: the scan ended early"
            except Unavailable as error:
                reason = str(error)
            if self._next < self._part.end:
                self._instances.failed()
            if self._next > before:
                attempts.progress()
            # Try the next instance at once, and all of them again after a pause.
            if self._next < self._part.end and tries % len(self._instances) == 0 and not attempts.pause():
                raise Unavailable(f"{self._place()}: no storage instance makes progress: {reason}")

    def _scan(self, endpoint: str) -> Iterator[pa.RecordBatch]:
        """Read one stream from ``_next`` on. Its records are yielded even if it fails."""
        reading = self._reading
        request = pb.ScanRequest(
            partition=common_pb2.PartitionRef(topic=self._topic, topic_id=self._topic_id, partition=self._number),
            start=self._next,
            end=self._part.end,
            piece_bytes=reading.piece_bytes,
            mode=pb.ScanRequest.COUNT if reading.counts else pb.ScanRequest.BATCHES,
            since_ms=reading.since_ms,
            until_ms=reading.until_ms,
        )
        rows = _Counted(reading, self._partition) if reading.counts else _Decoded(reading, self._partition, request)
        failure: KafscaleError | None = None
        with self._client.stream_at(endpoint, SCAN, request) as pieces:
            while self._next < self._part.end:
                try:
                    found = next(pieces, None)
                except KafscaleError as error:
                    failure = error
                    break
                if found is None:
                    break
                piece, records = found
                if piece.status != common_pb2.OK:
                    failure = self._refusal(piece, endpoint)
                    break
                if not piece.first_offset <= self._next < piece.next_offset:
                    raise CorruptData(
                        f"{self._place()}: {endpoint} sent offsets {piece.first_offset} to {piece.next_offset}"
                    )
                yield from rows.feed(piece, records)
                self._next = piece.next_offset
        yield from rows.finish()
        if failure is not None:
            raise failure

    def _refusal(self, piece: pb.ScanPiece, endpoint: str) -> KafscaleError | None:
        """Return the error that a piece without records reports, or None to skip lost records. Raises DataLoss."""
        place, fail = self._place(), self._reading.fail_on_data_loss
        status = common_pb2.Status.Name(piece.status)
        if piece.status in GONE:
            data_lost(f"{place} and the following offsets no longer exist ({status}): {piece.detail}", fail=fail)
            self._next = self._part.end
            return None
        if piece.status == common_pb2.OFFSET_OUT_OF_RANGE and piece.log_start > self._next:
            data_lost(f"{place} no longer exists; the log begins at {piece.log_start}", fail=fail)
            self._next = min(piece.log_start, self._part.end)
            return None
        where = f"{place}{f' in {piece.object}' if piece.object else ''}"
        message = f"{where}, reported by {endpoint} ({status}): {piece.detail}"
        if piece.status in _LATER:
            return Unavailable(message)
        return CorruptData(message) if piece.status == common_pb2.DAMAGED else Refused(message)

    @property
    def _partition(self) -> Partition:
        return Partition(self._topic, self._number)

    def _place(self) -> str:
        return f"topic {self._topic}, partition {self._number}, offset {self._next}"


class _Decoded:
    """Decodes the records of one stream."""

    def __init__(self, reading: Reading, partition: Partition, request: pb.ScanRequest) -> None:
        wanted = Wanted(request.start, request.end, reading.since_ms, reading.until_ms)
        self._decoder = Decoder(partition, reading.columns, wanted=wanted)

    def feed(self, piece: pb.ScanPiece, records: memoryview) -> Iterator[pa.RecordBatch]:
        if records:
            # Offsets may be missing: the footer's checksum, which storage has verified, covers them.
            whole = Piece(records, piece.object, piece.first_offset, piece.epoch, gaps=True)
            yield from self._decoder.feed(whole)

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._decoder.finish()


class _Counted:
    """Makes equal rows, one for each record of one stream."""

    def __init__(self, reading: Reading, partition: Partition) -> None:
        self._schema = pa.schema([COLUMNS.field(name) for name in reading.columns])
        self._values = [partition.topic if name == "topic" else partition.number for name in reading.columns]
        self._columns: list[pa.Array] = []
        self._rows = 0

    def feed(self, piece: pb.ScanPiece, _records: memoryview) -> Iterator[pa.RecordBatch]:
        self._rows += piece.count
        while self._rows >= _COUNTED_ROWS:
            yield self._batch(_COUNTED_ROWS)

    def finish(self) -> Iterator[pa.RecordBatch]:
        if self._rows:
            yield self._batch(self._rows)

    def _batch(self, rows: int) -> pa.RecordBatch:
        self._rows -= rows
        if not self._values:
            return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))
        if not self._columns or len(self._columns[0]) < rows:
            self._columns = [
                pa.repeat(pa.scalar(value, field.type), rows)
                for value, field in zip(self._values, self._schema, strict=True)
            ]
        columns = [column.slice(0, rows) for column in self._columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
