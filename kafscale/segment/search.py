"""Looks for records by time in one segment in memory. Pure; headers first, so that few batches are decoded.

Records that cannot be decoded within ``max_bytes`` are taken at their batch header's word.
"""

from typing import NamedTuple

from kafscale.errors import CorruptData
from kafscale.records import record
from kafscale.segment.reader import ParsedSegment


class FoundRecord(NamedTuple):
    """``position`` is the file position of the batch that holds the record; ``timestamp`` in ms since 1970."""

    offset: int
    timestamp: int
    position: int


def first_at_or_after(
    segment: ParsedSegment, timestamp: int, *, start_offset: int, max_bytes: int
) -> FoundRecord | None:
    """The first record at or above ``start_offset`` that is not older than ``timestamp``.

    A batch whose header says that all its records are older is believed, and so is one that cannot be decoded.
    """
    for number in range(segment.batch_for(start_offset), len(segment.offsets)):
        if segment.max_timestamps[number] < timestamp:
            continue
        try:
            found = record.first_at_or_after(
                _batch(segment, number), timestamp, min_offset=start_offset, max_bytes=max_bytes
            )
        except CorruptData:
            found = _as_its_header_says(segment, number, start_offset)
        if found is not None:
            return FoundRecord(*found, segment.positions[number])
    return None


def largest_timestamp(
    segment: ParsedSegment, *, at_least: int, start_offset: int, max_bytes: int
) -> FoundRecord | None:
    """The first record at or above ``start_offset`` that has the largest timestamp, if that is ``at_least``.

    Batches are decoded in the order of what their headers claim, until no other can hold a larger one. What cannot be
    decoded is believed.
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
            found = _as_its_header_says(segment, number, start_offset)
        if found is not None and found[1] >= at_least:
            best = better(best, FoundRecord(*found, segment.positions[number]))
        if best is not None and best.timestamp == claimed:
            # Batches of the same claim come in offset order: no later one is better.
            break
    return best


def better(one: FoundRecord | None, other: FoundRecord | None) -> FoundRecord | None:
    """The one with the larger timestamp; of equal ones the first in the log."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda found: (found.timestamp, -found.offset))


def _batch(segment: ParsedSegment, number: int) -> memoryview:
    return memoryview(segment.data)[segment.positions[number] : segment.ends[number]]


def _as_its_header_says(segment: ParsedSegment, number: int, start_offset: int) -> tuple[int, int]:
    """The answer for a batch with a right CRC and records that cannot be decoded, or not within the bound.

    A producer sent it so: whoever reads there meets it, but look-ups that lead elsewhere must go on.
    """
    return max(segment.offsets[number], start_offset), segment.max_timestamps[number]
