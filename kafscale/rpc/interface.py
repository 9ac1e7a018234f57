"""What a caller of a service holds: the methods of protos/, with a deadline each.

A transport puts a service object behind these (``direct.py`` in one process). A service object has the same method
names and messages; its streaming methods get the request and an async ``send`` for the messages.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from kafscale.v1.indexer_pb2 import (
    BuildReply,
    BuildRequest,
    LocateOffsetRequest,
    LocateReply,
    LocateTimestampRequest,
    RebuildReply,
    SegmentRef,
    VerifyReply,
)
from kafscale.v1.storage_pb2 import (
    AppendReply,
    AppendRequest,
    CommitsEvent,
    CommitsRequest,
    FetchReply,
    FetchRequest,
    FlushReply,
    FlushRequest,
    ListOffsetsReply,
    ListOffsetsRequest,
)

M_co = TypeVar("M_co", covariant=True)


class MessageStream(Protocol[M_co]):
    """Messages of a server stream, in order."""

    async def receive(self) -> M_co:
        """The next message. Raises ``Unavailable`` when the stream broke or the service ended it."""
        ...


class SegmentStorageClient(Protocol):
    """Every method raises ``kafscale.errors.Unavailable`` when no answer came within ``timeout`` seconds."""

    async def append(self, request: AppendRequest, *, timeout: float) -> AppendReply: ...
    async def fetch(self, request: FetchRequest, *, timeout: float) -> FetchReply: ...
    async def list_offsets(self, request: ListOffsetsRequest, *, timeout: float) -> ListOffsetsReply: ...
    async def flush(self, request: FlushRequest, *, timeout: float) -> FlushReply: ...
    def commits(self, request: CommitsRequest) -> AbstractAsyncContextManager[MessageStream[CommitsEvent]]: ...


class IndexerClient(Protocol):
    """Every method raises ``kafscale.errors.Unavailable`` when no answer came within ``timeout`` seconds."""

    async def build(self, request: BuildRequest, *, timeout: float) -> BuildReply: ...
    async def verify(self, request: SegmentRef, *, timeout: float) -> VerifyReply: ...
    async def rebuild(self, request: SegmentRef, *, timeout: float) -> RebuildReply: ...
    async def locate_offset(self, request: LocateOffsetRequest, *, timeout: float) -> LocateReply: ...
    async def locate_timestamp(self, request: LocateTimestampRequest, *, timeout: float) -> LocateReply: ...
