"""The SegmentStorage service of protos/kafscale/v1/storage.proto, for the partitions that this run owns."""

from collections.abc import Awaitable, Callable

import structlog
import trio

from kafscale.errors import Unavailable
from kafscale.metadata.membership import new_run_id
from kafscale.process.leased import LeasedRuns
from kafscale.rpc.bulk import Bulk
from kafscale.v1.storage_pb2 import (
    AppendReply,
    AppendRequest,
    CommitsEvent,
    CommitSinkReply,
    CommitSinkRequest,
    CommitsRequest,
    DeleteRecordsReply,
    DeleteRecordsRequest,
    DescribeSegmentRequest,
    DiscardStagesReply,
    DiscardStagesRequest,
    EpochEndsReply,
    EpochEndsRequest,
    FetchReply,
    FetchRequest,
    FlushReply,
    FlushRequest,
    ListOffsetsReply,
    ListOffsetsRequest,
    LogSizesReply,
    LogSizesRequest,
    PlanScanReply,
    PlanScanRequest,
    ProducersReply,
    ProducersRequest,
    ScanPiece,
    ScanRequest,
    SegmentDescribed,
    SegmentsReply,
    SegmentsRequest,
    StageReply,
    StageRequest,
    TopicsReply,
    TopicsRequest,
)
from services.storage.dependencies import Dependencies
from services.storage.intake.power_failure import cut_after_power_failure
from services.storage.methods.append import append
from services.storage.methods.delete_records import delete_records
from services.storage.methods.describe_segment import describe_segment
from services.storage.methods.epoch_ends import epoch_ends
from services.storage.methods.fetch import fetch
from services.storage.methods.flush import flush
from services.storage.methods.list_offsets import list_offsets
from services.storage.methods.log_sizes import log_sizes
from services.storage.methods.plan_scan import plan_scan
from services.storage.methods.producers import producers
from services.storage.methods.scan import scan
from services.storage.methods.segments import segments
from services.storage.methods.topics import topics
from services.storage.owning.cluster_mark import mark_prefix
from services.storage.run import Run
from services.storage.settings import StorageSettings

log = structlog.get_logger()


class StorageService:
    """Serves requests while a run holds its lease. A lost lease ends it; the next run starts without partitions."""

    def __init__(self, deps: Dependencies, *, make_run_id: Callable[[], str] = new_run_id) -> None:
        self.deps = deps
        self._runs = LeasedRuns(lambda nursery: Run(deps, make_run_id(), nursery), self._lost)

    async def run(self, stop: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until ``stop``, then flush, commit and release. Raises Unavailable if some records were not stored."""
        deps = self.deps
        cluster = await deps.catalog.cluster()
        await mark_prefix(deps.objects, deps.metadata, deps.namespace, cluster.cluster_id)
        if deps.intake_unsynced:
            await cut_after_power_failure(deps.objects, deps.namespace)
        lost = (await self._runs.run(stop, task_status)).lost_bytes
        if lost:
            raise Unavailable(f"stopped with {lost} bytes of records that could not be stored in time")

    def _lost(self) -> None:
        self.deps.counters.leases_lost += 1
        log.error("lease lost, partitions must be taken over again")

    @property
    def settings(self) -> StorageSettings:
        return self.deps.settings

    @property
    def current(self) -> Run | None:
        """The run that holds the lease. None during startup and between two leases."""
        return self._runs.current

    async def append(self, request: AppendRequest) -> AppendReply:
        return await append(self._current(), self.deps, request)

    async def commits(self, request: CommitsRequest, send: Callable[[CommitsEvent], Awaitable[None]]) -> None:
        await self._current().streams.serve(request.stream_id, send)

    async def fetch(self, request: FetchRequest) -> FetchReply:
        return await fetch(self._current(), self.deps, request)

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsReply:
        return await list_offsets(self._current(), self.deps, request)

    async def epoch_ends(self, request: EpochEndsRequest) -> EpochEndsReply:
        return await epoch_ends(self._current(), self.deps, request)

    async def producers(self, request: ProducersRequest) -> ProducersReply:
        return await producers(self._current(), self.deps, request)

    async def log_sizes(self, request: LogSizesRequest) -> LogSizesReply:
        return await log_sizes(self._current(), self.deps, request)

    async def describe_segment(self, request: DescribeSegmentRequest) -> SegmentDescribed:
        return await describe_segment(self._current(), request)

    async def segments(self, request: SegmentsRequest) -> SegmentsReply:
        return await segments(self._current(), self.deps, request)

    async def topics(self, request: TopicsRequest) -> TopicsReply:
        return await topics(self.deps, request)

    async def plan_scan(self, request: PlanScanRequest) -> PlanScanReply:
        return await plan_scan(self._current(), self.deps, request)

    async def scan(self, request: ScanRequest, send: Callable[[ScanPiece | Bulk[ScanPiece]], Awaitable[None]]) -> None:
        await scan(self._current(), self.deps, request, send)

    async def flush(self, request: FlushRequest) -> FlushReply:
        return await flush(self._current(), request)

    async def delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsReply:
        return await delete_records(self._current(), self.deps, request)

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
