"""Cuts an object for a copy of a log that ends before the first record later than a point in time. No IO.

Batches keep everything except the epoch. The batch with the first later record is built again from the records before
that one. Record timestamps are determined as in brokers (`kafscale.segment.search`).
"""

from dataclasses import dataclass

from kafscale.errors import KafscaleError
from kafscale.records.batch import peek, placed_prefix
from kafscale.records.checksum import Buffer
from kafscale.records.record import build_batch, read_records
from kafscale.rewritten.object import ObjectBuilder
from kafscale.segment.reader import ParsedSegment
from kafscale.segment.search import first_at_or_after
from kafscale.segment.writer import PREFIX_SIZE, BuiltSegment, build_segment


class CannotCopy(KafscaleError):
    """The segment is valid but cannot be written again in an epoch of its own."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The part of a segment that is kept.

    ``segment`` is None if no record is kept. ``end`` is the offset behind the last kept offset. ``whole`` is true if
    everything is kept. Otherwise the log ends at ``end``.
    """

    segment: BuiltSegment | None
    end: int
    whole: bool


@dataclass(frozen=True, slots=True)
class KeptObject:
    """What is kept of the log from ``start`` to ``end``, which was in one rewritten object.

    ``builder`` has the batches that are kept; None if there are none. The last one ends at ``batches_end``. ``whole``
    is false if the log ends here.
    """

    start: int
    end: int
    builder: ObjectBuilder | None
    batches_end: int
    whole: bool


def object_until(
    source: ParsedSegment, start: int, end: int, *, until_ms: int, epoch: int, created_ms: int, max_bytes: int
) -> KeptObject:
    """Cut a rewritten object, from ``start`` to ``end``, before its first record that is later than ``until_ms``.

    The result has epoch ``epoch`` and attempt 1. It begins with the batch that has ``start``, or at ``start``. For
    batches that decompress to more than ``max_bytes``, the timestamps in the header are used. Raises CorruptData.
    """
    later = first_at_or_after(source, until_ms + 1, start_offset=start, max_bytes=max_bytes)
    cut = later is not None and later.offset < end
    before = later.offset if cut and later is not None else end
    view, first = memoryview(source.data), source.batch_for(start)
    base = min([start, *source.offsets[first : first + 1]])
    builder, following = ObjectBuilder(base, epoch=epoch, attempt=1, created_ms=created_ms), start
    for number in range(first, len(source.offsets)):
        header = peek(view, source.positions[number])
        if header.base_offset >= before:
            break
        batch = view[source.positions[number] : source.ends[number]]
        if header.next_offset > before:
            kept = _before(batch, before, epoch, max_bytes)
        else:
            kept = placed_prefix(header, header.base_offset, epoch) + batch[PREFIX_SIZE:].tobytes()
        if kept:
            builder.add(kept)
            following = peek(kept).next_offset
    return KeptObject(start, before, None if builder.empty else builder, following, whole=not cut)


def kept_until(source: ParsedSegment, *, until_ms: int, log_start: int, epoch: int, max_bytes: int) -> Kept:
    """Cut ``source`` before its first record, from ``log_start`` on, that is later than ``until_ms``.

    The result has epoch ``epoch``. For batches that decompress to more than ``max_bytes``, the timestamps in the header
    are used. Raises CorruptData, CannotCopy.
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
        # Segments of KafScale 1 may have missing offsets, which are only allowed in its epoch 0.
        raise CannotCopy(f"the segment cannot be written again: {error}") from error
    if built.next_offset <= log_start:
        return Kept(None, log_start, whole=False)
    return Kept(built, end if later is None else built.next_offset, whole=later is None)


def _before(batch: memoryview, offset: int, epoch: int, max_bytes: int) -> bytes:
    """Return the batch with its records below ``offset``, or no bytes if it has none. Raises CorruptBatch."""
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
