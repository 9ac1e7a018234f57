"""What a caller of a service holds: the methods of protos/, with a deadline each.

A transport puts a service object behind these: ``direct.py`` in one process, ``typed.py`` over gRPC; a caller cannot
tell them apart. A service object has the same method names and messages; its streaming methods get the request and an
async ``send`` for the messages, which waits while the reader is slow.

Errors: a caller gets the kind of error that the service raised, with its message (the table in ``errors.py``; a
subclass arrives as its kind). ``Unavailable`` also stands for everything that leaves the outcome unknown: no answer
within ``timeout`` seconds, no connection or a lost one, a service that stops, has too many calls in hand, or failed by
a defect of its own (which it logs). ``Refused`` also stands for a message beyond the transport's limit and a peer that
lacks the method. A call whose caller is cancelled or out of time is cancelled at the service.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

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

M_co = TypeVar("M_co", covariant=True)


class MessageStream(Protocol[M_co]):
    """Messages of a server stream, in order."""

    async def receive(self) -> M_co:
        """The next message; being cancelled loses none.

        Raises, after all that was sent, what the service raised, and ``Unavailable`` when it ended the stream or the
        stream broke; raises the same again when called again.
        """
        ...


class SegmentStorageClient(Protocol):
    """The SegmentStorage service of one peer."""

    async def append(self, request: AppendRequest, *, timeout: float) -> AppendReply: ...
    async def fetch(self, request: FetchRequest, *, timeout: float) -> FetchReply: ...
    async def list_offsets(self, request: ListOffsetsRequest, *, timeout: float) -> ListOffsetsReply: ...
    async def flush(self, request: FlushRequest, *, timeout: float) -> FlushReply: ...
    async def delete_records(self, request: DeleteRecordsRequest, *, timeout: float) -> DeleteRecordsReply: ...
    async def epoch_ends(self, request: EpochEndsRequest, *, timeout: float) -> EpochEndsReply: ...
    async def producers(self, request: ProducersRequest, *, timeout: float) -> ProducersReply: ...
    async def log_sizes(self, request: LogSizesRequest, *, timeout: float) -> LogSizesReply: ...
    async def segments(self, request: SegmentsRequest, *, timeout: float) -> SegmentsReply: ...
    def commits(self, request: CommitsRequest) -> AbstractAsyncContextManager[MessageStream[CommitsEvent]]: ...


class TopicReaderClient(Protocol):
    """What readers of whole topics ask of any storage instance; the same peer, whose other methods gateways use."""

    async def topics(self, request: TopicsRequest, *, timeout: float) -> TopicsReply: ...
    async def plan_scan(self, request: PlanScanRequest, *, timeout: float) -> PlanScanReply: ...
    def scan(self, request: ScanRequest) -> AbstractAsyncContextManager[MessageStream[ScanPiece]]: ...


class SinkWriterClient(Protocol):
    """What exactly-once sinks ask of any storage instance; the same peer, whose other methods gateways use."""

    async def stage(self, request: StageRequest, *, timeout: float) -> StageReply: ...
    async def commit_sink(self, request: CommitSinkRequest, *, timeout: float) -> CommitSinkReply: ...
    async def discard_stages(self, request: DiscardStagesRequest, *, timeout: float) -> DiscardStagesReply: ...


class IndexerClient(Protocol):
    """The Indexer service of one peer, or of any."""

    async def build(self, request: BuildRequest, *, timeout: float) -> BuildReply: ...
    async def verify(self, request: SegmentRef, *, timeout: float) -> VerifyReply: ...
    async def rebuild(self, request: SegmentRef, *, timeout: float) -> RebuildReply: ...
    async def locate_offset(self, request: LocateOffsetRequest, *, timeout: float) -> LocateReply: ...
    async def locate_timestamp(self, request: LocateTimestampRequest, *, timeout: float) -> LocateReply: ...
    async def write_catalog_page(
        self, request: WriteCatalogPageRequest, *, timeout: float
    ) -> WriteCatalogPageReply: ...


class GroupCoordinatorClient(Protocol):
    """The GroupCoordinator service of one peer."""

    async def join_group(self, request: JoinGroupRequest, *, timeout: float) -> JoinGroupReply: ...
    async def sync_group(self, request: SyncGroupRequest, *, timeout: float) -> SyncGroupReply: ...
    async def heartbeat(self, request: HeartbeatRequest, *, timeout: float) -> HeartbeatReply: ...
    async def leave_group(self, request: LeaveGroupRequest, *, timeout: float) -> LeaveGroupReply: ...
    async def offset_commit(self, request: OffsetCommitRequest, *, timeout: float) -> OffsetCommitReply: ...
    async def offset_fetch(self, request: OffsetFetchRequest, *, timeout: float) -> OffsetFetchReply: ...
    async def offset_delete(self, request: OffsetDeleteRequest, *, timeout: float) -> OffsetDeleteReply: ...
    async def describe_groups(self, request: DescribeGroupsRequest, *, timeout: float) -> DescribeGroupsReply: ...
    async def list_groups(self, request: ListGroupsRequest, *, timeout: float) -> ListGroupsReply: ...
    async def delete_groups(self, request: DeleteGroupsRequest, *, timeout: float) -> DeleteGroupsReply: ...
