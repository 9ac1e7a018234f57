"""Whether the batches of one append may go into a partition's buffer, and what they are told."""

from kafscale.errors import CorruptData
from kafscale.records.batch import BatchHeader, check_producers, peek
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import PartitionAppend, PartitionAppended
from services.storage.partition import Partition
from services.storage.producers import Sequenced, SequenceRefused
from services.storage.run import Run
from services.storage.settings import StorageSettings


def place(
    run: Run, partition: Partition, append: PartitionAppend, *, settings: StorageSettings, now_ms: int
) -> PartitionAppended:
    """Append, or answer why not; a batch that repeats an earlier one is told where that one is."""
    buffer, records = partition.buffer, append.records
    if partition.closed or partition.moving or (append.unacknowledged and not run.membership.proven):
        detail = "the partition is handed over" if partition.moving else "this instance does not own the partition"
        return PartitionAppended(status=Status.NOT_OWNER, detail=detail, owner=run.owned.elsewhere(partition.key))
    if partition.offline:
        return PartitionAppended(status=Status.DAMAGED, detail=partition.offline)
    if len(records) > settings.partition_buffer_bytes:
        return PartitionAppended(status=Status.TOO_LARGE, detail="more than KAFSCALE_PARTITION_BUFFER_BYTES")
    append_time = now_ms if partition.config.log_append_time else None
    try:
        header = peek(records)
        if header.size != len(records):
            check_producers(records)
        if header.producer_id >= 0:
            repeated = _repeated(run, partition, header)
            if repeated is not None:
                return repeated
        if (
            buffer.uncommitted_bytes + len(records) > settings.partition_buffer_bytes
            or run.buffered_bytes + len(records) > settings.buffer_bytes
        ):
            return PartitionAppended(status=Status.BUFFER_FULL, detail="too much is buffered and not stored yet")
        base = buffer.append(records, log_append_time_ms=append_time)
    except CorruptData as error:
        return PartitionAppended(status=Status.INVALID, detail=str(error))
    except SequenceRefused as error:
        return PartitionAppended(status=error.status, detail=str(error), log_start=partition.log.log_start)
    if header.producer_id >= 0:
        batch = Sequenced.of(header, base)
        partition.producers.add(batch, run.producer_clock.arrival_ms())
        buffer.note(batch)
    end = buffer.next_offset
    run.appended(partition, len(records), end - base)
    # Producers get their replies as room comes back: all at the next commit's would send as much again at once.
    too_much = buffer.uncommitted_bytes - settings.partition_buffer_bytes // 2
    congested = too_much > 0 or run.buffered_bytes > settings.buffer_bytes // 2
    return PartitionAppended(
        epoch=partition.epoch,
        base_offset=base,
        end_offset=end,
        log_start=partition.log.log_start,
        append_time_ms=-1 if append_time is None else append_time,
        hold_until=buffer.end_of_first(too_much) if congested else 0,
    )


def _repeated(run: Run, partition: Partition, header: BatchHeader) -> PartitionAppended | None:
    """The answer for a batch that is in the log or in a buffer already. Raises SequenceRefused."""
    try:
        original = partition.producers.original(header)
    except SequenceRefused as error:
        if error.status != Status.BUFFER_FULL:
            raise
        run.snapshots.expire(partition, pressed=True)
        original = partition.producers.original(header)
    if original is None:
        return None
    # The caller acks when the original is committed: the end says so, the epoch who it must be.
    return PartitionAppended(
        epoch=partition.epoch,
        base_offset=original.base_offset,
        end_offset=original.last_offset + 1,
        log_start=partition.log.log_start,
        append_time_ms=-1,
    )
