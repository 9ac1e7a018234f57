"""Builders of columns of variable size, with buffers that Arrow takes over without a copy."""

from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafscale_spark.machine import Bytes, Ends, Flags
from kafscale_spark.schema import HEADER_TYPE

_LEAST_BYTES = 1 << 12

T = TypeVar("T", bound=np.generic)


class BinaryColumn:
    """The keys or values of at most ``rows`` rows, with at most ``most_bytes`` unless a single row has more.

    If not ``wanted``, it takes no memory and must not be taken.
    """

    data: Bytes

    def __init__(self, rows: int, most_bytes: int, *, wanted: bool) -> None:
        self._most_bytes = most_bytes
        self.ends: Ends = np.zeros(rows + 1 if wanted else 1, np.int32)
        self.valid: Flags = np.empty(rows if wanted else 1, np.bool_)
        self._start(0)

    def reserve(self, filled: int, needed: int) -> None:
        """Make room for ``needed`` bytes, of which ``filled`` are used."""
        self.data = _grown(self.data, filled, needed)

    def take(self, rows: int, size: int, nulls: int) -> pa.Array:
        """Return the column of ``rows`` rows with ``size`` bytes, and empty this builder."""
        array = _array(pa.binary(), rows, self.data[:size], self.ends, self.valid if nulls else None)
        self._start(min(2 * size, self._most_bytes))
        return array

    def _start(self, room: int) -> None:
        self.data = np.empty(max(room, _LEAST_BYTES), np.uint8)


class HeadersColumn:
    """The headers of at most ``rows`` rows: null if a record has none, as in Spark's Kafka source."""

    keys: Bytes
    key_ends: Ends
    values: Bytes
    value_ends: Ends
    valid: Flags

    def __init__(self, rows: int, *, wanted: bool) -> None:
        self.ends: Ends = np.zeros(rows + 1 if wanted else 1, np.int32)
        self._start()

    def reserve(self, filled: tuple[int, int, int], needed: tuple[int, int, int]) -> None:
        """Make room for ``needed`` headers, bytes of keys and bytes of values, of which ``filled`` are used."""
        self.key_ends = _grown(self.key_ends, filled[0] + 1, needed[0] + 1)
        self.value_ends = _grown(self.value_ends, filled[0] + 1, needed[0] + 1)
        self.valid = _grown(self.valid, filled[0], needed[0])
        self.keys = _grown(self.keys, filled[1], needed[1])
        self.values = _grown(self.values, filled[2], needed[2])

    def take(self, rows: int, headers: int, key_bytes: int, value_bytes: int) -> pa.Array:
        """Return the column of ``rows`` rows with ``headers`` headers, and empty this builder."""
        keys = _text(_array(pa.binary(), headers, self.keys[:key_bytes], self.key_ends, None))
        values = _array(pa.binary(), headers, self.values[:value_bytes], self.value_ends, self.valid)
        parts = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))
        ends = self.ends[: rows + 1].copy()
        validity = _validity(np.diff(ends) > 0)
        array = pa.Array.from_buffers(pa.list_(HEADER_TYPE), rows, [validity, pa.py_buffer(ends)], children=[parts])
        self._start()
        return array

    def _start(self) -> None:
        self.keys = np.empty(_LEAST_BYTES, np.uint8)
        self.values = np.empty(_LEAST_BYTES, np.uint8)
        self.key_ends = np.zeros(_LEAST_BYTES, np.int32)
        self.value_ends = np.zeros(_LEAST_BYTES, np.int32)
        self.valid = np.empty(_LEAST_BYTES, np.bool_)


def _grown(buffer: NDArray[T], filled: int, needed: int) -> NDArray[T]:
    """Return ``buffer``, or a larger copy of its ``filled`` items if it has no room for ``needed``."""
    if needed <= len(buffer):
        return buffer
    larger = np.empty(max(needed, 2 * len(buffer)), buffer.dtype)
    larger[:filled] = buffer[:filled]
    return larger


def _array(kind: pa.DataType, rows: int, data: Bytes, ends: Ends, valid: Flags | None) -> pa.Array:
    validity = None if valid is None else _validity(valid[:rows])
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(ends[: rows + 1].copy()), pa.py_buffer(data)])


def _validity(valid: NDArray[np.bool_]) -> pa.Buffer | None:
    """Return Arrow's bitmap, or None if no value is null."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _text(keys: pa.Array) -> pa.Array:
    """Return bytes as text. Invalid UTF-8 becomes U+FFFD, as in Kafka's clients."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
