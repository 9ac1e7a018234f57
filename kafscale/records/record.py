"""The records inside one magic-2 batch: decode, build, compress, and look up by timestamp.

Format: https://kafka.apache.org/documentation/#record. Readers decompress at most ``max_bytes`` and raise CorruptBatch
for bytes that violate the format. Callers must verify the CRC (``batch.verify_crc``).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from kafscale.records.batch import HEADER_SIZE, MAGIC, SMALLEST_RECORD, BatchHeader, pack_header, peek_one, seal
from kafscale.records.checksum import Buffer
from kafscale.records.codecs import Codec, compress, decompress
from kafscale.records.errors import CorruptBatch
from kafscale.records.varint import append_varint, read_varint

_MAX_DELTA = (1 << 31) - 1
_INT64_HALF = 1 << 63

B = TypeVar("B", bytes, bytearray, memoryview)


class Record(NamedTuple):
    """A record. ``timestamp`` is in ms since 1970, or -1 for none.

    Header keys are UTF-8 on the wire. Invalid bytes are decoded as lone surrogates (``surrogateescape``) and written
    back unchanged.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Frame(NamedTuple):
    """A record in the decompressed data of its batch: from ``start`` to ``end``, with the offset delta at ``body``.

    ``key`` is None for a null key.
    """

    start: int
    body: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def read_records(batch: Buffer, *, max_bytes: int) -> Iterator[Record]:
    """Iterate over the records of the single batch in ``batch``, including control records.

    Decompresses at once but decodes one record at a time, so damage is found only when the iteration reaches it.
    Raises CorruptBatch for damage, more than ``max_bytes`` of records, or a record count that does not match.
    """
    header, data = _open(batch, max_bytes)
    return _decode(header, data)


def first_at_or_after(batch: Buffer, timestamp: int, *, min_offset: int = 0, max_bytes: int) -> tuple[int, int] | None:
    """Return offset and timestamp of the first record at or after ``timestamp`` and ``min_offset``, or None.

    A batch is not decompressed if, by its header, all its records are older.
    """
    if peek_one(batch).max_timestamp < timestamp:
        return None
    header, data = _open(batch, max_bytes)
    for offset, record_timestamp in _positions(header, data):
        if record_timestamp >= timestamp and offset >= min_offset:
            return offset, record_timestamp
    return None


def largest_timestamp(batch: Buffer, *, min_offset: int = 0, max_bytes: int) -> tuple[int, int] | None:
    """Return offset and timestamp of the first record with the largest timestamp, at or above ``min_offset``.

    None if no record is at or above ``min_offset``.
    """
    header, data = _open(batch, max_bytes)
    found: tuple[int, int] | None = None
    for offset, timestamp in _positions(header, data):
        if offset >= min_offset and (found is None or timestamp > found[1]):
            found = offset, timestamp
    return found


def records_without_key(batch: Buffer, *, max_bytes: int) -> list[int]:
    """Return the 0-based positions in the batch of the records with a null key. An empty key is not null."""
    # Without `frames`, which takes twice as long: each Produce request to a compacted topic is checked.
    header, data = _open(batch, max_bytes)
    found = []
    pos, size = 0, len(data)
    for place in range(header.record_count):
        start = pos
        try:
            length, pos = read_varint(data, pos)
            end = pos + length
            _, pos = read_varint(data, pos + 1)
            _, pos = read_varint(data, pos)
            key_length, pos = read_varint(data, pos)
        except IndexError:
            raise CorruptBatch(f"the record at {start} does not end within the batch") from None
        if not pos + max(key_length, 0) < end <= size:
            raise CorruptBatch(f"the record at {start} ends at {end}, but the batch's records at {size}")
        if key_length < 0:
            found.append(place)
        pos = end
    _check_all_read(pos, data)
    return found


