"""A service object that does what a test tells it to, with SegmentStorage's methods as the carrier."""

from collections.abc import Awaitable, Callable

import trio

from kafscale.v1.storage_pb2 import (
    AppendReply,
    AppendRequest,
    CommitsEvent,
    CommitsRequest,
    Committed,
    DeleteRecordsReply,
    DeleteRecordsRequest,
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
)

Send = Callable[[CommitsEvent], Awaitable[None]]
TIMEOUT = 30.0
"""For what should take an instant: only a hang reaches it."""


class Carrier:
    """`fetching` and `streaming` are the bodies of Fetch and Commits; the others answer at once."""

    def __init__(self) -> None:
        self.fetching: Callable[[FetchRequest], Awaitable[FetchReply]] = self.answer
        self.streaming: Callable[[CommitsRequest, Send], Awaitable[None]] = self.stay_silent
        self.entered = trio.Event()
        self.cancelled = trio.Event()

    async def append(self, request: AppendRequest) -> AppendReply:
        """Says how many bytes came, in ``base_offset``."""
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

    async def log_sizes(self, request: LogSizesRequest) -> LogSizesReply:
        return LogSizesReply()

    async def commits(self, request: CommitsRequest, send: Send) -> None:
        await self.streaming(request, send)

    async def answer(self, request: FetchRequest) -> FetchReply:
        """``max_bytes`` bytes, under the detail that was asked with."""
        return FetchReply(results=[PartitionFetched(detail=request.stream_id, records=bytes(request.max_bytes))])

    async def hang(self, _: FetchRequest) -> FetchReply:
        """Never answer; tell the test when the call came and when it was cancelled."""
        self.entered.set()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()

    async def stay_silent(self, _: CommitsRequest, send: Send) -> None:
        """One event, then nothing."""
        await send(CommitsEvent(ready=True))
        self.entered.set()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()


def numbered(number: int, padding: str = "") -> CommitsEvent:
    """An event that tells its number, and is as large as ``padding``."""
    event = CommitsEvent(committed=[Committed(committed_end=number)])
    event.committed[0].partition.topic = padding
    return event


def number_of(event: CommitsEvent) -> int:
    return event.committed[0].committed_end
