"""Finds records by time in a segment in memory. Pure. Headers are checked first, so that few batches are decoded.

If a batch's records cannot be decoded within ``max_bytes``, the timestamps in its header are used.
"""

from typing import NamedTuple

from kafscale.errors import CorruptData
from kafscale.records import record
from kafscale.segment.reader import ParsedSegment


class FoundRecord(NamedTuple):
    """``position`` is the file position of the record's batch. ``timestamp`` is in ms since 1970."""

    offset: int
    timestamp: int
    position: int


def first_at_or_after(
    segment: ParsedSegment, timestamp: int, *, start_offset: int, max_bytes: int
) -> FoundRecord | None:
    """Return the first record at or above ``start_offset`` that is not older than ``timestamp``, or None.

    The max timestamp in a batch header is trusted if it is older, or if the batch cannot be decoded.
    """
    for number in range(segment.batch_for(start_offset), len(segment.offsets)):
        if segment.max_timestamps[number] < timestamp:
            continue
        try:
            found = record.first_at_or_after(
                _batch(segment, number), timestamp, min_offset=start_offset, max_bytes=max_bytes
            )
        except CorruptData:
            found = _from_header(segment, number, start_offset)
        if found is not None:
            return FoundRecord(*found, segment.positions[number])
    return None


def largest_timestamp(
    segment: ParsedSegment, *, at_least: int, start_offset: int, max_bytes: int
) -> FoundRecord | None:
    """Return the first record at or above ``start_offset`` with the largest timestamp, if that is ``at_least``.

    Batches are decoded in the order of the max timestamps in their headers, until no other batch can hold a larger one.
    For batches that cannot be decoded, the header's timestamp is used.
    """
    best: FoundRecord | None = None
    candidates = range(segment.batch_for(start_offset), len(segment.offsets))
    for number in sorted(candidates, key=lambda number: (-segment.max_timestamps[number], number)):
        claimed = segment.max_timestamps[number]
        if claimed < at_least or (best is not None and claimed < best.timestamp):
            break
        try:
            found = record.largest_timestamp(_batch(segment, number), min_offset=start_offset, max_bytes=max_bytes)
        except CorruptData:
            found = _from_header(segment, number, start_offset)
        if found is not None and found[1] >= at_least:
            best = better(best, FoundRecord(*found, segment.positions[number]))
        if best is not None and best.timestamp == claimed:
            # Batches with the same header timestamp come in offset order, so no later one is better.
            break
    return best


def better(one: FoundRecord | None, other: FoundRecord | None) -> FoundRecord | None:
    """Return the record with the larger timestamp, or the first one in the log if both are equal."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda found: (found.timestamp, -found.offset))


def _batch(segment: ParsedSegment, number: int) -> memoryview:
    return memoryview(segment.data)[segment.positions[number] : segment.ends[number]]


def _from_header(segment: ParsedSegment, number: int, start_offset: int) -> tuple[int, int]:
    """Return the result for a batch whose CRC is correct but whose records cannot be decoded within the bound.

    A producer sent it so. Consumers that read the batch will fail, but look-ups must not.
    """
    return max(segment.offsets[number], start_offset), segment.max_timestamps[number]
