"""Converts a sink's Arrow rows to arrays for compiled code, without a Python object per row."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafscale_spark.machine import Bytes, Ends, Flags, Ints

_TEXT = (pa.string(), pa.large_string(), pa.large_binary())


@dataclass(frozen=True, slots=True)
class Binaries:
    """Bytes of rows in ``data``. Row i is from ``ends[i]`` to ``ends[i + 1]``, and null unless ``valid[i]``."""

    data: Bytes
    ends: Ends
    valid: Flags

    @classmethod
    def of(cls, array: pa.Array) -> "Binaries":
        """Convert an array of text, of bytes, or of only nulls. Raises TypeError for others."""
        if pa.types.is_null(array.type):
            return cls.nulls(len(array))
        if array.type in _TEXT:
            array = array.cast(pa.binary())
        if array.type != pa.binary():
            raise TypeError(f"{array.type} is neither text nor bytes")
        _, ends, data = array.buffers()
        size = 4 * (len(array) + 1)
        ends = np.zeros(1, np.int32) if not len(array) else np.frombuffer(ends.slice(4 * array.offset, size), np.int32)
        return cls(_frozen(data), _read_only(ends), _valid(array))

    @classmethod
    def nulls(cls, rows: int) -> "Binaries":
        return cls(_frozen(None), _read_only(np.zeros(rows + 1, np.int32)), np.zeros(rows, np.bool_))


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of rows. Row i has ``counts[i]`` headers from number ``starts[i]`` on in ``keys`` and ``values``."""

    starts: Ints
    counts: Ints
    keys: Binaries
    values: Binaries

    @classmethod
    def of(cls, array: pa.Array | None, rows: int) -> "Headers":
        """Convert lists of structs of a key and a value. Raises ValueError for a header without a key."""
        if array is None or pa.types.is_null(array.type):
            none = np.zeros(rows, np.int64)
            return cls(none, none, Binaries.nulls(0), Binaries.nulls(0))
        ends = array.offsets.to_numpy().astype(np.int64)
        counts = np.where(_valid(array), np.diff(ends), 0)
        keys, values = (Binaries.of(field) for field in array.values.flatten())
        if not keys.valid.all():
            used = np.zeros(len(keys.valid) + 1, np.int64)
            np.add.at(used, ends[:-1][counts > 0], 1)
            np.add.at(used, (ends[:-1] + counts)[counts > 0], -1)
            if (~keys.valid & (np.cumsum(used)[:-1] > 0)).any():
                raise ValueError("a header has no key")
        return cls(ends[:-1].copy(), counts, keys, values)


def milliseconds(array: pa.Array | None, rows: int, otherwise: int) -> Ints:
    """Return timestamps, or numbers of milliseconds, as milliseconds, with ``otherwise`` for nulls."""
    if array is None or pa.types.is_null(array.type):
        return np.full(rows, otherwise, np.int64)
    numbers = pc.fill_null(array.view(pa.int64()) if pa.types.is_timestamp(array.type) else array.cast(pa.int64()), 0)
    found = numbers.to_numpy()
    if pa.types.is_timestamp(array.type):
        per_second = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[array.type.unit]
        found = found * 1000 if per_second == 1 else found // (per_second // 1000)
    return np.where(_valid(array), found, otherwise).astype(np.int64)


def partitions(array: pa.Array | None, rows: int, count: int) -> Ints:
    """Return the partitions that rows name, or -1 for none. Raises ValueError for those not below ``count``."""
    if array is None or pa.types.is_null(array.type):
        return np.full(rows, -1, np.int64)
    named = np.array(pc.fill_null(array.cast(pa.int64()), -1).to_numpy(), np.int64)
    wrong = _valid(array) & ((named < 0) | (named >= count))
    if wrong.any():
        raise ValueError(f"there is no partition {named[wrong][0]} of {count}")
    return named


def _valid(array: pa.Array) -> Flags:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    return np.array(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _frozen(data: pa.Buffer | None) -> Bytes:
    return _read_only(np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8))


def _read_only(array: np.ndarray) -> np.ndarray:
    """Make the array read-only, so that the compiler sees one type for all buffers."""
    array.flags.writeable = False
    return array