def frames(header: BatchHeader, data: bytes) -> Iterator[Frame]:
    """Iterate over the records in the decompressed ``data`` of a batch, without decoding values and headers.

    Raises CorruptBatch when the iteration reaches the damage.
    """
    pos, last, size = 0, -1, len(data)
    for _ in range(header.record_count):
        start = pos
        try:
            length, pos = read_varint(data, pos)
            end = pos + length
            timestamp_delta, body = read_varint(data, pos + 1)
            delta, pos = read_varint(data, body)
            key, pos = _read_bytes(data, pos)
            value_length, pos = read_varint(data, pos)
        except IndexError:
            raise CorruptBatch(f"the record at {start} does not end within the batch") from None
        if not pos + max(value_length, 0) < end <= size:
            raise CorruptBatch(f"the record at {start} ends at {end}, but the batch's records at {size}")
        if not last < delta <= header.last_offset_delta:
            raise CorruptBatch(f"the record at {start} has offset delta {delta} after {last}")
        yield Frame(start, body, end, timestamp_delta, delta, key, value_length >= 0)
        pos, last = end, delta
    _check_all_read(pos, data)


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int,
    codec: Codec = Codec.NONE,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Return a batch of ``records``. It is compressed even if that makes it larger, as by producers.

    Offsets must ascend from ``base_offset`` on, by less than 2**31. Raises ValueError otherwise, or without records.
    """
    data = bytearray()
    count = 0
    last_delta = -1
    base_timestamp = max_timestamp = -1
    for record in records:
        if count == 0:
            base_timestamp = max_timestamp = record.timestamp
        delta = record.offset - base_offset
        if not last_delta < delta <= _MAX_DELTA:
            raise ValueError(f"offset {record.offset} after {base_offset + last_delta} in a batch from {base_offset}")
        _append_record(data, record, record.timestamp - base_timestamp, delta)
        max_timestamp = max(max_timestamp, record.timestamp)
        last_delta = delta
        count += 1
    if count == 0:
        raise ValueError("a batch must have at least one record")
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=last_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )
    return sealed(header, compress(codec, data))


def compress_batch(batch: B, codec: Codec) -> B | bytes:
    """Return ``batch`` compressed with ``codec`` and otherwise unchanged.

    Returns the same object if it is already compressed, is a control batch, or would not become smaller.
    """
    header = peek_one(batch)
    if codec is Codec.NONE or header.codec is not Codec.NONE or header.is_control:
        return batch
    records = memoryview(batch)[HEADER_SIZE:]
    smaller = compress(codec, records)
    if len(smaller) >= len(records):
        return batch
    return sealed(header._replace(attributes=header.attributes | codec), smaller)


def sealed(header: BatchHeader, records: bytes) -> bytes:
    """Return the batch of ``records``, compressed as the header says, with their length and a new CRC."""
    out = bytearray(pack_header(header))
    out += records
    seal(out)
    return bytes(out)


def _open(batch: Buffer, max_bytes: int) -> tuple[BatchHeader, bytes]:
    header = peek_one(batch)
    data = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], max_bytes)
    if not 0 <= header.record_count * SMALLEST_RECORD <= len(data):
        raise CorruptBatch(f"{header.record_count} records do not fit in {len(data)} bytes")
    return header, data


def _decode(header: BatchHeader, data: bytes) -> Iterator[Record]:
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    pos, delta = 0, -1
    for _ in range(header.record_count):
        start, last = pos, delta
        try:
            length, pos = read_varint(data, pos)
            end = pos + length
            timestamp_delta, pos = read_varint(data, pos + 1)
            delta, pos = read_varint(data, pos)
            key, pos = _read_bytes(data, pos)
            value, pos = _read_bytes(data, pos)
            headers: tuple[tuple[str, bytes | None], ...] = ()
            header_count, pos = read_varint(data, pos)
            if header_count:
                headers, pos = _read_headers(data, pos, header_count)
        except IndexError:
            raise CorruptBatch(f"the record at {start} does not end within the batch") from None
        if pos != end or pos > len(data):
            raise CorruptBatch(f"the record at {start} ends at {pos}, not at {end}")
        if not last < delta <= header.last_offset_delta:
            raise CorruptBatch(f"the record at {start} has offset delta {delta} after {last}")
        timestamp = as_int64(header.base_timestamp + timestamp_delta) if fixed_timestamp is None else fixed_timestamp
        yield Record(header.base_offset + delta, timestamp, key, value, headers)
    _check_all_read(pos, data)


def _positions(header: BatchHeader, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield offset and timestamp of each record. Keys, values and headers are not decoded."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed = header.is_log_append_time
    pos, delta, size = 0, -1, len(data)
    for _ in range(header.record_count):
        start, last = pos, delta
        try:
            length, pos = read_varint(data, pos)
            end = pos + length
            timestamp_delta, pos = read_varint(data, pos + 1)
            delta, pos = read_varint(data, pos)
        except IndexError:
            raise CorruptBatch(f"the record at {start} does not end within the batch") from None
        if not pos < end <= size:
            raise CorruptBatch(f"the record at {start} ends at {end}, but the batch's records at {size}")
        if not last < delta <= header.last_offset_delta:
            raise CorruptBatch(f"the record at {start} has offset delta {delta} after {last}")
        yield base_offset + delta, header.max_timestamp if fixed else as_int64(base_timestamp + timestamp_delta)
        pos = end
    _check_all_read(pos, data)


def _check_all_read(pos: int, data: bytes) -> None:
    if pos != len(data):
        raise CorruptBatch(f"{len(data) - pos} bytes are left over after the last record")


def _read_bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    length, pos = read_varint(data, pos)
    if length < 0:  # Kafka reads any negative length as null
        return None, pos
    end = pos + length
    return data[pos:end], end


def _read_headers(data: bytes, pos: int, count: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    if not 0 <= count <= len(data) - pos:
        raise CorruptBatch(f"{count} record headers do not fit in {len(data) - pos} bytes")
    headers = []
    for _ in range(count):
        key, pos = _read_bytes(data, pos)
        if key is None:
            raise CorruptBatch("a record header has no key")
        value, pos = _read_bytes(data, pos)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), pos


def _append_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(b"\x00")  # attributes, unused
    append_varint(body, as_int64(timestamp_delta))
    append_varint(body, offset_delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    append_varint(body, len(record.headers))
    for key, value in record.headers:
        _append_bytes(body, key.encode("utf-8", "surrogateescape"))
        _append_bytes(body, value)
    append_varint(out, len(body))
    out += body


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        append_varint(out, -1)
    else:
        append_varint(out, len(data))
        out += data


def as_int64(number: int) -> int:
    """Return a timestamp or delta wrapped around as Kafka does, so that every pair of timestamps has a delta."""
    if -_INT64_HALF <= number < _INT64_HALF:
        return number
    return (number + _INT64_HALF) % (2 * _INT64_HALF) - _INT64_HALF
