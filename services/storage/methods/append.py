"""Append: add producers' batches to the buffers of their partitions, in the order of their commit stream."""

from collections.abc import Sequence
from typing import Protocol

from kafscale.errors import CorruptData, Unavailable
from kafscale.v1.common_pb2 import OK, PartitionRef, Status
from kafscale.v1.storage_pb2 import AppendReply, AppendRequest, PartitionAppended
from services.storage.dependencies import Dependencies
from services.storage.log.partition import Partition
from services.storage.log.placing import NoRoom, place
from services.storage.log.producers import SequenceRefused
from services.storage.methods.acquiring import acquire_all
from services.storage.owning.takeover import NotAvailable
from services.storage.run import Run
from services.storage.writing.commit_streams import CommitStream, Report


class Append(Protocol):
    """A `PartitionAppend`, or what a caller in this process has in its place."""

    @property
    def partition(self) -> PartitionRef: ...
    @property
    def records(self) -> bytes: ...
    @property
    def unacknowledged(self) -> bool: ...
    @property
    def trace(self) -> str: ...


class Message(Protocol):
    """An `AppendRequest`, or what a caller in this process has in its place."""

    @property
    def stream_id(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def seen(self) -> int: ...
    @property
    def appends(self) -> Sequence[Append]: ...


async def append(run: Run, deps: Dependencies, request: AppendRequest) -> AppendReply:
    """Return a result for each append. Raises Unavailable if the stream is unknown or the message is out of order."""
    stream = run.streams.get(request.stream_id)
    if stream is None or not await stream.turn(request.sequence):
        raise Unavailable("unknown commit stream, or append out of order")
    # All appends of the stream wait behind this one.
    patience = deps.settings.append_load_wait_ms / 1000
    partitions = await acquire_all(run, [append.partition for append in request.appends], patience=patience)
    if any(isinstance(one, Partition) and one.is_recovering for one in partitions):
        partitions = [await run.recovered(one, patience=patience) for one in partitions]
    results = _append_all(run, deps, stream, request, partitions)
    reply = AppendReply(results=results)
    # The caller must know of a refusal at once, because it refuses or sends elsewhere what follows.
    if request.wait_ms and all(result.status == OK for result in results):
        appended = [
            (found, result.end_offset)
            for found, result in zip(partitions, results, strict=True)
            if isinstance(found, Partition)
        ]
        committed = await stream.events_for(lambda: _is_one_durable(appended), seconds=request.wait_ms / 1000)
        reply.committed.extend(committed)
    return reply


def append_at_once(run: Run, deps: Dependencies, request: Message, report: Report) -> list[PartitionAppended] | None:
    """Return a result for each append, or None, without an effect, if `append` would have to wait for its turn or for a
    partition. ``report`` takes the events of the stream from then on."""
    stream = run.streams.get(request.stream_id)
    if stream is None or request.sequence != stream.applied + 1:
        return None
    partitions = [run.owned.get((append.partition.topic_id, append.partition.partition)) for append in request.appends]
    here = [partition for partition in partitions if partition is not None and not partition.is_recovering]
    if len(here) < len(partitions):
        return None
    stream.report = report
    return _append_all(run, deps, stream, request, here)


def _append_all(
    run: Run,
    deps: Dependencies,
    stream: CommitStream,
    request: Message,
    partitions: Sequence[Partition | NotAvailable],
) -> list[PartitionAppended]:
    """Apply a message. It does not wait, so that offsets are assigned in the order of appends."""
    stream.seen(request.seen)
    results = list[PartitionAppended]()
    for append, found in zip(request.appends, partitions, strict=True):
        key = (append.partition.topic_id, append.partition.partition)
        if request.seen < stream.refused.get(key, 0):
            results.append(PartitionAppended(status=Status.REFUSED_BEHIND, detail="an earlier batch was refused"))
            continue
        if isinstance(found, NotAvailable):
            result = PartitionAppended(status=found.status, detail=str(found), owner=found.owner)
        else:
            # The partition may have been handed over while another one was taken over.
            if not found.closed:
                stream.subscribe(key, found.committed_event)
            end = found.buffer.next_offset
            result = _append_to(run, deps, found, append)
            if append.trace:
                _trace(deps, found, append, result, placed=found.buffer.next_offset > end)
        results.append(result)
        if result.status != OK:
            stream.refused[key] = request.sequence
            deps.counters.refused[Status.Name(result.status)] += 1
        else:
            stream.refused.pop(key, None)
    stream.applied_one()
    return results


def _is_one_durable(appended: list[tuple[Partition, int]]) -> bool:
    """Whether the records of one of the partitions up to its end are durable, or have no outcome here any more.

    Mostly, all of them are in one object. None waits for a partition that takes longer.
    """
    return any(
        partition.closed or partition.offline is not None or partition.log.high_watermark >= end
        for partition, end in appended
    )


def _append_to(
    run: Run, deps: Dependencies, partition: Partition, append: Append, *, again: bool = False
) -> PartitionAppended:
    """Append the batches, or return why not. The result for a duplicate batch has the offsets of the original.

    If the partition knows too many producers, forget idle ones and try once more.
    """
    settings, buffer = deps.settings, partition.buffer
    if partition.closed or partition.moving or (append.unacknowledged and not run.membership.proven):
        detail = "the partition is being handed over" if partition.moving else "this instance is not the owner"
        return PartitionAppended(status=Status.NOT_OWNER, detail=detail, owner=run.owned.elsewhere(partition.key))
    if partition.offline:
        return PartitionAppended(status=Status.DAMAGED, detail=partition.offline)
    # Each access to the field copies it.
    records = append.records
    if len(records) > settings.partition_buffer_bytes:
        return PartitionAppended(status=Status.TOO_LARGE, detail="larger than KAFSCALE_PARTITION_BUFFER_BYTES")
    room = min(settings.partition_buffer_bytes - buffer.uncommitted_bytes, settings.buffer_bytes - run.buffers.size)
    try:
        placed = place(partition, records, room=room, now_ms=deps.now_ms, arrival_ms=run.producer_clock.arrival_ms)
    except CorruptData as error:
        return PartitionAppended(status=Status.INVALID, detail=str(error))
    except NoRoom as error:
        return PartitionAppended(status=Status.BUFFER_FULL, detail=str(error))
    except SequenceRefused as error:
        if error.status == Status.BUFFER_FULL and not again:
            run.snapshots.expire(partition, pressed=True)
            return _append_to(run, deps, partition, append, again=True)
        return PartitionAppended(status=error.status, detail=str(error), log_start=partition.log.log_start)
    result = PartitionAppended(
        epoch=partition.epoch,
        base_offset=placed.base_offset,
        # The caller acks when the records up to here are committed, also those of the original of a duplicate.
        end_offset=placed.end_offset,
        log_start=partition.log.log_start,
        append_time_ms=placed.append_time_ms,
    )
    if placed.size:
        run.buffers.added(partition, placed.size, placed.end_offset - placed.base_offset)
        # Hold replies until space is freed: if all were sent at the next commit, producers would fill the buffer again.
        excess = buffer.uncommitted_bytes - settings.partition_buffer_bytes // 2
        if excess > 0 or run.buffers.size > settings.buffer_bytes // 2:
            if run.intake.is_on and not buffer.has_sealed:
                run.buffers.seal(partition, "memory")
            result.hold_until = buffer.end_of_first(excess)
        result.durable_soon = run.intake.is_immediate
    return result


def _trace(
    deps: Dependencies, partition: Partition, append: Append, result: PartitionAppended, *, placed: bool
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
