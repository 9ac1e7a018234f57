"""The compiled loops that encode columns to records. For the format, see `kafscale.records.record`.

A slot is a partition's open batch: 61 bytes for its header, then its records. `fill` has a row for each slot.
"""

import numpy as np
from numpy.typing import NDArray

from kafscale_spark.machine import Bytes, Ends, Flags, Ints, byte_at, compiled, copy

# The state of a slot: the position of the next record, and the values for the header.
SIZE, COUNT, BASE_TIMESTAMP, MAX_TIMESTAMP = range(4)
FILL = 4

# The state of `choose`: the partition for rows without a key, and the bytes of such rows that it got.
STICKY, STICKY_BYTES = range(2)

# The results of `append`.
DONE, FULL, TOO_LARGE = range(3)

HEADER_SIZE = 61
_MURMUR_SEED, _MURMUR_FACTOR, _32_BITS = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


@compiled
def murmur2(data: Bytes, start: int, size: int) -> int:
    """Return Kafka's hash of a key (``Utils.murmur2``) as an unsigned number."""
    found = _MURMUR_SEED ^ size
    for at in range(start, start + size - 3, 4):
        word = (
            byte_at(data, at) | byte_at(data, at + 1) << 8 | byte_at(data, at + 2) << 16 | byte_at(data, at + 3) << 24
        )
        word = word * _MURMUR_FACTOR & _32_BITS
        word = (word ^ word >> 24) * _MURMUR_FACTOR & _32_BITS
        found = (found * _MURMUR_FACTOR & _32_BITS) ^ word
    rest = size & 3
    if rest:
        for index in range(rest):
            found ^= byte_at(data, start + size - rest + index) << 8 * index
        found = found * _MURMUR_FACTOR & _32_BITS
    found = (found ^ found >> 13) * _MURMUR_FACTOR & _32_BITS
    return found ^ found >> 15


@compiled
def choose(
    keys: Bytes, key_ends: Ends, key_valid: Flags, value_ends: Ends, count: int, memory: Ints, chosen: Ints, most: int
) -> None:
    """Choose one of ``count`` partitions for each row with a negative one, by its key as Kafka's clients do.

    Rows without a key go to one partition until it has ``most`` bytes of them, then to the next.
    """
    for row in range(chosen.size):
        if chosen[row] >= 0:
            continue
        if key_valid[row]:
            hashed = murmur2(keys, int(key_ends[row]), int(key_ends[row + 1] - key_ends[row]))
            chosen[row] = (hashed & 0x7FFFFFFF) % count
            continue
        if memory[STICKY_BYTES] >= most:
            memory[STICKY], memory[STICKY_BYTES] = (memory[STICKY] + 1) % count, 0
        chosen[row] = memory[STICKY]
        memory[STICKY_BYTES] += value_ends[row + 1] - value_ends[row] + 1


@compiled
def _varint_size(number: int) -> int:
    raw = np.uint64((number << 1) ^ (number >> 63))
    size = 1
    while raw > np.uint64(0x7F):
        raw >>= np.uint64(7)
        size += 1
    return size


@compiled
def _write_varint(out: Bytes, position: int, number: int) -> int:
    """Write a number and return the position after it."""
    raw = np.uint64((number << 1) ^ (number >> 63))
    while raw > np.uint64(0x7F):
        out[position] = np.uint8(raw & np.uint64(0x7F)) | np.uint8(0x80)
        raw >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(raw)
    return position + 1


@compiled
def _write_field(out: Bytes, position: int, data: Bytes, start: int, size: int) -> int:
    """Write a size, -1 for null, and that many bytes. Return the position after them."""
    position = _write_varint(out, position, size)
    if size > 0:
        copy(out, position, data, start, size)
        position += size
    return position


@compiled
def _headers_size(first: int, count: int, key_ends: Ends, value_ends: Ends, value_valid: Flags) -> int:
    total = _varint_size(count)
    for header in range(first, first + count):
        key_size = int(key_ends[header + 1] - key_ends[header])
        value_size = int(value_ends[header + 1] - value_ends[header]) if value_valid[header] else -1
        total += _varint_size(key_size) + key_size + _varint_size(value_size) + max(value_size, 0)
    return total


@compiled
def append(
    row: int,
    end: int,
    partitions: Ints,
    timestamps: Ints,
    keys: Bytes,
    key_ends: Ends,
    key_valid: Flags,
    values: Bytes,
    value_ends: Ends,
    value_valid: Flags,
    header_starts: Ints,
    header_counts: Ints,
    header_keys: Bytes,
    header_key_ends: Ends,
    header_values: Bytes,
    header_value_ends: Ends,
    header_value_valid: Flags,
    slots: NDArray[np.uint8],
    fill: Ints,
    most: int,
) -> tuple[int, int, int]:
    """Append rows from ``row`` up to ``end`` to the slots of their partitions.

    Return a result, the first row that is not appended, and for FULL and TOO_LARGE the size of that row's record. FULL:
    the slot has records and would exceed ``most`` bytes. TOO_LARGE: the slot is empty but too small for the record.
    """
    while row < end:
        partition = partitions[row]
        slot, filled = slots[partition], fill[partition]
        if filled[COUNT] == 0:
            filled[SIZE] = HEADER_SIZE
            filled[BASE_TIMESTAMP] = filled[MAX_TIMESTAMP] = timestamps[row]
        delta = timestamps[row] - filled[BASE_TIMESTAMP]
        key_at, value_at = int(key_ends[row]), int(value_ends[row])
        key_size = int(key_ends[row + 1]) - key_at if key_valid[row] else -1
        value_size = int(value_ends[row + 1]) - value_at if value_valid[row] else -1
        first, headers = header_starts[row], header_counts[row]
        size = 1 + _varint_size(delta) + _varint_size(filled[COUNT])
        size += _varint_size(key_size) + max(key_size, 0) + _varint_size(value_size) + max(value_size, 0)
        size += _headers_size(first, headers, header_key_ends, header_value_ends, header_value_valid)
        whole = _varint_size(size) + size
        if filled[SIZE] + whole > most:
            return FULL if filled[COUNT] else TOO_LARGE, row, whole
        at = _write_varint(slot, filled[SIZE], size)
        slot[at] = 0  # attributes, unused
        at = _write_varint(slot, at + 1, delta)
        at = _write_varint(slot, at, filled[COUNT])
        at = _write_field(slot, at, keys, key_at, key_size)
        at = _write_field(slot, at, values, value_at, value_size)
        at = _write_varint(slot, at, headers)
        for header in range(first, first + headers):
            start, after = int(header_key_ends[header]), int(header_key_ends[header + 1])
            at = _write_field(slot, at, header_keys, start, after - start)
            start, after = int(header_value_ends[header]), int(header_value_ends[header + 1])
            at = _write_field(slot, at, header_values, start, after - start if header_value_valid[header] else -1)
        filled[SIZE] = at
        filled[COUNT] += 1
        filled[MAX_TIMESTAMP] = max(filled[MAX_TIMESTAMP], timestamps[row])
        row += 1
    return DONE, row, 0
