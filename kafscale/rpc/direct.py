"""The transport of the one-process mode: a service object called directly, with the rules of a remote call."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, Protocol, TypeVar

import trio
from google.protobuf.message import Message

from kafscale.errors import KafscaleError, Unavailable
from kafscale.rpc.bulk import Bulk
from kafscale.rpc.errors import as_received
from kafscale.rpc.interface import MessageStream
from kafscale.rpc.limits import RpcLimits
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

Q = TypeVar("Q")
A = TypeVar("A")
M = TypeVar("M", bound=Message)
_LIMITS = RpcLimits()


class SegmentStorage(Protocol):
    """The service object behind `SegmentStorageClient`."""

    async def append(self, request: AppendRequest) -> AppendReply: ...
    async def fetch(self, request: FetchRequest) -> FetchReply: ...
    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsReply: ...
    async def flush(self, request: FlushRequest) -> FlushReply: ...
    async def delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsReply: ...
    async def epoch_ends(self, request: EpochEndsRequest) -> EpochEndsReply: ...
    async def producers(self, request: ProducersRequest) -> ProducersReply: ...
    async def log_sizes(self, request: LogSizesRequest) -> LogSizesReply: ...
    async def segments(self, request: SegmentsRequest) -> SegmentsReply: ...
    async def stage(self, request: StageRequest) -> StageReply: ...
    async def commit_sink(self, request: CommitSinkRequest) -> CommitSinkReply: ...
    async def discard_stages(self, request: DiscardStagesRequest) -> DiscardStagesReply: ...
    async def commits(self, request: CommitsRequest, send: Callable[[CommitsEvent], Awaitable[None]]) -> None: ...
    async def topics(self, request: TopicsRequest) -> TopicsReply: ...
    async def plan_scan(self, request: PlanScanRequest) -> PlanScanReply: ...
    async def scan(
        self, request: ScanRequest, send: Callable[[ScanPiece | Bulk[ScanPiece]], Awaitable[None]]
    ) -> None: ...


class Indexer(Protocol):
    """The service object behind `IndexerClient`."""

    async def build(self, request: BuildRequest) -> BuildReply: ...
    async def verify(self, request: SegmentRef) -> VerifyReply: ...
    async def rebuild(self, request: SegmentRef) -> RebuildReply: ...
    async def locate_offset(self, request: LocateOffsetRequest) -> LocateReply: ...
    async def locate_timestamp(self, request: LocateTimestampRequest) -> LocateReply: ...
    async def write_catalog_page(self, request: WriteCatalogPageRequest) -> WriteCatalogPageReply: ...


class GroupCoordinator(Protocol):
    """The service object behind `GroupCoordinatorClient`."""

    async def join_group(self, request: JoinGroupRequest) -> JoinGroupReply: ...
    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupReply: ...
    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatReply: ...
    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupReply: ...
    async def offset_commit(self, request: OffsetCommitRequest) -> OffsetCommitReply: ...
    async def offset_fetch(self, request: OffsetFetchRequest) -> OffsetFetchReply: ...
    async def offset_delete(self, request: OffsetDeleteRequest) -> OffsetDeleteReply: ...
    async def describe_groups(self, request: DescribeGroupsRequest) -> DescribeGroupsReply: ...
    async def list_groups(self, request: ListGroupsRequest) -> ListGroupsReply: ...
    async def delete_groups(self, request: DeleteGroupsRequest) -> DeleteGroupsReply: ...


async def _call(method: Callable[[Q], Awaitable[A]], request: Q, timeout: float) -> A:
    with trio.move_on_after(timeout):
        try:
            return await method(request)
        except Exception as error:
            raise as_received(error, repr(method)) from error
    raise Unavailable(f"no answer within {timeout:g} s")


class _Received(Generic[A]):
    def __init__(self, messages: "trio.MemoryReceiveChannel[A]") -> None:
        self._messages = messages
        self.ended: KafscaleError = Unavailable("the stream ended")

    async def receive(self) -> A:
        try:
            return await self._messages.receive()
        except trio.EndOfChannel:
            raise self.ended from None


@asynccontextmanager
async def _stream(
    method: Callable[[Q, Callable[[M | Bulk[M]], Awaitable[None]]], Awaitable[None]], request: Q, buffered: int
) -> AsyncIterator[MessageStream[M]]:
    sender, receiver = trio.open_memory_channel[M](buffered)
    stream = _Received(receiver)

    async def send(message: M | Bulk[M]) -> None:
        await sender.send(message.whole() if isinstance(message, Bulk) else message)

    async def serve() -> None:
        async with sender:
            try:
                await method(request, send)
            except Exception as error:  # noqa: BLE001  it is the receiver's to raise, after what was sent before
                stream.ended = as_received(error, repr(method))

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            yield stream
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # The caller's own error, as it raised it.
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


class DirectStorage:
    """`SegmentStorageClient` and `TopicReaderClient` on a service object of the same process."""

    def __init__(self, service: SegmentStorage) -> None:
        self._service = service

    async def append(self, request: AppendRequest, *, timeout: float) -> AppendReply:
        return await _call(self._service.append, request, timeout)

    async def fetch(self, request: FetchRequest, *, timeout: float) -> FetchReply:
        return await _call(self._service.fetch, request, timeout)

    async def list_offsets(self, request: ListOffsetsRequest, *, timeout: float) -> ListOffsetsReply:
        return await _call(self._service.list_offsets, request, timeout)

    async def flush(self, request: FlushRequest, *, timeout: float) -> FlushReply:
        return await _call(self._service.flush, request, timeout)

    async def delete_records(self, request: DeleteRecordsRequest, *, timeout: float) -> DeleteRecordsReply:
        return await _call(self._service.delete_records, request, timeout)

    async def epoch_ends(self, request: EpochEndsRequest, *, timeout: float) -> EpochEndsReply:
        return await _call(self._service.epoch_ends, request, timeout)

    async def producers(self, request: ProducersRequest, *, timeout: float) -> ProducersReply:
        return await _call(self._service.producers, request, timeout)

    async def log_sizes(self, request: LogSizesRequest, *, timeout: float) -> LogSizesReply:
        return await _call(self._service.log_sizes, request, timeout)

    async def segments(self, request: SegmentsRequest, *, timeout: float) -> SegmentsReply:
        return await _call(self._service.segments, request, timeout)

    async def stage(self, request: StageRequest, *, timeout: float) -> StageReply:
        return await _call(self._service.stage, request, timeout)

    async def commit_sink(self, request: CommitSinkRequest, *, timeout: float) -> CommitSinkReply:
        return await _call(self._service.commit_sink, request, timeout)

    async def discard_stages(self, request: DiscardStagesRequest, *, timeout: float) -> DiscardStagesReply:
        return await _call(self._service.discard_stages, request, timeout)

    def commits(self, request: CommitsRequest) -> AbstractAsyncContextManager[MessageStream[CommitsEvent]]:
        return _stream(self._service.commits, request, _LIMITS.stream_messages)

    async def topics(self, request: TopicsRequest, *, timeout: float) -> TopicsReply:
        return await _call(self._service.topics, request, timeout)

    async def plan_scan(self, request: PlanScanRequest, *, timeout: float) -> PlanScanReply:
        return await _call(self._service.plan_scan, request, timeout)

    def scan(self, request: ScanRequest) -> AbstractAsyncContextManager[MessageStream[ScanPiece]]:
        return _stream(self._service.scan, request, _LIMITS.large_messages)


class DirectIndexer:
    """`IndexerClient` on a service object of the same process."""

    def __init__(self, service: Indexer) -> None:
        self._service = service

    async def build(self, request: BuildRequest, *, timeout: float) -> BuildReply:
        return await _call(self._service.build, request, timeout)

    async def verify(self, request: SegmentRef, *, timeout: float) -> VerifyReply:
        return await _call(self._service.verify, request, timeout)

    async def rebuild(self, request: SegmentRef, *, timeout: float) -> RebuildReply:
        return await _call(self._service.rebuild, request, timeout)

    async def locate_offset(self, request: LocateOffsetRequest, *, timeout: float) -> LocateReply:
        return await _call(self._service.locate_offset, request, timeout)

    async def locate_timestamp(self, request: LocateTimestampRequest, *, timeout: float) -> LocateReply:
        return await _call(self._service.locate_timestamp, request, timeout)

    async def write_catalog_page(self, request: WriteCatalogPageRequest, *, timeout: float) -> WriteCatalogPageReply:
        return await _call(self._service.write_catalog_page, request, timeout)


class DirectCoordinator:
    """`GroupCoordinatorClient` on a service object of the same process."""

    def __init__(self, service: GroupCoordinator) -> None:
        self._service = service

    async def join_group(self, request: JoinGroupRequest, *, timeout: float) -> JoinGroupReply:
        return await _call(self._service.join_group, request, timeout)

    async def sync_group(self, request: SyncGroupRequest, *, timeout: float) -> SyncGroupReply:
        return await _call(self._service.sync_group, request, timeout)

    async def heartbeat(self, request: HeartbeatRequest, *, timeout: float) -> HeartbeatReply:
        return await _call(self._service.heartbeat, request, timeout)

    async def leave_group(self, request: LeaveGroupRequest, *, timeout: float) -> LeaveGroupReply:
        return await _call(self._service.leave_group, request, timeout)

    async def offset_commit(self, request: OffsetCommitRequest, *, timeout: float) -> OffsetCommitReply:
        return await _call(self._service.offset_commit, request, timeout)

    async def offset_fetch(self, request: OffsetFetchRequest, *, timeout: float) -> OffsetFetchReply:
        return await _call(self._service.offset_fetch, request, timeout)

    async def offset_delete(self, request: OffsetDeleteRequest, *, timeout: float) -> OffsetDeleteReply:
        return await _call(self._service.offset_delete, request, timeout)

    async def describe_groups(self, request: DescribeGroupsRequest, *, timeout: float) -> DescribeGroupsReply:
        return await _call(self._service.describe_groups, request, timeout)

    async def list_groups(self, request: ListGroupsRequest, *, timeout: float) -> ListGroupsReply:
        return await _call(self._service.list_groups, request, timeout)

    async def delete_groups(self, request: DeleteGroupsRequest, *, timeout: float) -> DeleteGroupsReply:
        return await _call(self._service.delete_groups, request, timeout)
