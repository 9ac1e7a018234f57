"""The compiled loops over batches and their records. For the formats, see `kafscale.records.batch` and `.record`.

`link` reads headers and adds batches to a table. `decode` reads the records of these batches and appends the wanted
ones to columns. Both check every bound. `link` stops at a fault as `kafscale.segment.chain` defines it, and `decode`
rejects the same records as `read_records`. They share arrays of int64 with the fields that are named below.
"""

import numpy as np

from kafscale_spark.machine import Bytes, Ends, Flags, Ints, compiled, copy, inlined, read_number, read_varint

# A batch in the table. START and END are the positions of its records, in the piece or in decompressed data.
START, END, BASE_OFFSET, LAST_DELTA, COUNT, ATTRIBUTES, BASE_TIMESTAMP, MAX_TIMESTAMP, CRC, TAKE = range(10)
ENTRY = 10
# TAKE: whether, by its header, a batch may have wanted records.

# The state of `link` in a piece. EXACT: no offset may be missing before the next batch. EPOCH -1: use the next batch's.
POSITION, NEXT_OFFSET, EXACT, EPOCH, GAPS, BEYOND = range(6)
PLACE = 6

# The wanted records and columns, and the limits.
FIRST_OFFSET, END_OFFSET, FIRST_TIMESTAMP, LAST_TIMESTAMP, MAX_ROWS, MAX_BYTES, ROW_BYTES = range(7)
KEYS, VALUES, HEADERS, OFFSETS, TIMESTAMPS, TYPES = range(7, 13)
REQUEST = 13

# The state of `decode`: in the table, in the batch (AT -1: not begun), in the columns since ROWS was 0.
BATCH, AT, RECORD, DELTA = range(4)
ROWS, BYTES, KEY_NULLS, VALUE_NULLS, TIME_NULLS = range(4, 9)
KEYS_END, VALUES_END, HEADERS_END, HEADER_KEYS_END, HEADER_VALUES_END = range(9, 14)
NEEDS = 14  # from here on, after NO_ROOM: the end of the next row in those five
STATE = 19

# The results of `decode`.
DONE, FULL, NO_ROOM, BAD_VARINT, BAD_LENGTH, BAD_DELTA, BAD_HEADERS, LEFT_OVER = range(8)
FAULTS = {
    BAD_VARINT: "the record does not end within the batch, or a varint is longer than 64 bits",
    BAD_LENGTH: "the record does not end where its length says",
    BAD_DELTA: "the record's offset delta is not above the one before it, or above the batch's last",
    BAD_HEADERS: "the record's headers do not fit in the remaining bytes, or one has no key",
    LEFT_OVER: "bytes are left over after the last record",
}

NO_TIME = -(2**63)
"""Marks null: a timestamp that does not fit in microseconds."""

_HEADER_SIZE = 61
_MAGIC = 2
_LENGTH_COUNTS_FROM = 12
_CONTROL_BIT, _LOG_APPEND_TIME_BIT = 0x20, 0x08
_MAX_OFFSET = 2**63 - 1
_MOST_MS = (2**63 - 1) // 1000
_BYTES_PER_HEADER = 12
"""The size of a header in Arrow in addition to its bytes: two int32 offsets and validity, rounded up."""


@compiled
def link(data: Bytes, place: Ints, request: Ints, table: Ints) -> int:
    """Add batches to ``table`` until it is full, and return their number, which is 0 at the end or at a fault.

    The caller must verify checksums. BEYOND is set if a batch begins at or above END_OFFSET.
    """
    position, found = place[POSITION], 0
    while found < table.shape[0] and position + _HEADER_SIZE <= data.size:
        size = _LENGTH_COUNTS_FROM + np.int64(np.int32(read_number(data, position + 8, 4)))
        if size < _HEADER_SIZE or size > data.size - position or data[position + 16] != _MAGIC:
            break
        base = read_number(data, position, 8)
        epoch = np.int64(np.int32(read_number(data, position + 12, 4)))
        last_delta = np.int64(np.int32(read_number(data, position + 23, 4)))
        count = np.int64(np.int32(read_number(data, position + 57, 4)))
        if place[EPOCH] < 0:
            place[EPOCH] = epoch if epoch > 0 else 0
        if last_delta < 0 or count < 0 or base > _MAX_OFFSET - last_delta - 1 or base < place[NEXT_OFFSET]:
            break
        if (place[EXACT] and base != place[NEXT_OFFSET]) or (
            epoch != place[EPOCH] and not (place[EPOCH] == 0 and epoch == -1)
        ):
            break
        if base >= request[END_OFFSET]:
            place[BEYOND] = 1
            break
        entry = table[found]
        entry[START], entry[END] = position + _HEADER_SIZE, position + size
        entry[BASE_OFFSET], entry[LAST_DELTA], entry[COUNT] = base, last_delta, count
        entry[ATTRIBUTES] = read_number(data, position + 21, 2)
        entry[BASE_TIMESTAMP] = read_number(data, position + 27, 8)
        entry[MAX_TIMESTAMP] = read_number(data, position + 35, 8)
        entry[CRC] = read_number(data, position + 17, 4)
        entry[TAKE] = _may_be_wanted(entry, request)
        place[NEXT_OFFSET], place[EXACT] = base + last_delta + 1, not place[GAPS]
        position += size
        found += 1
    place[POSITION] = position
    return found


