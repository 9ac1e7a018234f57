"""A programmable implementation of SegmentStorage, for tests of the transports."""

from collections.abc import Awaitable, Callable

import trio

from kafscale.rpc.bulk import Bulk
from kafscale.v1.storage_pb2 import (
    AppendReply,
    AppendRequest,
    CommitsEvent,
    CommitSinkReply,
    CommitSinkRequest,
    CommitsRequest,
    Committed,
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
    PartitionAppended,
    PartitionFetched,
    PlanScanReply,
    PlanScanRequest,
    ProducersReply,
    ProducersRequest,
    ScanPiece,
    ScanRequest,
    SegmentDescribed,
    SegmentsReply,
    SegmentsRequest,
    Stage,
    StageReply,
    StageRequest,
    TopicsReply,
    TopicsRequest,
)

Send = Callable[[CommitsEvent], Awaitable[None]]
SendPiece = Callable[[ScanPiece | Bulk[ScanPiece]], Awaitable[None]]
TIMEOUT = 30.0
"""A timeout for calls that take an instant. Only a hang reaches it."""


class Carrier:
    """`fetching`, `streaming` and `scanning` implement Fetch, Commits and Scan. The other methods answer at once."""

    def __init__(self) -> None:
        self.fetching: Callable[[FetchRequest], Awaitable[FetchReply]] = self.answer
        self.streaming: Callable[[CommitsRequest, Send], Awaitable[None]] = self.stay_silent
        self.scanning: Callable[[ScanRequest, SendPiece], Awaitable[None]] = self.no_pieces
        self.entered = trio.Event()
        self.cancelled = trio.Event()

    async def append(self, request: AppendRequest) -> AppendReply:
        """Return the number of bytes received as ``base_offset``."""
        return AppendReply(results=[PartitionAppended(base_offset=len(append.records)) for append in request.appends])

    async def fetch(self, request: FetchRequest) -> FetchReply:
        return await self.fetching(request)

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsReply:
        return ListOffsetsReply()

    async def flush(self, request: FlushRequest) -> FlushReply:
        return FlushReply()

    async def delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsReply:
        return DeleteRecordsReply()

    async def epoch_ends(self, request: EpochEndsRequest) -> EpochEndsReply:
        return EpochEndsReply()

    async def producers(self, request: ProducersRequest) -> ProducersReply:
        return ProducersReply()

    async def log_sizes(self, request: LogSizesRequest) -> LogSizesReply:
        return LogSizesReply()

    async def describe_segment(self, request: DescribeSegmentRequest) -> SegmentDescribed:
        return SegmentDescribed()

    async def segments(self, request: SegmentsRequest) -> SegmentsReply:
        return SegmentsReply()

    async def topics(self, request: TopicsRequest) -> TopicsReply:
        return TopicsReply(instances=request.names)

    async def plan_scan(self, request: PlanScanRequest) -> PlanScanReply:
        return PlanScanReply()

    async def scan(self, request: ScanRequest, send: SendPiece) -> None:
        await self.scanning(request, send)

    async def no_pieces(self, request: ScanRequest, send: SendPiece) -> None:
        """End the stream at once."""

    async def stage(self, request: StageRequest) -> StageReply:
        """Return the number of bytes received."""
        return StageReply(stage=Stage(partition=request.partition, size=len(request.records)))

    async def commit_sink(self, request: CommitSinkRequest) -> CommitSinkReply:
        """Return the number of stages received."""
        return CommitSinkReply(detail=str(len(request.stages)))

    async def discard_stages(self, request: DiscardStagesRequest) -> DiscardStagesReply:
        return DiscardStagesReply()

    async def commits(self, request: CommitsRequest, send: Send) -> None:
        await self.streaming(request, send)

    async def answer(self, request: FetchRequest) -> FetchReply:
        """Return ``max_bytes`` bytes with the detail of the request."""
        return FetchReply(results=[PartitionFetched(detail=request.stream_id, records=bytes(request.max_bytes))])

    async def hang(self, _: FetchRequest) -> FetchReply:
        """Never answer. Set events when the call arrives and when it is cancelled."""
        self.entered.set()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()

    async def stay_silent(self, _: CommitsRequest, send: Send) -> None:
        """Send one event, then nothing."""
        await send(CommitsEvent(ready=True))
        self.entered.set()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()


def numbered(number: int, padding: str = "") -> CommitsEvent:
    """Return an event with a number, padded with ``padding``."""
    event = CommitsEvent(committed=[Committed(high_watermark=number)])
    event.committed[0].partition.topic = padding
    return event


def number_of(event: CommitsEvent) -> int:
    return event.committed[0].high_watermark
