"""A log of three segments in a memory store, and an indexer that runs all functions inline."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from kafscale import paths
from kafscale.objects.memory import MemoryObjectStore
from kafscale.segment.index import build_index
from kafscale.segment.writer import BuiltSegment
from kafscale.v1.indexer_pb2 import LocateReply, LocateTimestampRequest, SegmentRef
from services.indexer.service import IndexerService
from services.indexer.settings import IndexerSettings
from tests.support.samples.segments import EPOCH, make_batch, make_segment

T = TypeVar("T")
INTERVAL = 4


async def inline(function: Callable[[], T]) -> T:
    return function()


@dataclass
class World:
    store: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    next_offset: int = 0
    bases: list[int] = field(default_factory=list)

    @property
    def service(self) -> IndexerService:
        return IndexerService(self.store, "ns", IndexerSettings(interval=INTERVAL, reads=2), run_sync=inline)

    def ref(self, base_offset: int) -> SegmentRef:
        return SegmentRef(topic="t", partition=0, base_offset=base_offset)

    def segment_key(self, base_offset: int) -> str:
        return paths.segment_key("ns", "t", 0, base_offset)

    def index_key(self, base_offset: int) -> str:
        return paths.index_key("ns", "t", 0, base_offset)

    async def add(self, *batches: list[int] | bytes, epoch: int = EPOCH, index: bool = True) -> BuiltSegment:
        """Store the log's next segment, from batches, or from records with these timestamps."""
        made = [batch if isinstance(batch, bytes) else make_batch(batch) for batch in batches]
        built = make_segment(made, base_offset=self.next_offset, epoch=epoch)
        await self.store.put_if_absent(self.segment_key(built.base_offset), built.data)
        if index:
            data = build_index(built.offsets, built.positions, INTERVAL)
            await self.store.put_if_absent(self.index_key(built.base_offset), data)
        self.bases.append(built.base_offset)
        self.next_offset = built.next_offset
        return built

    async def overwrite(self, key: str, data: bytes) -> None:
        await self.store.replace_if_match(key, data, (await self.store.head(key)).etag)

    async def locate(
        self,
        timestamp: int,
        *,
        start_offset: int = 0,
        epochs: list[int] | None = None,
        service: IndexerService | None = None,
    ) -> LocateReply:
        return await (service or self.service).locate_timestamp(
            LocateTimestampRequest(
                topic="t",
                partition=0,
                base_offsets=self.bases,
                epochs=[EPOCH] * len(self.bases) if epochs is None else epochs,
                timestamp=timestamp,
                start_offset=start_offset,
            )
        )


@pytest.fixture
def world() -> World:
    return World()
