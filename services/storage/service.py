"""The SegmentStorage service: what protos/kafscale/v1/storage.proto says, on the partitions that this run owns."""

import math
from collections.abc import Awaitable, Callable

import structlog
import trio

from kafscale.errors import Unavailable
from kafscale.metadata.membership import new_run_id
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.rpc.bulk import Bulk
from kafscale.service.leased import LeasedRuns
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import (
    AppendReply,
    AppendRequest,
    CommitsEvent,
    CommitSinkReply,
    CommitSinkRequest,
    CommitsRequest,
    DeleteRecordsReply,
    DeleteRecordsRequest,
    DiscardStagesReply,
    DiscardStagesRequest,
    EpochEnd,
    EpochEndsReply,
    EpochEndsRequest,
    EpochQuery,
    FetchReply,
    FetchRequest,
    FlushReply,
    FlushRequest,
    ListOffsetsReply,
    ListOffsetsRequest,
    LogSizesReply,
    LogSizesRequest,
    PartitionAppend,
    PartitionAppended,
    PartitionFlushed,
    PartitionOffset,
    PartitionQuery,
    PartitionTruncated,
    PlanScanReply,
    PlanScanRequest,
    ProducersReply,
    ProducersRequest,
    ScanPiece,
    ScanRequest,
    SegmentsReply,
    SegmentsRequest,
    StageReply,
    StageRequest,
    TopicsReply,
    TopicsRequest,
)
from services.storage.cluster_mark import mark_prefix
from services.storage.commits import CommitStream
from services.storage.fetches import answer_fetch, readable
from services.storage.finder import Damaged
from services.storage.offsets import list_offset
from services.storage.partition import Partition
from services.storage.parts import Parts
from services.storage.placing import place
from services.storage.plans import plan_scans
from services.storage.refusal import refusal_of, unanswered
from services.storage.run import Run
from services.storage.scan_stream import scan
from services.storage.segment_list import list_segments
from services.storage.settings import StorageSettings
from services.storage.shown_producers import producers_of
from services.storage.sizes import log_sizes
from services.storage.takeover import NotAvailable
from services.storage.topic_list import described_topics

log = structlog.get_logger()


