"""Append: add producers' batches to the buffers of their partitions, in the order of their commit stream."""

from kafscale.errors import CorruptData, Unavailable
from kafscale.records.batch import BatchHeader, check_producers, peek
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import AppendReply, AppendRequest, PartitionAppend, PartitionAppended
from services.storage.dependencies import Dependencies
from services.storage.log.partition import Partition
from services.storage.log.producers import Sequenced, SequenceRefused
from services.storage.methods.acquiring import acquire_all
from services.storage.owning.takeover import NotAvailable
from services.storage.run import Run
from services.storage.settings import StorageSettings
from services.storage.writing.commit_streams import CommitStream


async def append(run: Run, deps: Dependencies, request: AppendRequest) -> AppendReply:
    """Return a result for each append. Raises Unavailable if the stream is unknown or the message is out of order."""
    stream = run.streams.get(request.stream_id)
    if stream is None or not await stream.turn(request.sequence):
        raise Unavailable("unknown commit stream, or append out of order")
    # All appends of the stream wait behind this one.
    patience = deps.settings.append_load_wait_ms / 1000
    partitions = await acquire_all(run, [append.partition for append in request.appends], patience=patience)
    partitions = [await run.recovered(one, patience=patience) for one in partitions]
    stream.seen(request.seen)
    # No await from here to the reply, so that offsets are assigned in the order of appends.
    results = [
        _append_one(run, deps, stream, request, append=append, found=found)
        for append, found in zip(request.appends, partitions, strict=True)
    ]
    stream.applied_one()
    return AppendReply(results=results)


def _append_one(
    run: Run,
    deps: Dependencies,
    stream: CommitStream,
    request: AppendRequest,
    *,
    append: PartitionAppend,
    found: Partition | NotAvailable,
) -> PartitionAppended:
    key = (append.partition.topic_id, append.partition.partition)
    if request.seen < stream.refused.get(key, 0):
        return PartitionAppended(status=Status.REFUSED_BEHIND, detail="an earlier batch was refused")
    if isinstance(found, NotAvailable):
        result = PartitionAppended(status=found.status, detail=str(found), owner=found.owner)
    else:
        # The partition may have been handed over while another one was taken over.
        if not found.closed:
            stream.subscribe(key, found.committed_event)
        end = found.buffer.next_offset
        result = place(run, found, append, settings=deps.settings, now_ms=deps.now_ms())
        if append.trace:
            _trace(deps, found, append, result, placed=found.buffer.next_offset > end)
    if result.status != Status.OK:
        stream.refused[key] = request.sequence
        deps.counters.refused[Status.Name(result.status)] += 1
    else:
        stream.refused.pop(key, None)
    return result


def _trace(
    deps: Dependencies, partition: Partition, append: PartitionAppend, result: PartitionAppended, *, placed: bool
) -> None:
    """Record a span for the append. ``placed`` is false if the batch was refused or is a duplicate."""
    tracer = deps.tracer
    span = (
        None
        if tracer is None
        else tracer.go_on(
            "append",
            append.trace,
            partition=partition.name,
            base_offset=result.base_offset,
            bytes=len(append.records),
        )
    )
    if span is None:
        return
    if placed:
        partition.buffer.note_trace(span.place)
    span.end("" if result.status == Status.OK else Status.Name(result.status))


def place(
    run: Run, partition: Partition, append: PartitionAppend, *, settings: StorageSettings, now_ms: int
) -> PartitionAppended:
    """Append the batches, or return why not. The result for a duplicate batch has the offsets of the original."""
    buffer, records = partition.buffer, append.records
    if partition.closed or partition.moving or (append.unacknowledged and not run.membership.proven):
        detail = "the partition is being handed over" if partition.moving else "this instance is not the owner"
        return PartitionAppended(status=Status.NOT_OWNER, detail=detail, owner=run.owned.elsewhere(partition.key))
    if partition.offline:
        return PartitionAppended(status=Status.DAMAGED, detail=partition.offline)
    if len(records) > settings.partition_buffer_bytes:
        return PartitionAppended(status=Status.TOO_LARGE, detail="larger than KAFSCALE_PARTITION_BUFFER_BYTES")
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
            or run.buffers.size + len(records) > settings.buffer_bytes
        ):
            return PartitionAppended(status=Status.BUFFER_FULL, detail="too many bytes are buffered and not stored yet")
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
    run.buffers.added(partition, len(records), end - base)
    # Hold replies until space is freed: if all were sent at the next commit, producers would fill the buffer again.
    excess = buffer.uncommitted_bytes - settings.partition_buffer_bytes // 2
    congested = excess > 0 or run.buffers.size > settings.buffer_bytes // 2
    if congested and run.intake.is_on and not buffer.has_sealed:
        run.buffers.seal(partition, "memory")
    return PartitionAppended(
        epoch=partition.epoch,
        base_offset=base,
        end_offset=end,
        log_start=partition.log.log_start,
        append_time_ms=-1 if append_time is None else append_time,
        hold_until=buffer.end_of_first(excess) if congested else 0,
        durable_soon=run.intake.is_immediate,
    )


def _repeated(run: Run, partition: Partition, header: BatchHeader) -> PartitionAppended | None:
    """Return the result for a batch that is already in the log or in a buffer, else None. Raises SequenceRefused."""
    try:
        original = partition.producers.original(header)
    except SequenceRefused as error:
        if error.status != Status.BUFFER_FULL:
            raise
        run.snapshots.expire(partition, pressed=True)
        original = partition.producers.original(header)
    if original is None:
        return None
    # The caller acks when the original is committed, which it knows from the end offset and the epoch.
    return PartitionAppended(
        epoch=partition.epoch,
        base_offset=original.base_offset,
        end_offset=original.last_offset + 1,
        log_start=partition.log.log_start,
        append_time_ms=-1,
    )
