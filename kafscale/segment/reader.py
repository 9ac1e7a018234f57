"""Reads segment files, whole ones into the cache and pieces of them from ranged GETs, and verifies everything.

Every byte of a segment is covered by the footer's checksum or verified by bytes that are, except the header's flags and
creation time, which are for information only.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from kafscale.errors import CorruptData
from kafscale.records import batch
from kafscale.records.batch import HEADER_SIZE as BATCH_HEADER_SIZE
from kafscale.records.batch import BatchHeader
from kafscale.records.checksum import Buffer, crc32c
from kafscale.segment.chain import batch_at, link_fault
from kafscale.segment.format import (
    FOOTER_SIZE,
    HEADER_SIZE,
    MAX_SEGMENT_SIZE,
    CorruptSegment,
    SegmentFooter,
    SegmentHeader,
)
from kafscale.segment.index import IndexEntry


@dataclass(frozen=True, slots=True, eq=False)
class ParsedSegment:
    """A segment, or a rewritten object, whose footer checksum, batch chain and header are verified.

    One entry per batch: ``offsets`` (base offset), ``next_offsets`` (after its last), ``positions`` and ``ends``
    (absolute file positions: ``data[positions[i]:ends[i]]`` is batch i), ``max_timestamps`` (ms, from the batch
    header).
    """

    data: Buffer
    header: SegmentHeader
    footer: SegmentFooter
    offsets: "array[int]"
    next_offsets: "array[int]"
    positions: "array[int]"
    ends: "array[int]"
    max_timestamps: "array[int]"

    @property
    def next_offset(self) -> int:
        """The offset after the last one of the segment, which is that of its last batch. A rewritten object may have
        no batch with its last offsets."""
        return self.footer.last_offset + 1

    @property
    def body_end(self) -> int:
        """The file position after the last batch."""
        return self.ends[-1]

    @property
    def max_timestamp_ms(self) -> int:
        """The largest timestamp of the batches, at least -1 (no timestamp)."""
        return max(-1, *self.max_timestamps)

    def batch_for(self, offset: int) -> int:
        """Return the index of the first batch that ends after ``offset``, or the number of batches if none does."""
        return bisect_right(self.next_offsets, offset)


def parse_segment(data: Buffer, *, check_batches: bool = False) -> ParsedSegment:
    """Parse and verify a whole segment file. Raises CorruptSegment.

    The footer's checksum over the body replaces the checksums of the batches, which the owner verified before it wrote
    them. ``check_batches`` verifies those too, to detect damage from before the segment was built.
    """
    header = SegmentHeader.parse(data)
    if not HEADER_SIZE + BATCH_HEADER_SIZE + FOOTER_SIZE <= len(data) <= MAX_SEGMENT_SIZE:
        raise CorruptSegment(f"a segment cannot have {len(data)} bytes")
    footer = SegmentFooter.parse(data)
    body_end = len(data) - FOOTER_SIZE
    computed = crc32c(memoryview(data)[HEADER_SIZE:body_end])
    if computed != footer.crc:
        raise CorruptSegment(f"checksum of the body is {computed:#010x}, the footer says {footer.crc:#010x}")
    segment = ParsedSegment(data, header, footer, array("q"), array("q"), array("I"), array("I"), array("q"))
    messages = 0
    for position, found in linked_batches(
        data, HEADER_SIZE, body_end, header.base_offset, header.epoch, check=check_batches, gaps=True
    ):
        segment.offsets.append(found.base_offset)
        segment.next_offsets.append(found.next_offset)
        segment.positions.append(position)
        segment.ends.append(position + found.size)
        segment.max_timestamps.append(found.max_timestamp)
        messages += found.record_count
    if messages != header.message_count:
        raise CorruptSegment(f"{messages} messages, the header says {header.message_count}")
    if segment.next_offsets[-1] != footer.last_offset + 1:
        raise CorruptSegment(f"the last offset is {segment.next_offsets[-1] - 1}, the footer says {footer.last_offset}")
    return segment


START_SIZE = HEADER_SIZE + BATCH_HEADER_SIZE
"""The number of bytes of a segment that `parse_start` needs."""


def parse_start(data: Buffer) -> SegmentHeader:
    """Return the header of a segment. ``data`` is at least its first START_SIZE bytes. Raises CorruptSegment.

    The first batch repeats the header's base offset and epoch, so damage to only one of them is detected.
    """
    header = SegmentHeader.parse(data)
    try:
        first = batch.peek(data, HEADER_SIZE)
    except CorruptData as error:
        raise CorruptSegment(str(error)) from error
    fault = link_fault(first, header.base_offset, header.epoch, exact=True)
    if fault:
        raise CorruptSegment(f"the first batch {fault}")
    return header


def scan_batches(
    piece: Buffer, entry: IndexEntry, *, at_end: bool, epoch: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the complete batches of a piece of a segment file, each verified, with its position in the piece.

    The piece begins at ``entry.position`` of the file, where, by the index, the batch with base offset ``entry.offset``
    is. With ``at_end``, the piece extends to the end of the file, footer included, and nothing may be left over.
    Otherwise an incomplete batch ends the scan, and the caller must read a longer piece if none is yielded. All batches
    must have ``epoch``, by default that of the first one. No offset may be missing between batches, because here only
    its place verifies a base offset. Segments with gaps must be read whole, where the footer verifies them.

    After the valid batches before it, raises CorruptSegment at the first batch that is missing, fails its checksum,
    breaks the order of offsets or has another epoch. If that is the piece's first batch, the index or the segment is
    wrong.
    """
    if not at_end:
        end = _whole_batches_end(piece)
        last_offset = None
    else:
        end = len(piece) - FOOTER_SIZE
        last_offset = SegmentFooter.parse(piece).last_offset
    next_offset = entry.offset
    for position, found in linked_batches(piece, 0, end, entry.offset, epoch, check=True, gaps=False):
        yield position, found
        next_offset = found.next_offset
    if last_offset is not None and next_offset != last_offset + 1:
        raise CorruptSegment(f"the last offset is {next_offset - 1}, the footer says {last_offset}")


def linked_batches(
    buf: Buffer, position: int, end: int, first_offset: int, epoch: int | None, *, check: bool, gaps: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of the batches that fill ``buf`` from ``position`` to ``end``, from ``first_offset``.

    With ``check``, their checksums are verified too. With ``gaps``, offsets may be missing after the first batch; only
    callers that verify the base offsets otherwise may allow that. ``epoch`` defaults to that of the first batch. Raises
    CorruptSegment, after the valid batches before it.
    """
    if epoch is None and end > position:
        epoch = max(batch_at(buf, position, end).leader_epoch, 0)
    expected, exact = first_offset, True
    while position < end:
        found = batch_at(buf, position, end)
        fault = link_fault(found, expected, epoch or 0, exact=exact)
        if fault:
            raise CorruptSegment(f"batch at {position} {fault}")
        if check:
            verify_batch(buf, position, found)
        yield position, found
        position += found.size
        expected, exact = found.next_offset, not gaps


def verify_batch(buf: Buffer, position: int, found: BatchHeader) -> None:
    """Raise CorruptSegment if the batch's bytes do not match the checksum in its header."""
    try:
        batch.verify_crc(buf, position, found)
    except CorruptData as error:
        raise CorruptSegment(str(error)) from error


def _whole_batches_end(piece: Buffer) -> int:
    position = 0
    while len(piece) - position >= BATCH_HEADER_SIZE:
        following = position + batch_at(piece, position, 2**63).size
        if following > len(piece):
            break
        position = following
    return position