class StorageService:
    """Answers while a run holds its lease; a lost lease ends the run, and a new one starts with nothing owned."""

    def __init__(self, parts: Parts, *, make_run_id: Callable[[], str] = new_run_id) -> None:
        self._parts = parts
        self._runs = LeasedRuns(lambda nursery: Run(parts, make_run_id(), nursery), self._lost)

    async def run(self, stop: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until ``stop``, then flush, commit and release. Raises Unavailable when not all could be stored."""
        parts = self._parts
        cluster = await parts.catalog.cluster()
        await mark_prefix(parts.objects, parts.metadata, parts.namespace, cluster.cluster_id)
        lost = (await self._runs.run(stop, task_status)).lost_bytes
        if lost:
            raise Unavailable(f"stopped with {lost} bytes of records that could not be stored in time")

    def _lost(self) -> None:
        self._parts.figures.leases_lost += 1
        log.error("lease lost: everything is taken over anew")

    @property
    def settings(self) -> StorageSettings:
        return self._parts.settings

    @property
    def current(self) -> Run | None:
        """None: it is starting, or between two leases."""
        return self._runs.current

    async def append(self, request: AppendRequest) -> AppendReply:
        run = self._current()
        stream = run.streams.get(request.stream_id)
        if stream is None or not await stream.turn(request.sequence):
            raise Unavailable("no such commit stream, or an append out of its order")
        # All appends of the stream wait behind this one.
        patience = self._parts.settings.append_load_wait_ms / 1000
        partitions = await self._acquired(run, [append.partition for append in request.appends], patience=patience)
        stream.seen(request.seen)
        # From here to the reply nothing waits: the order of appends is the order of offsets.
        results = [
            self._append_one(run, stream, request, append, found)
            for append, found in zip(request.appends, partitions, strict=True)
        ]
        stream.applied_one()
        return AppendReply(results=results)

    def _append_one(
        self,
        run: Run,
        stream: CommitStream,
        request: AppendRequest,
        append: PartitionAppend,
        found: Partition | NotAvailable,
    ) -> PartitionAppended:
        key = (append.partition.topic_id, append.partition.partition)
        if request.seen < stream.refused.get(key, 0):
            return PartitionAppended(status=Status.REFUSED_BEHIND, detail="an earlier batch was refused")
        if isinstance(found, NotAvailable):
            result = PartitionAppended(status=found.status, detail=str(found), owner=found.owner)
        else:
            # It may have been handed over while another partition was taken over.
            if not found.closed:
                stream.subscribe(key, found.standing)
            end = found.buffer.next_offset
            result = place(run, found, append, settings=self._parts.settings, now_ms=self._parts.now_ms())
            if append.trace:
                self._trace(found, append, result, placed=found.buffer.next_offset > end)
        if result.status != Status.OK:
            stream.refused[key] = request.sequence
            self._parts.figures.refused[Status.Name(result.status)] += 1
        else:
            stream.refused.pop(key, None)
        return result

    def _trace(self, partition: Partition, append: PartitionAppend, result: PartitionAppended, *, placed: bool) -> None:
        """Not ``placed``: the batch was refused, or is there already."""
        tracer = self._parts.tracer
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

    async def commits(self, request: CommitsRequest, send: Callable[[CommitsEvent], Awaitable[None]]) -> None:
        await self._current().streams.serve(request.stream_id, send)

    async def fetch(self, request: FetchRequest) -> FetchReply:
        run = self._current()
        refs = [fetch.partition for fetch in request.fetches]
        partitions = readable(run, refs) if request.scan else await self._acquired(run, refs)
        return await answer_fetch(run, self._parts, request, partitions)

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsReply:
        run = self._current()
        partitions = await self._acquired(run, [query.partition for query in request.queries])
        results = [
            _no_offset(found) if isinstance(found, NotAvailable) else await self._list_one(run, found, query)
            for query, found in zip(request.queries, partitions, strict=True)
        ]
        return ListOffsetsReply(results=results)

    async def _list_one(self, run: Run, partition: Partition, query: PartitionQuery) -> PartitionOffset:
        refusal = await refusal_of(run, self._parts, partition, query.leader_epoch, partition.log.log_start)
        if refusal is not None:
            return _no_offset(refusal)
        log_start = partition.log.log_start
        try:
            return await list_offset(
                partition.log,
                query.timestamp,
                reader=run.reader,
                catalogs=run.catalogs,
                indexer=self._parts.indexer,
            )
        except Damaged as error:
            if log_start < partition.log.log_start:
                # What was looked at was deleted meanwhile.
                return await self._list_one(run, partition, query)
            log.error("committed data cannot be read", partition=partition.name, reason=str(error))
            return _no_offset(NotAvailable(Status.DAMAGED, str(error)))
        except STORE_FAILURES as error:
            return _no_offset(unanswered(run, partition, error))

    async def epoch_ends(self, request: EpochEndsRequest) -> EpochEndsReply:
        run = self._current()
        partitions = await self._acquired(run, [query.partition for query in request.queries])
        results = [
            _no_epoch(found) if isinstance(found, NotAvailable) else await self._epoch_end(run, found, query)
            for query, found in zip(request.queries, partitions, strict=True)
        ]
        return EpochEndsReply(results=results)

    async def _epoch_end(self, run: Run, partition: Partition, query: EpochQuery) -> EpochEnd:
        refusal = await refusal_of(run, self._parts, partition, query.leader_epoch, partition.log.log_start)
        if refusal is not None:
            return _no_epoch(refusal)
        epoch, end_offset = partition.log.end_of_epoch(query.epoch)
        return EpochEnd(epoch=epoch, end_offset=end_offset)

    async def producers(self, request: ProducersRequest) -> ProducersReply:
        return ProducersReply(results=await producers_of(self._current(), self._parts, request))

    async def log_sizes(self, request: LogSizesRequest) -> LogSizesReply:
        at_a_time = self._parts.settings.reads_in_flight
        return LogSizesReply(results=await log_sizes(self._current(), request, at_a_time=at_a_time))

    async def segments(self, request: SegmentsRequest) -> SegmentsReply:
        return await list_segments(self._current(), self._parts.indexer, request)

    async def topics(self, request: TopicsRequest) -> TopicsReply:
        return await described_topics(self._parts, request)

    async def plan_scan(self, request: PlanScanRequest) -> PlanScanReply:
        return await plan_scans(self._current(), self._parts, request)

    async def scan(self, request: ScanRequest, send: Callable[[ScanPiece | Bulk[ScanPiece]], Awaitable[None]]) -> None:
        await scan(self._current(), self._parts, request, send)

    async def flush(self, request: FlushRequest) -> FlushReply:
        run = self._current()
        if request.partitions:
            found = await self._acquired(run, list(request.partitions))
        else:
            found = list(run.owned)
        # Sealed all at once: while one is waited for, the others are uploaded too.
        for one in found:
            if isinstance(one, Partition):
                run.seal(one, "request")
        reply = FlushReply()
        for one in found:
            if isinstance(one, NotAvailable):
                reply.results.append(PartitionFlushed(status=one.status, detail=str(one), owner=one.owner))
                continue
            done = await run.flush(one, "request")
            result = PartitionFlushed(partition=one.ref, committed_end=one.log.committed_end)
            if one.offline:
                result.status, result.detail = Status.DAMAGED, one.offline
            elif not done:
                result.status, result.owner = Status.NOT_OWNER, run.owned.elsewhere(one.key)
            reply.results.append(result)
        return reply

    async def delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsReply:
        run = self._current()
        found = await self._acquired(run, [truncation.partition for truncation in request.partitions])
        reply = DeleteRecordsReply(results=[PartitionTruncated() for _ in found])
        async with trio.open_nursery() as nursery:
            for one, truncation, result in zip(found, request.partitions, reply.results, strict=True):
                if isinstance(one, NotAvailable):
                    result.status, result.detail, result.owner = one.status, str(one), one.owner
                else:
                    nursery.start_soon(self._delete_records_of, run, one, truncation.offset, result)
        return reply

    async def _delete_records_of(self, run: Run, partition: Partition, offset: int, result: PartitionTruncated) -> None:
        view = partition.log
        # Where the log begins and ends. From here nothing waits before an answer but a commit, which proves as much.
        refusal = await refusal_of(run, self._parts, partition, -1, view.log_start)
        if refusal is None and partition.offline:
            refusal = NotAvailable(Status.DAMAGED, partition.offline)
        if refusal is not None:
            result.status, result.detail, result.owner = refusal.status, str(refusal), refusal.owner
            return
        offset = view.committed_end if offset == -1 else offset
        if not 0 <= offset <= view.committed_end:
            result.status, result.detail = Status.OFFSET_OUT_OF_RANGE, f"the log ends at {view.committed_end}"
            return
        if not partition.moving:
            await run.move_log_start(partition, offset)
        if view.log_start < offset:
            result.status, result.detail = Status.NOT_OWNER, "another instance is to have the partition"
            result.owner = run.owned.elsewhere(partition.key)
            return
        run.retention.clean(partition)
        result.log_start = view.log_start

    async def stage(self, request: StageRequest) -> StageReply:
        return await self._current().sinks.stage(request)

    async def commit_sink(self, request: CommitSinkRequest) -> CommitSinkReply:
        return await self._current().sinks.commit(request)

    async def discard_stages(self, request: DiscardStagesRequest) -> DiscardStagesReply:
        return await self._current().sinks.discard(request)

    def _current(self) -> Run:
        if self.current is None:
            raise Unavailable("storage is starting")
        return self.current

    async def _acquired(
        self, run: Run, refs: list[PartitionRef], *, patience: float = math.inf
    ) -> list[Partition | NotAvailable]:
        """Each partition, those not owned yet taken over at the same time."""
        found: list[Partition | NotAvailable | None] = [run.owned.get((ref.topic_id, ref.partition)) for ref in refs]
        if None in found:
            async with trio.open_nursery() as nursery:
                for i, one in enumerate(found):
                    if one is None:
                        nursery.start_soon(_acquire_into, run, refs[i], patience, found, i)
        return [one for one in found if one is not None]


async def _acquire_into(
    run: Run, ref: PartitionRef, patience: float, found: list[Partition | NotAvailable | None], index: int
) -> None:
    try:
        found[index] = await run.owned.acquire(ref, patience=patience)
    except NotAvailable as error:
        found[index] = error


def _no_offset(error: NotAvailable) -> PartitionOffset:
    return PartitionOffset(
        status=error.status, detail=str(error), offset=-1, timestamp=-1, leader_epoch=-1, owner=error.owner
    )


def _no_epoch(error: NotAvailable) -> EpochEnd:
    return EpochEnd(status=error.status, detail=str(error), epoch=-1, end_offset=-1, owner=error.owner)
