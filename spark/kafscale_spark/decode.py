"""Decodes record batches to Arrow without a Python object per record, in memory bounded by `Limits`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafscale.errors import CorruptData
from kafscale.records.codecs import CODEC_BITS, codec_of
from kafscale_spark import kernel
from kafscale_spark.columns import BinaryColumn, HeadersColumn
from kafscale_spark.machine import Bytes, Ints, frozen
from kafscale_spark.packed import Unpacker
from kafscale_spark.pieces import Chain, Partition, Piece, Wanted
from kafscale_spark.schema import TIMESTAMP, schema_of

_INT32_MAX = 2**31 - 1
_FIXED_BYTES = {"key": 5, "value": 5, "partition": 4, "offset": 8, "timestamp": 8, "timestampType": 4, "headers": 5}
_TOGETHER = 1 << 20
"""The size of decompressed batches that are decoded together."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a RecordBatch, and of a stored batch after decompression (``batch_bytes``).

    A record of more than ``arrow_bytes`` gets a RecordBatch of its own. A decoder uses at most about twice
    ``arrow_bytes`` and three times ``batch_bytes`` of memory.
    """

    rows: int = 1 << 16
    arrow_bytes: int = 8 << 20
    batch_bytes: int = 128 << 20

    def __post_init__(self) -> None:
        if (
            self.rows < 1
            or not 1 <= self.arrow_bytes <= _INT32_MAX // 2
            or not 1 <= self.batch_bytes <= _INT32_MAX // 2
        ):
            raise ValueError(f"{self}: rows must be at least 1, bytes from 1 to {_INT32_MAX // 2}")


_ALL = Wanted()
_USUAL = Limits()


class Decoder:
    """Decodes the wanted columns and records of a partition's pieces to RecordBatches.

    `feed` yields full RecordBatches and `finish` the last one. Control batches have no rows. Timestamps that do not fit
    in microseconds are null. Both raise CorruptData, which names topic, partition, offset and object.
    """

    def __init__(
        self, partition: Partition, columns: Iterable[str], *, wanted: Wanted = _ALL, limits: Limits = _USUAL
    ) -> None:
        self.schema = schema_of(columns)
        self._partition = partition
        self._rows = _Rows(partition, self.schema.names, wanted, limits)
        self._chain = Chain(partition, self._rows.request)
        self._unpacker = Unpacker(limits.batch_bytes)
        self._constants: dict[str, pa.Array] = {}

    def feed(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Add the wanted records of ``piece``, and yield the RecordBatches that become full."""
        for table in self._chain.tables(piece):
            for data, batches in _opened(piece, table, self._partition, self._unpacker):
                while self._rows.fill(piece, data, batches):
                    yield self._take()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the last RecordBatch, if any rows remain."""
        if self._rows.count:
            yield self._take()

    def _take(self) -> pa.RecordBatch:
        rows = self._rows.count
        arrays = [self._column(name, rows) for name in self.schema.names]
        self._rows.clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, rows: int) -> pa.Array:
        found = self._rows.take(name)
        return self._constant(name, rows) if found is None else found

    def _constant(self, name: str, rows: int) -> pa.Array:
        """Return the column of the topic or the partition, a slice of one array."""
        longest = self._constants.get(name)
        if longest is None or len(longest) < rows:
            value = self._partition.topic if name == "topic" else self._partition.number
            longest = self._constants[name] = pa.repeat(pa.scalar(value, self.schema.field(name).type), rows)
        return longest.slice(0, rows)


def _opened(piece: Piece, table: Ints, partition: Partition, unpacker: Unpacker) -> Iterator[tuple[Bytes, Ints]]:
    """Yield the table's batches in parts, each with the decompressed data that its positions refer to.

    Raises CorruptData after yielding the valid batches before the damage.
    """
    sizes = table[:, kernel.END] - table[:, kernel.START]
    if not ((table[:, kernel.ATTRIBUTES] & CODEC_BITS).any() or sizes.max() > unpacker.most_bytes):
        yield frozen(piece.data), table
        return
    view = memoryview(piece.data)
    parts: list[bytes] = []
    first = held = 0
    columns = (kernel.TAKE, kernel.ATTRIBUTES, kernel.START, kernel.END)
    for number, (take, attributes, start, end) in enumerate(table[:, columns].tolist()):
        if not take:
            continue
        try:
            part = unpacker.unpack(codec_of(attributes), view[start:end])
        except CorruptData as error:
            if parts:
                yield _joined(parts), table[first:number]
            raise partition.damaged(int(table[number, kernel.BASE_OFFSET]), piece.source, error) from error
        if parts and held + len(part) > _TOGETHER:
            yield _joined(parts), table[first:number]
            parts, first, held = [], number, 0
        table[number, kernel.START], table[number, kernel.END] = held, held + len(part)
        parts.append(part)
        held += len(part)
    if parts:
        yield _joined(parts), table[first:]


def _joined(parts: list[bytes]) -> Bytes:
    return frozen(parts[0] if len(parts) == 1 else b"".join(parts))


class _Rows:
    """The columns of the rows decoded since the last `clear`."""

    def __init__(self, partition: Partition, names: list[str], wanted: Wanted, limits: Limits) -> None:
        self._partition = partition
        row_bytes = sum(_FIXED_BYTES.get(name, 4 + len(partition.topic)) for name in names)
        flags = [name in names for name in ("key", "value", "headers", "offset", "timestamp", "timestampType")]
        bounds = (wanted.start, wanted.end, *wanted.times)
        self.request: Ints = np.array([*bounds, limits.rows, limits.arrow_bytes, row_bytes, *flags], np.int64)
        self._state: Ints = np.zeros(kernel.STATE, np.int64)
        self._state[kernel.AT] = -1
        rows, most = limits.rows, limits.arrow_bytes
        self._keys = BinaryColumn(rows, most, wanted=flags[0])
        self._values = BinaryColumn(rows, most, wanted=flags[1])
        self._headers = HeadersColumn(rows, wanted=flags[2])
        self._offsets, self._timestamps = (np.empty(rows if flag else 1, np.int64) for flag in flags[3:5])
        self._kinds = np.empty(rows if flags[5] else 1, np.int32)

    @property
    def count(self) -> int:
        return int(self._state[kernel.ROWS])

    def fill(self, piece: Piece, data: Bytes, batches: Ints) -> bool:
        """Add the wanted rows of the batches. If the result is true, take the full columns, `clear`, and call again."""
        answer = self._decode(data, batches)
        while answer == kernel.NO_ROOM:
            filled, needed = (self._state[at : at + 5].tolist() for at in (kernel.KEYS_END, kernel.NEEDS))
            self._keys.reserve(filled[0], needed[0])
            self._values.reserve(filled[1], needed[1])
            self._headers.reserve(filled[2:], needed[2:])
            answer = self._decode(data, batches)
        if answer in kernel.FAULTS:
            offset = int(batches[self._state[kernel.BATCH], kernel.BASE_OFFSET])
            raise self._partition.damaged(offset, piece.source, CorruptData(kernel.FAULTS[answer]))
        if answer == kernel.DONE:
            self._state[: kernel.ROWS] = (0, -1, 0, 0)
        return answer == kernel.FULL

    def take(self, name: str) -> pa.Array | None:
        """Return the named column, or None for the topic and the partition."""
        rows, state = self.count, self._state
        if name == "key":
            return self._keys.take(rows, int(state[kernel.KEYS_END]), int(state[kernel.KEY_NULLS]))
        if name == "value":
            return self._values.take(rows, int(state[kernel.VALUES_END]), int(state[kernel.VALUE_NULLS]))
        if name == "headers":
            return self._headers.take(rows, *state[kernel.HEADERS_END : kernel.NEEDS].tolist())
        if name == "offset":
            return pa.array(self._offsets[:rows].copy())
        if name == "timestamp":
            times = self._timestamps[:rows].copy()
            return pa.array(times, mask=times == kernel.NO_TIME if state[kernel.TIME_NULLS] else None).view(TIMESTAMP)
        if name == "timestampType":
            return pa.array(self._kinds[:rows].copy())
        return None

    def clear(self) -> None:
        """Remove the rows, after they have been taken."""
        self._state[kernel.ROWS :] = 0

    def _decode(self, data: Bytes, batches: Ints) -> int:
        keys, values, headers = self._keys, self._values, self._headers
        return kernel.decode(
            data,
            batches,
            len(batches),
            self.request,
            self._state,
            self._offsets,
            self._timestamps,
            self._kinds,
            keys.data,
            keys.ends,
            keys.valid,
            values.data,
            values.ends,
            values.valid,
            headers.ends,
            headers.keys,
            headers.key_ends,
            headers.values,
            headers.value_ends,
            headers.valid,
        )
