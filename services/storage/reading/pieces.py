"""Read whole batches of a committed log for scans, segment by segment. They are taken from the cache but not added.

A segment that is read whole is verified by its footer, a part of one by the checksums of its batches. Imported segments
with missing offsets are read whole.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from kafscale.records.batch import peek
from services.storage.log.known_segment import KnownSegment
from services.storage.log.partition import CommittedLog
from services.storage.reading.cache import CachedSegment
from services.storage.reading.finder import OffsetsMissing
from services.storage.reading.reader import Reader, cached_segment


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive whole batches of one object. A piece without records covers offsets that have none."""

    first_offset: int
    next_offset: int
    epoch: int = 0
    object: str = ""
    position: int = 0
    records: "memoryview | bytes" = b""


async def read_pieces(
    reader: Reader,
    view: CommittedLog,
    segment: KnownSegment,
    *,
    start: int,
    end: int,
    piece_bytes: int,
    read_bytes: int,
) -> list[Piece]:
    """Return the next pieces of ``segment`` from the one that holds ``start``: at least one, up to ``end`` at most.

    A segment of at most ``read_bytes`` is read whole, and so are larger ones with missing offsets. A rewritten object
    is read in parts. Raises Damaged, Unavailable.
    """
    cached = reader.glance(view, segment, start)
    if segment.rewritten is not None:
        cached = cached or await reader.part(view, segment, start)
        pieces = _cut(view, cached, start, end, piece_bytes, name=reader.key(view, segment))
        return pieces or [Piece(start, cached.next_offset)]
    if cached is None and segment.size > read_bytes:
        try:
            return [await _part(reader, view, segment, start, piece_bytes)]
        except OffsetsMissing:
            # Read the whole segment, which proves it and has the next offset.
            pass
    if cached is None:
        parsed = await reader.parsed(view, segment)
        view.segments.learn_time(segment.base_offset, parsed.max_timestamp_ms)
        cached = cached_segment(parsed)
    pieces = _cut(view, cached, start, end, piece_bytes, name=reader.key(view, segment))
    return pieces or [Piece(start, (await reader.behind_hole(view, segment, start)).base_offset)]


async def _part(reader: Reader, view: CommittedLog, segment: KnownSegment, start: int, piece_bytes: int) -> Piece:
    found = await reader.range(view, segment, start, piece_bytes)
    return Piece(
        peek(found.records).base_offset,
        found.next_offset,
        view.epoch_of(segment.base_offset),
        reader.key(view, segment),
        found.position,
        found.records,
    )


def _cut(
    view: CommittedLog, segment: CachedSegment, start: int, end: int, piece_bytes: int, *, name: str
) -> list[Piece]:
    """Cut the batches from ``start`` up to ``end`` into pieces of one epoch each.

    Empty if ``start`` is after the last batch.
    """
    data, offsets, positions = memoryview(segment.data), segment.offsets, segment.positions
    i = segment.first_for(start)
    stop = bisect_left(offsets, end, i)
    pieces = []
    while i < stop:
        position = positions[i]
        fitting = bisect_right(positions, position + piece_bytes) - 1
        if segment.body_end <= position + piece_bytes:
            fitting = len(positions)
        epoch, epoch_end = view.epoch_at(offsets[i])
        j = min(max(fitting, i + 1), bisect_left(offsets, epoch_end, i), stop)
        here = j < len(positions)
        next_offset, body_end = (offsets[j], positions[j]) if here else (segment.next_offset, segment.body_end)
        pieces.append(Piece(offsets[i], next_offset, epoch, name, segment.start + position, data[position:body_end]))
        i = j
    return pieces
