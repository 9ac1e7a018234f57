"""The clients of `kafscale.rpc.interface` over gRPC, and what puts the services' objects behind them."""

from contextlib import AbstractAsyncContextManager

from kafscale.rpc.client import Channel
from kafscale.rpc.direct import GroupCoordinator, Indexer, SegmentStorage
from kafscale.rpc.interface import MessageStream
from kafscale.rpc.methods import BoundService, bind, method
from kafscale.v1 import coordinator_pb2, indexer_pb2, storage_pb2
from kafscale.v1.coordinator_pb2 import (
    DeleteGroupsReply,
    DeleteGroupsRequest,
    DescribeGroupsReply,
    DescribeGroupsRequest,
    HeartbeatReply,
    HeartbeatRequest,
    JoinGroupReply,
    JoinGroupRequest,
    LeaveGroupReply,
    LeaveGroupRequest,
    ListGroupsReply,
    ListGroupsRequest,
    OffsetCommitReply,
    OffsetCommitRequest,
    OffsetDeleteReply,
    OffsetDeleteRequest,
    OffsetFetchReply,
    OffsetFetchRequest,
    SyncGroupReply,
    SyncGroupRequest,
)
from kafscale.v1.indexer_pb2 import (
    BuildReply,
    BuildRequest,
    LocateOffsetRequest,
    LocateReply,
    LocateTimestampRequest,
    RebuildReply,
    SegmentRef,
    VerifyReply,
    WriteCatalogPageReply,
    WriteCatalogPageRequest,
)
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
    SegmentsReply,
    SegmentsRequest,
    StageReply,
    StageRequest,
    TopicsReply,
    TopicsRequest,
)

_STORAGE = storage_pb2.DESCRIPTOR.services_by_name["SegmentStorage"]
_APPEND = method(_STORAGE, "Append", AppendRequest, AppendReply)
_FETCH = method(_STORAGE, "Fetch", FetchRequest, FetchReply)
_COMMITS = method(_STORAGE, "Commits", CommitsRequest, CommitsEvent)
_LIST_OFFSETS = method(_STORAGE, "ListOffsets", ListOffsetsRequest, ListOffsetsReply)
_FLUSH = method(_STORAGE, "Flush", FlushRequest, FlushReply)
_DELETE_RECORDS = method(_STORAGE, "DeleteRecords", DeleteRecordsRequest, DeleteRecordsReply)
_EPOCH_ENDS = method(_STORAGE, "EpochEnds", EpochEndsRequest, EpochEndsReply)
_PRODUCERS = method(_STORAGE, "Producers", ProducersRequest, ProducersReply)
_LOG_SIZES = method(_STORAGE, "LogSizes", LogSizesRequest, LogSizesReply)
_SEGMENTS = method(_STORAGE, "Segments", SegmentsRequest, SegmentsReply)
_TOPICS = method(_STORAGE, "Topics", TopicsRequest, TopicsReply)
_PLAN_SCAN = method(_STORAGE, "PlanScan", PlanScanRequest, PlanScanReply)
_SCAN = method(_STORAGE, "Scan", ScanRequest, ScanPiece)
_LARGE = ("Scan",)
_STAGE = method(_STORAGE, "Stage", StageRequest, StageReply)
_COMMIT_SINK = method(_STORAGE, "CommitSink", CommitSinkRequest, CommitSinkReply)
_DISCARD_STAGES = method(_STORAGE, "DiscardStages", DiscardStagesRequest, DiscardStagesReply)

_INDEXER = indexer_pb2.DESCRIPTOR.services_by_name["Indexer"]
_BUILD = method(_INDEXER, "Build", BuildRequest, BuildReply)
_VERIFY = method(_INDEXER, "Verify", SegmentRef, VerifyReply)
_REBUILD = method(_INDEXER, "Rebuild", SegmentRef, RebuildReply)
_LOCATE_OFFSET = method(_INDEXER, "LocateOffset", LocateOffsetRequest, LocateReply)
_LOCATE_TIMESTAMP = method(_INDEXER, "LocateTimestamp", LocateTimestampRequest, LocateReply)
_WRITE_CATALOG_PAGE = method(_INDEXER, "WriteCatalogPage", WriteCatalogPageRequest, WriteCatalogPageReply)

