"""One segment of a log as it is in a copy of the log that ends before the first record later than some time. Pure.

Batches stay as they are, but for the epoch; the one with the first later record in it is built anew of the records
before that one. Records' times are what brokers take for them (`kafscale.segment.search`).
"""

from dataclasses import dataclass

from kafscale.errors import KafscaleError
from kafscale.records.batch import peek, placed_prefix
from kafscale.records.checksum import Buffer
from kafscale.records.record import build_batch, read_records
from kafscale.segment.reader import ParsedSegment
from kafscale.segment.search import first_at_or_after
from kafscale.segment.writer import PREFIX_SIZE, BuiltSegment, build_segment


class CannotCopy(KafscaleError):
    """A segment that is whole, but cannot be written again in an epoch of its own."""


@dataclass(frozen=True, slots=True)
class Kept:
    """``segment`` None: no record of it is kept. ``end``: the offset after the last that is kept, or where it would be.

    ``whole``: all of it is kept. Else the log ends there.
    """

    segment: BuiltSegment | None
    end: int
    whole: bool


def kept_until(source: ParsedSegment, *, until_ms: int, log_start: int, epoch: int, max_bytes: int) -> Kept:
    """``source`` up to the first record from ``log_start`` on that is later than ``until_ms``, written in ``epoch``.

    ``max_bytes``: what one batch may decompress to; a larger one is taken at its header's word. Raises CorruptData,
    CannotCopy.
    """
    later = first_at_or_after(source, until_ms + 1, start_offset=log_start, max_bytes=max_bytes)
    end = source.next_offset if later is None else later.offset
    if end <= log_start:
        return Kept(None, log_start, whole=False)
    if end == source.offsets[0]:
        return Kept(None, end, whole=False)
    view, pieces = memoryview(source.data), list[tuple[Buffer, Buffer]]()
    for position, stop, following in zip(source.positions, source.ends, source.next_offsets, strict=True):
        header = peek(view, position)
        if header.base_offset >= end:
            break
        if following <= end:
            prefix = placed_prefix(header, header.base_offset, epoch)
            pieces.append((prefix, view[position + PREFIX_SIZE : stop]))
        else:
            batch = _before(view[position:stop], end, epoch, max_bytes)
            if batch:
                pieces.append((batch[:PREFIX_SIZE], memoryview(batch)[PREFIX_SIZE:]))
    if not pieces:
        return Kept(None, max(source.offsets[0], log_start), whole=False)
    try:
        built = build_segment(pieces, epoch=epoch, created_ms=source.header.created_ms, flags=source.header.flags)
    except ValueError as error:
        # What KafScale 1 wrote may lack offsets, which only its epoch, 0, allows.
        raise CannotCopy(f"it cannot be written again: {error}") from error
    if built.next_offset <= log_start:
        return Kept(None, log_start, whole=False)
    return Kept(built, end if later is None else built.next_offset, whole=later is None)


def _before(batch: memoryview, offset: int, epoch: int, max_bytes: int) -> bytes:
    """The batch with its records below ``offset``, empty where compaction has left none. Raises CorruptBatch."""
    header = peek(batch)
    records = [record for record in read_records(batch, max_bytes=max_bytes) if record.offset < offset]
    if not records:
        return b""
    return build_batch(
        records,
        base_offset=header.base_offset,
        codec=header.codec,
        leader_epoch=epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
