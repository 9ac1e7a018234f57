"""The rules by which batches follow one another in a segment, shared by reading and verifying."""

from kafscale.errors import CorruptData
from kafscale.records import batch
from kafscale.records.batch import BatchHeader
from kafscale.records.checksum import Buffer
from kafscale.segment.format import MAX_OFFSET, CorruptSegment

_NO_EPOCH = -1


def batch_at(buf: Buffer, position: int, end: int) -> BatchHeader:
    """Return the header of the batch at ``position``, which must end by ``end``, or raise CorruptSegment.

    The CRC is not checked.
    """
    try:
        found = batch.peek(buf, position)
    except CorruptData as error:
        raise CorruptSegment(str(error)) from error
    if position + found.size > end:
        raise CorruptSegment(f"batch at {position} ends at {position + found.size}, but the batches at {end}")
    return found


def batches_of(buf: Buffer, position: int, end: int) -> tuple[list[tuple[int, BatchHeader]], str]:
    """Return positions and headers of the batches up to the first invalid one, and why that is invalid; empty: none is.

    CRCs are not checked.
    """
    found: list[tuple[int, BatchHeader]] = []
    while position < end:
        try:
            header = batch_at(buf, position, end)
        except CorruptSegment as error:
            return found, str(error)
        found.append((position, header))
        position += header.size
    return found, ""


def link_fault(found: BatchHeader, expected: int, epoch: int, *, exact: bool) -> str | None:
    """Return what is wrong with a batch in a segment of ``epoch`` in which offset ``expected`` is next, or None.

    With ``exact``, no offset may be missing before it. Batch checksums do not cover base offsets, so only callers that
    have verified those otherwise may allow gaps, which compaction makes. KafScale 1 stored the leader epoch that the
    producer sent, 0 or -1, in segments of epoch 0.
    """
    if found.last_offset_delta < 0 or found.record_count < 0 or found.next_offset > MAX_OFFSET:
        return (
            f"offset {found.base_offset}, last offset delta {found.last_offset_delta} and {found.record_count} records"
            " are not valid in a batch"
        )
    if found.base_offset < expected or (exact and found.base_offset != expected):
        return f"begins at offset {found.base_offset}, but {expected} is next"
    if found.leader_epoch != epoch and not (epoch == 0 and found.leader_epoch == _NO_EPOCH):
        return f"has epoch {found.leader_epoch} in a segment of epoch {epoch}"
    return None