_COORDINATOR = coordinator_pb2.DESCRIPTOR.services_by_name["GroupCoordinator"]
_WAITING = ("JoinGroup", "SyncGroup")
_JOIN_GROUP = method(_COORDINATOR, "JoinGroup", JoinGroupRequest, JoinGroupReply)
_SYNC_GROUP = method(_COORDINATOR, "SyncGroup", SyncGroupRequest, SyncGroupReply)
_HEARTBEAT = method(_COORDINATOR, "Heartbeat", HeartbeatRequest, HeartbeatReply)
_LEAVE_GROUP = method(_COORDINATOR, "LeaveGroup", LeaveGroupRequest, LeaveGroupReply)
_OFFSET_COMMIT = method(_COORDINATOR, "OffsetCommit", OffsetCommitRequest, OffsetCommitReply)
_OFFSET_FETCH = method(_COORDINATOR, "OffsetFetch", OffsetFetchRequest, OffsetFetchReply)
_OFFSET_DELETE = method(_COORDINATOR, "OffsetDelete", OffsetDeleteRequest, OffsetDeleteReply)
_DESCRIBE_GROUPS = method(_COORDINATOR, "DescribeGroups", DescribeGroupsRequest, DescribeGroupsReply)
_LIST_GROUPS = method(_COORDINATOR, "ListGroups", ListGroupsRequest, ListGroupsReply)
_DELETE_GROUPS = method(_COORDINATOR, "DeleteGroups", DeleteGroupsRequest, DeleteGroupsReply)


def bind_storage(service: SegmentStorage) -> BoundService:
    """For `kafscale.rpc.server.RpcServer`."""
    return bind(_STORAGE, service, large=_LARGE)


def bind_indexer(service: Indexer) -> BoundService:
    """For `kafscale.rpc.server.RpcServer`."""
    return bind(_INDEXER, service)


def bind_coordinator(service: GroupCoordinator) -> BoundService:
    """For `kafscale.rpc.server.RpcServer`."""
    return bind(_COORDINATOR, service, waiting=_WAITING)


