"""Fetch: read committed batches from the requested offsets of several partitions, for several readers per message."""

from collections.abc import Sequence

import structlog
import trio

from kafscale.errors import CorruptData
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import FetchReply, FetchRequest, PartitionFetch, PartitionFetched
from services.storage.dependencies import Dependencies
from services.storage.log.partition import Partition
from services.storage.methods.acquiring import acquire_all
from services.storage.methods.refusal import refusal_of, unanswered
from services.storage.owning.takeover import NotAvailable
from services.storage.reading.finder import Damaged
from services.storage.reading.single_flight import Flight
from services.storage.run import Run

log = structlog.get_logger()


def _readable(run: Run, refs: list[PartitionRef]) -> list[Partition | NotAvailable | None]:
    """Return the partitions that this run serves as the owner. None: read it as any instance can."""
    return [run.owned.get((ref.topic_id, ref.partition)) if run.membership.proven else None for ref in refs]


async def fetch(run: Run, deps: Dependencies, request: FetchRequest) -> FetchReply:
    """Return a result for each partition of the request. Raises CorruptData if a group has no limit."""
    limits, reply = [request.max_bytes, *request.more_max_bytes], FetchReply()
    if any(each.group >= len(limits) for each in request.fetches):
        raise CorruptData(f"a fetch of a group beyond the {len(limits)} that have limits")
    refs = [each.partition for each in request.fetches]
    partitions: Sequence[Partition | NotAvailable | None]
    partitions = _readable(run, refs) if request.scan else await acquire_all(run, refs)
    stream = run.streams.get(request.stream_id) if request.stream_id and not request.scan else None
    remaining_of = list(limits)
    deadline = trio.current_time() + deps.settings.fetch_read_timeout_ms / 1000
    begun = _begin_reads(run, request.fetches, partitions, limits) if len(partitions) > 1 else {}
    for index, (requested, found) in enumerate(zip(request.fetches, partitions, strict=True)):
        # Filled in place: protobuf's append would encode, decode and so copy the records.
        result = reply.results.add()
        if isinstance(found, NotAvailable):
            result.status, result.detail, result.owner = found.status, str(found), found.owner
            continue
        # The partition may have been handed over while others were taken over or read.
        if stream is not None and found is not None and not found.closed:
            stream.subscribe(found.key, found.committed_event)
        # The first batch of a group is returned whole; later partitions only get the remaining bytes.
        remaining = remaining_of[requested.group]
        whole = remaining == limits[requested.group]
        # Reads that need no waiting are still answered after the deadline.
        with trio.move_on_at(deadline) as waiting:
            if found is None:
                records = await run.logs.fetch(requested, min(requested.max_bytes, max(remaining, 0)), result)
            else:
                records = await _fetch_one(
                    run,
                    deps,
                    found,
                    requested,
                    result,
                    remaining=max(remaining, 0),
                    leader_epoch=-1 if request.scan else requested.leader_epoch,
                    reading=begun.get(index),
                )
        if waiting.cancelled_caught:
            result.status, result.detail = Status.UNAVAILABLE, "the object store did not answer in time"
        elif whole or len(records) <= remaining:
            result.records = records
            deps.counters.fetched_bytes += len(records)
            remaining_of[requested.group] -= len(records)
    return reply


async def _fetch_one(
    run: Run,
    deps: Dependencies,
    partition: Partition,
    fetch: PartitionFetch,
    result: PartitionFetched,
    *,
    remaining: int,
    leader_epoch: int,
    reading: Flight[bytes] | None,
) -> bytes:
    """Fill ``result`` except for its records, and return the records."""
    view = partition.log
    refusal = await refusal_of(run, deps, partition, leader_epoch, fetch.offset, only_records=True)
    if refusal is not None:
        result.status, result.detail, result.owner = refusal.status, str(refusal), refusal.owner
    result.epoch, result.high_watermark, result.log_start = partition.epoch, view.high_watermark, view.log_start
    if not run.membership.proven:
        # A later owner may have advanced both.
        result.high_watermark = result.log_start = -1
    limit = min(fetch.max_bytes, remaining)
    if refusal or limit <= 0 or fetch.offset >= view.high_watermark:
        return b""
    try:
        return await (reading.wait() if reading else run.reader.read(view, fetch.offset, limit))
    except Damaged as error:
        if not run.membership.proven:
            # A later owner may have deleted the missing object.
            result.status, result.detail = Status.NOT_OWNER, str(error)
            result.owner = run.owned.elsewhere(partition.key)
            return b""
        if fetch.offset < view.log_start:
            # The object was deleted during the read.
            result.status, result.detail = Status.OFFSET_OUT_OF_RANGE, f"the log starts at {view.log_start}"
            result.log_start = view.log_start
            return b""
        log.error("committed data cannot be read", partition=partition.name, reason=str(error))
        run.retention.look_at(partition)
        result.status, result.detail = Status.DAMAGED, str(error)
    except STORE_FAILURES as error:
        failure = unanswered(run, partition, error)
        result.status, result.detail, result.owner = failure.status, str(failure), failure.owner
    return b""


def _begin_reads(
    run: Run,
    fetches: Sequence[PartitionFetch],
    partitions: Sequence[Partition | NotAvailable | None],
    limits: Sequence[int],
) -> dict[int, Flight[bytes]]:
    """Start concurrent reads of what is not cached. Return them by index in ``fetches``.

    Only fetches that fit the limits even if all earlier ones return their maximum are started.
    """
    begun: dict[int, Flight[bytes]] = {}
    remaining_of = list(limits)
    for index, (fetch, found) in enumerate(zip(fetches, partitions, strict=True)):
        limit = min(fetch.max_bytes, remaining_of[fetch.group])
        if not isinstance(found, Partition) or limit <= 0:
            continue
        view = found.log
        if not view.epochs or not view.log_start <= fetch.offset < view.high_watermark:
            continue
        remaining_of[fetch.group] -= limit
        if not run.reader.is_cached(view, fetch.offset):
            try:
                begun[index] = run.reader.begin(view, fetch.offset, limit)
            except STORE_FAILURES:
                break
    return begun
