"""Encodes Arrow to record batches for the sink, without a Python object per record and in bounded memory."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafscale.errors import KafscaleError
from kafscale.records.batch import HEADER_SIZE, MAGIC, BatchHeader, pack_header, seal
from kafscale.records.codecs import Codec, compress
from kafscale_spark import encode_kernel as kernel
from kafscale_spark.machine import Bytes, Ints
from kafscale_spark.rows import Binaries, Headers, milliseconds, partitions

_LEAST_SLOT = 1 << 14


class RecordTooLarge(KafscaleError):
    """A single record exceeds the topic's limit."""


class Chunk(NamedTuple):
    """Whole batches for a partition of a topic, and the number of their records."""

    topic: str
    partition: int
    data: bytes
    records: int


class Memory:
    """The memory that several encoders share: at most ``size`` bytes and a batch.

    Half is for open batches. The first topic's partitions share all of it, and those of later topics share the rest,
    but each partition gets at least 16 KiB, which may exceed ``size``. The other half is for chunks. If it is used up,
    the largest chunk of all encoders is emitted before it is full.
    """

    def __init__(self, size: int) -> None:
        self._encoders: list[Encoder] = []
        self._slots_left = size // 2
        self._most_chunks = size // 2
        self._slots = 0
        self._chunks = 0

    @property
    def held_bytes(self) -> int:
        """Return the current size of open batches and chunks."""
        return self._slots + self._chunks

    def share(self, partition_count: int) -> int:
        """Return the size of each open batch of another topic."""
        return max(self._slots_left // partition_count, _LEAST_SLOT)

    def join(self, encoder: "Encoder", slots: int) -> None:
        self._encoders.append(encoder)
        self._slots += slots
        self._slots_left = max(0, self._slots_left - slots)

    def add(self, size: int) -> None:
        """Add ``size`` bytes to the size of chunks; it may be negative."""
        self._chunks += size

    def overflow(self) -> Iterator[Chunk]:
        """Yield the largest chunk of any topic if the chunks exceed their memory."""
        if self._chunks > self._most_chunks:
            yield from max(self._encoders, key=Encoder.largest_bytes).largest()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Encoder:
    """Encodes rows to record batches (magic 2) of a topic's partitions, and keeps their order within each partition.

    `feed` takes a RecordBatch with the columns ``value`` and optionally ``key`` (binary, string or null), ``headers``
    (lists of structs of a key and a value), ``timestamp`` (of any unit, or milliseconds) and ``partition``. It ignores
    other columns. It yields chunks of about ``chunk_bytes`` when they are full. When ``memory`` is used up, it yields
    smaller ones, also of other encoders that share it. `finish` yields the remaining chunks of this encoder. Both
    iterators must be exhausted.

    A row goes to the partition that it names, or to that of its key as in Kafka's clients. Rows without a key go to one
    partition until they fill a batch, then to the next, beginning with number ``seed``. ``clock`` provides missing and
    null timestamps. Each batch has offsets from 0, no producer, and at most ``batch_bytes`` before compression unless
    it has a single larger record. Raises RecordTooLarge for a record whose batch exceeds ``max_message_bytes``,
    ValueError for unknown partitions, headers without a key and rows without the column ``value``, and TypeError for
    values of other types.
    """

    def __init__(
        self,
        topic: str,
        partition_count: int,
        *,
        memory: Memory,
        max_message_bytes: int,
        compression: Codec = Codec.NONE,
        batch_bytes: int = 1 << 20,
        chunk_bytes: int = 4 << 20,
        seed: int = 0,
        clock: Callable[[], int] = _now_ms,
    ) -> None:
        self._topic = topic
        self._count = partition_count
        self._max_message_bytes = max_message_bytes
        self._compression = compression
        self._chunk_bytes = chunk_bytes
        self._memory = memory
        self._clock = clock
        self._slot_bytes = max(HEADER_SIZE, min(batch_bytes, max_message_bytes, memory.share(partition_count)))
        self._slots = np.empty((partition_count, self._slot_bytes), np.uint8)
        self._fill: Ints = np.zeros((partition_count, kernel.FILL), np.int64)
        self._sticky: Ints = np.array([seed % partition_count, 0], np.int64)
        self._chunks: list[list[bytes]] = [[] for _ in range(partition_count)]
        self._sizes = [0] * partition_count
        self._records = [0] * partition_count
        memory.join(self, self._slots.nbytes)

    def feed(self, rows: pa.RecordBatch) -> Iterator[Chunk]:
        """Add ``rows``, and yield the chunks that become full."""
        if rows.num_rows:
            columns = _Columns(rows, self._count, self._clock)
            columns.choose(self._count, self._sticky, self._slot_bytes)
            row = 0
            while row < rows.num_rows:
                answer, row, size = columns.append(
                    row, columns.partitions, self._slots, self._fill, most=self._slot_bytes
                )
                if answer == kernel.DONE:
                    break
                partition = int(columns.partitions[row])
                if answer == kernel.FULL:
                    yield from self._close(partition, self._slots[partition], self._fill[partition])
                else:
                    yield from self._alone(columns, row, partition, HEADER_SIZE + size)
                    row += 1

    def finish(self) -> Iterator[Chunk]:
        """Yield the remaining chunks, at most one for each partition."""
        for partition in range(self._count):
            yield from self._close(partition, self._slots[partition], self._fill[partition])
            yield from self._emit(partition)

    def largest_bytes(self) -> int:
        """Return the size of the chunk that `largest` yields."""
        return max(self._sizes)

    def largest(self) -> Iterator[Chunk]:
        yield from self._emit(self._sizes.index(max(self._sizes)))

    def _alone(self, columns: "_Columns", row: int, partition: int, size: int) -> Iterator[Chunk]:
        """Encode a record that is larger than a slot as a batch of its own."""
        slots = np.empty((1, size), np.uint8)
        fill = np.zeros((1, kernel.FILL), np.int64)
        columns.append(row, np.zeros_like(columns.partitions), slots, fill, most=size, end=row + 1)
        yield from self._close(partition, slots[0], fill[0])

    def _close(self, partition: int, slot: Bytes, fill: Ints) -> Iterator[Chunk]:
        size, count, base_timestamp, max_timestamp = fill.tolist()
        if not count:
            return
        batch = self._sealed(slot[:size].data, count, base_timestamp, max_timestamp)
        if len(batch) > self._max_message_bytes:
            raise RecordTooLarge(
                f"topic {self._topic}, partition {partition}: a record needs a batch of {len(batch)} bytes,"
                f" but the topic allows {self._max_message_bytes}"
            )
        fill[kernel.COUNT] = 0
        self._chunks[partition].append(batch)
        self._sizes[partition] += len(batch)
        self._records[partition] += count
        self._memory.add(len(batch))
        if self._sizes[partition] >= self._chunk_bytes:
            yield from self._emit(partition)
        yield from self._memory.overflow()

    def _emit(self, partition: int) -> Iterator[Chunk]:
        parts = self._chunks[partition]
        if parts:
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            chunk = Chunk(self._topic, partition, data, self._records[partition])
            self._memory.add(-self._sizes[partition])
            self._chunks[partition], self._sizes[partition], self._records[partition] = [], 0, 0
            yield chunk

    def _sealed(self, batch: memoryview, count: int, base_timestamp: int, max_timestamp: int) -> bytes:
        """Return the batch with its header, compressed if that makes it smaller."""
        codec = self._compression
        if codec is not Codec.NONE:
            packed = compress(codec, batch[HEADER_SIZE:])
            if HEADER_SIZE + len(packed) < len(batch):
                batch = memoryview(bytearray(HEADER_SIZE) + packed)
            else:
                codec = Codec.NONE
        batch[:HEADER_SIZE] = pack_header(
            BatchHeader(
                base_offset=0,
                batch_length=0,
                leader_epoch=-1,
                magic=MAGIC,
                crc=0,
                attributes=codec,
                last_offset_delta=count - 1,
                base_timestamp=base_timestamp,
                max_timestamp=max_timestamp,
                producer_id=-1,
                producer_epoch=-1,
                base_sequence=-1,
                record_count=count,
            )
        )
        seal(batch)
        return bytes(batch)


class _Columns:
    """The rows of a RecordBatch in the form that the compiled loops need."""

    def __init__(self, rows: pa.RecordBatch, partition_count: int, clock: Callable[[], int]) -> None:
        count, names = rows.num_rows, rows.schema.names
        found = {name: rows.column(names.index(name)) if name in names else None for name in _NAMES}
        if found["value"] is None:
            raise ValueError(f"rows have no column value; their columns are {names}")
        self._rows = count
        self._keys = Binaries.nulls(count) if found["key"] is None else Binaries.of(found["key"])
        self._values = Binaries.of(found["value"])
        self._headers = Headers.of(found["headers"], count)
        self._timestamps = milliseconds(found["timestamp"], count, clock())
        self.partitions = partitions(found["partition"], count, partition_count)

    def choose(self, count: int, sticky: Ints, most: int) -> None:
        """Choose a partition for each row that names none."""
        keys = self._keys
        kernel.choose(keys.data, keys.ends, keys.valid, self._values.ends, count, sticky, self.partitions, most)

    def append(
        self, row: int, chosen: Ints, slots: Bytes, fill: Ints, *, most: int, end: int | None = None
    ) -> tuple[int, int, int]:
        """Call `encode_kernel.append` from ``row`` on, with the slots of the ``chosen`` partitions."""
        keys, values, headers = self._keys, self._values, self._headers
        return kernel.append(
            row,
            self._rows if end is None else end,
            chosen,
            self._timestamps,
            keys.data,
            keys.ends,
            keys.valid,
            values.data,
            values.ends,
            values.valid,
            headers.starts,
            headers.counts,
            headers.keys.data,
            headers.keys.ends,
            headers.values.data,
            headers.values.ends,
            headers.values.valid,
            slots,
            fill,
            most,
        )


_NAMES = ("key", "value", "headers", "timestamp", "partition")
