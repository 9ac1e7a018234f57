"""Append: add producers' batches to the buffers of their partitions, in the order of their commit stream."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kafscale.errors import CorruptData, Unavailable
from kafscale.records.batch import BatchHeader, walk
from kafscale.records.checksum import Buffer
from kafscale.v1.common_pb2 import OK, Status
from kafscale.v1.storage_pb2 import AppendReply, AppendRequest, PartitionAppend
from services.storage.dependencies import Dependencies
from services.storage.log.partition import Partition
from services.storage.log.placing import NoRoom, Placed, place
from services.storage.log.producers import SequenceRefused
from services.storage.methods.acquiring import acquire_all
from services.storage.owning.takeover import NotAvailable
from services.storage.run import Run
from services.storage.settings import StorageSettings
from services.storage.writing.commit_streams import CommitStream, Key, Report


class Append(Protocol):
    """Records for one partition. ``batches`` are their batches with their positions; reading it raises CorruptData."""

    @property
    def key(self) -> Key: ...
    @property
    def records(self) -> Buffer: ...
    @property
    def batches(self) -> Sequence[tuple[int, BatchHeader]]: ...
    @property
    def unacknowledged(self) -> bool: ...
    @property
    def trace(self) -> str: ...


class Message(Protocol):
    """What a caller in this process has in place of an `AppendRequest`."""

    @property
    def stream_id(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def seen(self) -> int: ...
    @property
    def appends(self) -> Sequence[Append]: ...


class Server(Protocol):
    """The storage service. ``current``: see `services.storage.service.StorageService`."""

    @property
    def current(self) -> Run | None: ...
    @property
    def deps(self) -> Dependencies: ...


class Appended(NamedTuple):
    """The fields of a `PartitionAppended`. Creating a message takes longer, and in one process nobody needs it."""

    status: Status = OK
    detail: str = ""
    epoch: int = 0
    base_offset: int = 0
    end_offset: int = 0
    log_start: int = 0
    append_time_ms: int = 0
    hold_until: int = 0
    owner: str = ""
    durable_soon: bool = False


class _Sent:
    """An `Append` of a request."""

    __slots__ = ("key", "records", "trace", "unacknowledged")

    def __init__(self, append: PartitionAppend) -> None:
        self.key = (append.partition.topic_id, append.partition.partition)
        # Each access to the field copies it.
        self.records = append.records
        self.unacknowledged = append.unacknowledged
        self.trace = append.trace

    @property
    def batches(self) -> list[tuple[int, BatchHeader]]:
        return list(walk(self.records))


class _Request(NamedTuple):
    """A `Message` that was sent."""

    stream_id: str
    sequence: int
    seen: int
    appends: list[_Sent]


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
    message = _Request(request.stream_id, request.sequence, request.seen, [_Sent(one) for one in request.appends])
    results = _append_all(run, deps, stream, message, partitions)
    reply = AppendReply()
    for result in results:
        reply.results.add(**result._asdict())
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


def append_at_once(server: Server, request: Message, report: Report) -> list[Appended] | None:
    """Return a result for each append. Return None, without an effect, if there is no run, or if `append` would have to
    wait for its turn or for a partition. ``report`` takes the events of the stream from then on."""
    run = server.current
    stream = None if run is None else run.streams.get(request.stream_id)
    if run is None or stream is None or request.sequence != stream.applied + 1:
        return None
    partitions = list[Partition]()
    for append in request.appends:
        partition = run.owned.get(append.key)
        if partition is None or partition.is_recovering:
            return None
        partitions.append(partition)
    stream.report = report
    return _append_all(run, server.deps, stream, request, partitions)


def _append_all(
    run: Run,
    deps: Dependencies,
    stream: CommitStream,
    message: Message,
    partitions: Sequence[Partition | NotAvailable],
) -> list[Appended]:
    """Apply a message. It does not wait, so that offsets are assigned in the order of appends."""
    seen, arrival_ms = message.seen, run.producer_clock.arrival_ms()
    stream.seen(seen)
    results = list[Appended]()
    for append, found in zip(message.appends, partitions, strict=True):
        key = append.key
        if seen < stream.refused.get(key, 0):
            results.append(Appended(Status.REFUSED_BEHIND, "an earlier batch was refused"))
            continue
        if isinstance(found, NotAvailable):
            result = Appended(found.status, str(found), owner=found.owner)
        else:
            # The partition may have been handed over while another one was taken over.
            if not found.closed:
                stream.subscribe(key, found.committed_event)
            end = found.buffer.next_offset if append.trace else 0
            result = _append_to(run, deps, found, append, arrival_ms)
            if append.trace:
                _trace(deps, found, append, result, placed=found.buffer.next_offset > end)
        results.append(result)
        if result.status != OK:
            stream.refused[key] = message.sequence
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
    run: Run, deps: Dependencies, partition: Partition, append: Append, arrival_ms: int, *, again: bool = False
) -> Appended:
    """Append the batches, or return why not. The result for a duplicate batch has the offsets of the original.

    If the partition knows too many producers, forget idle ones and try once more.
    """
    settings, buffer = deps.settings, partition.buffer
    if partition.closed or partition.moving or (append.unacknowledged and not run.membership.proven):
        detail = "the partition is being handed over" if partition.moving else "this instance is not the owner"
        return Appended(Status.NOT_OWNER, detail, owner=run.owned.elsewhere(partition.key))
    if partition.offline:
        return Appended(Status.DAMAGED, partition.offline)
    if len(append.records) > settings.partition_buffer_bytes:
        return Appended(Status.TOO_LARGE, "larger than KAFSCALE_PARTITION_BUFFER_BYTES")
    room = min(settings.partition_buffer_bytes - buffer.uncommitted_bytes, settings.buffer_bytes - run.buffers.size)
    try:
        placed = place(
            partition,
            append.records,
            append.batches,
            room=room,
            now_ms=deps.now_ms,
            arrival_ms=arrival_ms,
        )
    except CorruptData as error:
        return Appended(Status.INVALID, str(error))
    except NoRoom as error:
        return Appended(Status.BUFFER_FULL, str(error))
    except SequenceRefused as error:
        if error.status == Status.BUFFER_FULL and not again:
            run.snapshots.expire(partition, pressed=True)
            return _append_to(run, deps, partition, append, arrival_ms, again=True)
        return Appended(error.status, str(error), log_start=partition.log.log_start)
    hold_until = _account(run, settings, partition, placed) if placed.size else 0
    return Appended(
        epoch=partition.epoch,
        base_offset=placed.base_offset,
        # The caller acks when the records up to here are committed, also those of the original of a duplicate.
        end_offset=placed.end_offset,
        log_start=partition.log.log_start,
        append_time_ms=placed.append_time_ms,
        hold_until=hold_until,
        durable_soon=placed.size > 0 and run.intake.is_immediate,
    )


def _account(run: Run, settings: StorageSettings, partition: Partition, placed: Placed) -> int:
    """Account for new batches. Return until which offset segments must be committed before the producer is answered.

    That frees space: if all replies were sent at the next commit, producers would fill the buffer again.
    """
    buffer = partition.buffer
    run.buffers.added(partition, placed.size, placed.end_offset - placed.base_offset)
    excess = buffer.uncommitted_bytes - settings.partition_buffer_bytes // 2
    if excess <= 0 and run.buffers.size <= settings.buffer_bytes // 2:
        return 0
    if run.intake.is_on and not buffer.has_sealed:
        run.buffers.seal(partition, "memory")
    return buffer.end_of_first(excess)


def _trace(deps: Dependencies, partition: Partition, append: Append, result: Appended, *, placed: bool) -> None:
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