class GrpcStorage:
    """`SegmentStorageClient` and `TopicReaderClient` on the peer of ``channel``."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def append(self, request: AppendRequest, *, timeout: float) -> AppendReply:
        return await self._channel.call(_APPEND, request, timeout=timeout)

    async def fetch(self, request: FetchRequest, *, timeout: float) -> FetchReply:
        return await self._channel.call(_FETCH, request, timeout=timeout)

    async def list_offsets(self, request: ListOffsetsRequest, *, timeout: float) -> ListOffsetsReply:
        return await self._channel.call(_LIST_OFFSETS, request, timeout=timeout)

    async def flush(self, request: FlushRequest, *, timeout: float) -> FlushReply:
        return await self._channel.call(_FLUSH, request, timeout=timeout)

    async def delete_records(self, request: DeleteRecordsRequest, *, timeout: float) -> DeleteRecordsReply:
        return await self._channel.call(_DELETE_RECORDS, request, timeout=timeout)

    async def epoch_ends(self, request: EpochEndsRequest, *, timeout: float) -> EpochEndsReply:
        return await self._channel.call(_EPOCH_ENDS, request, timeout=timeout)

    async def producers(self, request: ProducersRequest, *, timeout: float) -> ProducersReply:
        return await self._channel.call(_PRODUCERS, request, timeout=timeout)

    async def log_sizes(self, request: LogSizesRequest, *, timeout: float) -> LogSizesReply:
        return await self._channel.call(_LOG_SIZES, request, timeout=timeout)

    async def segments(self, request: SegmentsRequest, *, timeout: float) -> SegmentsReply:
        return await self._channel.call(_SEGMENTS, request, timeout=timeout)

    async def stage(self, request: StageRequest, *, timeout: float) -> StageReply:
        return await self._channel.call(_STAGE, request, timeout=timeout)

    async def commit_sink(self, request: CommitSinkRequest, *, timeout: float) -> CommitSinkReply:
        return await self._channel.call(_COMMIT_SINK, request, timeout=timeout)

    async def discard_stages(self, request: DiscardStagesRequest, *, timeout: float) -> DiscardStagesReply:
        return await self._channel.call(_DISCARD_STAGES, request, timeout=timeout)

    def commits(self, request: CommitsRequest) -> AbstractAsyncContextManager[MessageStream[CommitsEvent]]:
        return self._channel.stream(_COMMITS, request)

    async def topics(self, request: TopicsRequest, *, timeout: float) -> TopicsReply:
        return await self._channel.call(_TOPICS, request, timeout=timeout)

    async def plan_scan(self, request: PlanScanRequest, *, timeout: float) -> PlanScanReply:
        return await self._channel.call(_PLAN_SCAN, request, timeout=timeout)

    def scan(self, request: ScanRequest) -> AbstractAsyncContextManager[MessageStream[ScanPiece]]:
        return self._channel.stream(_SCAN, request)


class GrpcIndexer:
    """`IndexerClient` on the peer of ``channel``."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def build(self, request: BuildRequest, *, timeout: float) -> BuildReply:
        return await self._channel.call(_BUILD, request, timeout=timeout)

    async def verify(self, request: SegmentRef, *, timeout: float) -> VerifyReply:
        return await self._channel.call(_VERIFY, request, timeout=timeout)

    async def rebuild(self, request: SegmentRef, *, timeout: float) -> RebuildReply:
        return await self._channel.call(_REBUILD, request, timeout=timeout)

    async def locate_offset(self, request: LocateOffsetRequest, *, timeout: float) -> LocateReply:
        return await self._channel.call(_LOCATE_OFFSET, request, timeout=timeout)

    async def locate_timestamp(self, request: LocateTimestampRequest, *, timeout: float) -> LocateReply:
        return await self._channel.call(_LOCATE_TIMESTAMP, request, timeout=timeout)

    async def write_catalog_page(self, request: WriteCatalogPageRequest, *, timeout: float) -> WriteCatalogPageReply:
        return await self._channel.call(_WRITE_CATALOG_PAGE, request, timeout=timeout)


class GrpcCoordinator:
    """`GroupCoordinatorClient` on the peer of ``channel``."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def join_group(self, request: JoinGroupRequest, *, timeout: float) -> JoinGroupReply:
        return await self._channel.call(_JOIN_GROUP, request, timeout=timeout)

    async def sync_group(self, request: SyncGroupRequest, *, timeout: float) -> SyncGroupReply:
        return await self._channel.call(_SYNC_GROUP, request, timeout=timeout)

    async def heartbeat(self, request: HeartbeatRequest, *, timeout: float) -> HeartbeatReply:
        return await self._channel.call(_HEARTBEAT, request, timeout=timeout)

    async def leave_group(self, request: LeaveGroupRequest, *, timeout: float) -> LeaveGroupReply:
        return await self._channel.call(_LEAVE_GROUP, request, timeout=timeout)

    async def offset_commit(self, request: OffsetCommitRequest, *, timeout: float) -> OffsetCommitReply:
        return await self._channel.call(_OFFSET_COMMIT, request, timeout=timeout)

    async def offset_fetch(self, request: OffsetFetchRequest, *, timeout: float) -> OffsetFetchReply:
        return await self._channel.call(_OFFSET_FETCH, request, timeout=timeout)

    async def offset_delete(self, request: OffsetDeleteRequest, *, timeout: float) -> OffsetDeleteReply:
        return await self._channel.call(_OFFSET_DELETE, request, timeout=timeout)

    async def describe_groups(self, request: DescribeGroupsRequest, *, timeout: float) -> DescribeGroupsReply:
        return await self._channel.call(_DESCRIBE_GROUPS, request, timeout=timeout)

    async def list_groups(self, request: ListGroupsRequest, *, timeout: float) -> ListGroupsReply:
        return await self._channel.call(_LIST_GROUPS, request, timeout=timeout)

    async def delete_groups(self, request: DeleteGroupsRequest, *, timeout: float) -> DeleteGroupsReply:
        return await self._channel.call(_DELETE_GROUPS, request, timeout=timeout)
