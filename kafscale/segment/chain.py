"""What makes batches a segment's: how each follows the one before. One set of rules for reading and for verifying."""

from kafscale.errors import CorruptData
from kafscale.records import batch
from kafscale.records.batch import BatchHeader
from kafscale.records.checksum import Buffer
from kafscale.segment.format import MAX_OFFSET, CorruptSegment

_NO_EPOCH = -1


def batch_at(buf: Buffer, position: int, end: int) -> BatchHeader:
    """The header of the batch at ``position``, whole within ``end``, or CorruptSegment. Its CRC is not checked."""
    try:
        found = batch.peek(buf, position)
    except CorruptData as error:
        raise CorruptSegment(str(error)) from error
    if position + found.size > end:
        raise CorruptSegment(f"batch at {position} ends at {position + found.size}, the batches at {end}")
    return found


def link_fault(found: BatchHeader, expected: int, epoch: int, *, exact: bool) -> str | None:
    """What is wrong with a batch in a segment of ``epoch`` where offset ``expected`` comes next, or None.

    ``exact``: no offset may be missing before it. Batch checksums do not cover base offsets, so only who has proven
    them otherwise may allow gaps, as compaction makes. KafScale 1 stored the leader epoch that the producer sent: 0 or
    -1, in a segment of epoch 0.
    """
    if found.last_offset_delta < 0 or found.record_count < 0 or found.next_offset > MAX_OFFSET:
        return (
            f"offset {found.base_offset}, last offset delta {found.last_offset_delta} and {found.record_count} records"
            " are no batch"
        )
    if found.base_offset < expected or (exact and found.base_offset != expected):
        return f"begins at offset {found.base_offset} where {expected} comes next"
    if found.leader_epoch != epoch and not (epoch == 0 and found.leader_epoch == _NO_EPOCH):
        return f"has epoch {found.leader_epoch} in a segment of epoch {epoch}"
    return None