@compiled
def _may_be_wanted(entry: Ints, request: Ints) -> bool:
    """Return whether the batch may have wanted records. It has none if all are older, as in lookups by time."""
    following = entry[BASE_OFFSET] + entry[LAST_DELTA] + 1
    newest, fixed = entry[MAX_TIMESTAMP], (entry[ATTRIBUTES] & _LOG_APPEND_TIME_BIT) != 0
    if entry[ATTRIBUTES] & _CONTROL_BIT or entry[COUNT] == 0 or following <= request[FIRST_OFFSET]:
        return False
    return not (newest < request[FIRST_TIMESTAMP] or (fixed and newest > request[LAST_TIMESTAMP]))


@inlined
def _field(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """Return the size of a field (-1: null) and the position of its bytes, which is -1 if they do not fit."""
    size, start = read_varint(data, position, end)
    if size > end - start:
        start = -1
    return max(size, -1), start


@compiled
def _header_field(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """`_field`, not inlined."""
    return _field(data, position, end)


@compiled
def _skip_headers(data: Bytes, position: int, end: int, count: int) -> tuple[int, int, int]:
    """Return the position after ``count`` headers (-1: damaged), and the sizes of their keys and values."""
    keys, values = 0, 0
    for _ in range(count):
        size, start = _header_field(data, position, end)
        if start < 0 or size < 0:
            return -1, 0, 0
        keys += size
        size, start = _header_field(data, start + size, end)
        if start < 0:
            return -1, 0, 0
        values += max(size, 0)
        position = start + max(size, 0)
    return position, keys, values


@compiled
def decode(
    data: Bytes,
    table: Ints,
    batches: int,
    request: Ints,
    state: Ints,
    offsets: Ints,
    timestamps: Ints,
    kinds: Ends,
    keys: Bytes,
    key_ends: Ends,
    key_valid: Flags,
    values: Bytes,
    value_ends: Ends,
    value_valid: Flags,
    list_ends: Ends,
    header_keys: Bytes,
    header_key_ends: Ends,
    header_values: Bytes,
    header_value_ends: Ends,
    header_valid: Flags,
) -> int:
    """Append the wanted records of the table's batches up to number ``batches`` to the wanted columns.

    FULL: the next row would exceed MAX_ROWS or MAX_BYTES. Call again with ROWS and all fields after it in ``state`` set
    to 0. A row that exceeds MAX_BYTES is the only one in its columns. NO_ROOM: a column is too small for the next row.
    Call again with larger columns. The batch with a fault is number ``state[BATCH]``.
    """
    batch, at, record, delta = state[BATCH], state[AT], state[RECORD], state[DELTA]
    row, filled = state[ROWS], state[BYTES]
    keys_end, values_end, headers_end = state[KEYS_END], state[VALUES_END], state[HEADERS_END]
    header_keys_end, header_values_end = state[HEADER_KEYS_END], state[HEADER_VALUES_END]
    wants_key, wants_value, wants_headers = request[KEYS] != 0, request[VALUES] != 0, request[HEADERS] != 0
    wants_offset, wants_time, wants_kind = request[OFFSETS] != 0, request[TIMESTAMPS] != 0, request[TYPES] != 0
    first_offset, end_offset, max_rows, max_bytes = request[0], request[1], request[MAX_ROWS], request[MAX_BYTES]
    first_timestamp, last_timestamp, row_bytes = request[2], request[3], request[ROW_BYTES]
    answer = DONE
    while batch < batches:
        entry = table[batch]
        if not entry[TAKE]:
            batch += 1
            continue
        if at < 0:
            at, record, delta = entry[START], 0, -1
        end, count, last_delta, base = entry[END], entry[COUNT], entry[LAST_DELTA], entry[BASE_OFFSET]
        fixed = (entry[ATTRIBUTES] & _LOG_APPEND_TIME_BIT) != 0
        base_timestamp = entry[MAX_TIMESTAMP] if fixed else entry[BASE_TIMESTAMP]
        while record < count:
            length, body = read_varint(data, at, end)
            if body < 0:
                answer = BAD_VARINT
                break
            if length < 1 or length > end - body:
                answer = BAD_LENGTH
                break
            after = body + length
            timestamp_delta, position = read_varint(data, body + 1, end)
            if position < 0:
                answer = BAD_VARINT
                break
            new_delta, position = read_varint(data, position, end)
            if position < 0:
                answer = BAD_VARINT
                break
            key_size, key_at = _field(data, position, end)
            if key_at < 0:
                answer = BAD_LENGTH
                break
            value_size, value_at = _field(data, key_at + max(key_size, 0), end)
            if value_at < 0:
                answer = BAD_LENGTH
                break
            headers, headers_at = read_varint(data, value_at + max(value_size, 0), end)
            if headers_at < 0:
                answer = BAD_VARINT
                break
            next_at, header_key_bytes, header_value_bytes = headers_at, 0, 0
            if headers != 0:
                if headers < 0 or headers > end - headers_at:
                    answer = BAD_HEADERS
                    break
                next_at, header_key_bytes, header_value_bytes = _skip_headers(data, headers_at, end, headers)
                if next_at < 0:
                    answer = BAD_HEADERS
                    break
            if next_at != after:
                answer = BAD_LENGTH
                break
            if new_delta <= delta or new_delta > last_delta:
                answer = BAD_DELTA
                break
            offset = base + new_delta
            timestamp = base_timestamp if fixed else base_timestamp + timestamp_delta
            if first_offset <= offset < end_offset and first_timestamp <= timestamp <= last_timestamp:
                size = row_bytes
                key_end = keys_end + max(key_size, 0) if wants_key else keys_end
                value_end = values_end + max(value_size, 0) if wants_value else values_end
                size += key_end - keys_end + value_end - values_end
                if wants_headers:
                    size += header_key_bytes + header_value_bytes + _BYTES_PER_HEADER * headers
                if row > 0 and (row >= max_rows or filled + size > max_bytes):
                    answer = FULL
                    break
                if (
                    key_end > keys.size
                    or value_end > values.size
                    or (
                        wants_headers
                        and (
                            headers_end + headers > header_valid.size
                            or header_keys_end + header_key_bytes > header_keys.size
                            or header_values_end + header_value_bytes > header_values.size
                        )
                    )
                ):
                    state[NEEDS], state[NEEDS + 1], state[NEEDS + 2] = key_end, value_end, headers_end + headers
                    state[NEEDS + 3] = header_keys_end + header_key_bytes
                    state[NEEDS + 4] = header_values_end + header_value_bytes
                    answer = NO_ROOM
                    break
                if wants_headers:
                    for _ in range(headers):
                        part, start = _header_field(data, headers_at, end)
                        copy(header_keys, header_keys_end, data, start, part)
                        header_keys_end += part
                        part, start = _header_field(data, start + part, end)
                        header_valid[headers_end] = part >= 0
                        part = max(part, 0)
                        copy(header_values, header_values_end, data, start, part)
                        header_values_end += part
                        headers_at = start + part
                        headers_end += 1
                        header_key_ends[headers_end] = header_keys_end
                        header_value_ends[headers_end] = header_values_end
                    list_ends[row + 1] = headers_end
                if wants_key:
                    copy(keys, keys_end, data, key_at, key_end - keys_end)
                    keys_end = key_end
                    key_ends[row + 1] = key_end
                    key_valid[row] = key_size >= 0
                    state[KEY_NULLS] += key_size < 0
                if wants_value:
                    copy(values, values_end, data, value_at, value_end - values_end)
                    values_end = value_end
                    value_ends[row + 1] = value_end
                    value_valid[row] = value_size >= 0
                    state[VALUE_NULLS] += value_size < 0
                if wants_offset:
                    offsets[row] = offset
                if wants_time:
                    if -_MOST_MS <= timestamp <= _MOST_MS:
                        timestamps[row] = timestamp * 1000
                    else:
                        timestamps[row] = NO_TIME
                        state[TIME_NULLS] += 1
                if wants_kind:
                    kinds[row] = fixed
                filled += size
                row += 1
            at, delta = after, new_delta
            record += 1
        if answer == DONE and at != end:
            answer = LEFT_OVER
        if answer != DONE:
            break
        batch, at = batch + 1, -1
    state[BATCH], state[AT], state[RECORD], state[DELTA] = batch, at, record, delta
    state[ROWS], state[BYTES] = row, filled
    state[KEYS_END], state[VALUES_END], state[HEADERS_END] = keys_end, values_end, headers_end
    state[HEADER_KEYS_END], state[HEADER_VALUES_END] = header_keys_end, header_values_end
    return answer
