"""Count the records that a scan requests, from batch headers; batches are decoded only if the header is not enough."""

from collections.abc import Iterator

from kafscale.records.batch import BatchHeader, walk
from kafscale.records.checksum import Buffer
from kafscale.records.record import read_records
from kafscale.v1.storage_pb2 import ScanRequest

_DECODED_BYTES = 256 << 20
"""The limit on the decompressed size of one batch."""


def is_timed(request: ScanRequest) -> bool:
    """Return whether the request filters records by timestamp."""
    return request.HasField("since_ms") or request.HasField("until_ms")


def has_matching(request: ScanRequest, records: Buffer) -> bool:
    """Return whether any batch may hold a record in the requested time range."""
    return any(not _out_of_time(request, header) for _, header in walk(records))


def count_matching(request: ScanRequest, records: Buffer, start: int) -> int:
    """Return how many records from offset ``start`` on match the request. Raises CorruptBatch."""
    return sum(_counted(request, records, start))


def _counted(request: ScanRequest, records: Buffer, start: int) -> Iterator[int]:
    for position, header in walk(records):
        first, end = max(start, header.base_offset), min(request.end, header.next_offset)
        if header.is_control or first >= end or _out_of_time(request, header):
            continue
        whole = first == header.base_offset and end == header.next_offset
        dense = header.record_count == header.last_offset_delta + 1
        by_header = not is_timed(request) or header.is_log_append_time
        if by_header and whole:
            yield header.record_count
        elif by_header and dense:
            yield end - first
        else:
            batch = memoryview(records)[position : position + header.size]
            for record in read_records(batch, max_bytes=_DECODED_BYTES):
                if first <= record.offset < end and _in_time(request, record.timestamp):
                    yield 1


def _out_of_time(request: ScanRequest, header: BatchHeader) -> bool:
    """Return whether the header shows that no record matches.

    A header has only the newest timestamp, which is also the oldest if the batch has log append time.
    """
    if request.HasField("since_ms") and header.max_timestamp < request.since_ms:
        return True
    return request.HasField("until_ms") and header.is_log_append_time and header.max_timestamp >= request.until_ms


def _in_time(request: ScanRequest, timestamp: int) -> bool:
    since, until = request.HasField("since_ms"), request.HasField("until_ms")
    return not (since and timestamp < request.since_ms) and not (until and timestamp >= request.until_ms)
