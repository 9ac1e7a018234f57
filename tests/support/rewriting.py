"""A log of segments and rewritten objects in a memory store, and calls of an indexer that rewrites it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import trio

from kafscale import paths
from kafscale.objects.memory import MemoryObjectStore
from kafscale.records.batch import pack_header, peek_one, seal
from kafscale.records.record import Record, build_batch, read_records
from kafscale.rewritten.index import parse_rewritten_index
from kafscale.rewritten.keys import RewrittenKey, rewritten_prefix
from kafscale.rewritten.object import ObjectBuilder, parse_object
from kafscale.rewritten.verify import verify_rewritten_index
from kafscale.segment.format import FOOTER_SIZE
from kafscale.threads import run_inline
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.indexer_pb2 import (
    CompactionRules,
    RewriteEvent,
    RewriteInput,
    RewriteRequest,
    RewriteStep,
    RewrittenStep,
)
from kafscale.v1.rewritten_pb2 import RewrittenEntry
from services.indexer.service import IndexerService
from services.indexer.settings import IndexerSettings
from tests.support.samples.segments import make_segment

EPOCH, ATTEMPT, NOW_MS, HORIZON_MS = 9, 4, 1_700_000_000_000, 1_800_000_000_000
MIB = 1 << 20
MEMORY = 1 << 16
BOTH = pytest.mark.parametrize("own_process", [False, True], ids=["inline", "own-process"])
Pair = tuple[str, str | None]


def batch(*pairs: Pair, producer: int = -1) -> bytes:
    """Return a batch as a producer sends it."""
    records = [
        Record(i, 10, key.encode(), None if value is None else value.encode()) for i, (key, value) in enumerate(pairs)
    ]
    built = bytearray(build_batch(records, base_offset=0))
    if producer >= 0:
        header = peek_one(built)._replace(producer_id=producer, producer_epoch=0, base_sequence=0)
        built[: len(pack_header(header))] = pack_header(header)
        seal(built)
    return bytes(built)


@dataclass
class World:
    """A log of segments and rewritten objects in a memory store."""

    store: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    next_offset: int = 0
    inputs: list[RewriteInput] = field(default_factory=list)

    def service(self, *, own_process: bool = False, **settings: int) -> IndexerService:
        run_sync = None if own_process else run_inline
        return IndexerService(self.store, "ns", IndexerSettings(**settings), run_sync=run_sync, now_ms=lambda: NOW_MS)

    async def add(self, *batches: bytes, epoch: int = 3, lacking: int = 0) -> str:
        """Store the next segment, and return its key. After it, offsets are ``lacking``."""
        built = make_segment(batches, base_offset=self.next_offset, epoch=epoch)
        key = paths.segment_key("ns", "t", 0, built.base_offset)
        await self.store.put_if_absent(key, built.data)
        self.next_offset = built.next_offset + lacking
        self.inputs.append(
            RewriteInput(start=built.base_offset, end=self.next_offset, epoch=epoch, size=len(built.data))
        )
        return key

    async def add_rewritten(self, *batches: bytes, lacking: int = 0) -> RewrittenEntry:
        """Store the next rewritten object, with its index. Return its description."""
        segment = make_segment(batches, base_offset=self.next_offset)
        builder = ObjectBuilder(self.next_offset, epoch=5, attempt=1, created_ms=NOW_MS)
        for start, end in pairwise([*segment.positions, len(segment.data) - FOOTER_SIZE]):
            builder.add(bytes(segment.data[start:end]))
        built = builder.finish(segment.next_offset + lacking)
        assert built is not None
        key = RewrittenKey.of(built.entry, "ns", "t", 0)
        await self.store.put_if_absent(str(key), built.data)
        await self.store.put_if_absent(str(key.index), built.index)
        self.inputs.append(RewriteInput(start=self.next_offset, end=built.entry.next_offset, rewritten=built.entry))
        self.next_offset = built.entry.next_offset
        return built.entry

    def add_nothing(self, count: int) -> None:
        """Continue the log with offsets that have no records."""
        end = self.next_offset + count
        self.inputs.append(RewriteInput(start=self.next_offset, end=end, rewritten=RewrittenEntry(next_offset=end)))
        self.next_offset = end

    async def overwrite(self, key: str, data: bytes) -> None:
        await self.store.replace_if_match(key, data, (await self.store.head(key)).etag)

    def merge(self, *steps: Sequence[RewriteInput], target_bytes: int = MIB) -> RewriteRequest:
        return RewriteRequest(
            partition=PartitionRef(topic="t", partition=0),
            epoch=EPOCH,
            attempt=ATTEMPT,
            steps=[RewriteStep(inputs=inputs) for inputs in steps or [self.inputs]],
            target_bytes=target_bytes,
        )

    def compact(self, *steps: Sequence[RewriteInput], **rules: Any) -> RewriteRequest:
        request = self.merge(*steps)
        made: dict[str, Any] = {
            "dirty": self.inputs,
            "end": self.next_offset,
            "memory_bytes": MEMORY,
            "batch_bytes": MIB,
            "horizon_ms": HORIZON_MS,
        }
        request.compaction.CopyFrom(CompactionRules(**made | rules))
        return request

    async def stored(self) -> list[str]:
        """Return the keys of the objects and indexes that rewrites of ATTEMPT stored."""
        listed = await self.store.list_from(rewritten_prefix("ns", "t", 0))
        return [info.key for info in listed if f"-{EPOCH}-{ATTEMPT}." in info.key]

    async def batches(self, entry: RewrittenEntry) -> list[bytes]:
        """Return the batches of an object, after verifying it and its index."""
        key = RewrittenKey.of(entry, "ns", "t", 0)
        parsed = parse_object(entry, (await self.store.get(str(key))).body, check_batches=True)
        index = parse_rewritten_index((await self.store.get(str(key.index))).body)
        assert verify_rewritten_index(index, parsed) == []
        return [bytes(parsed.data[start:end]) for start, end in zip(parsed.positions, parsed.ends, strict=True)]

    async def records(self, *steps: RewrittenStep) -> dict[int, Pair]:
        """Return the records of the steps by offset, after checking that their entries tile them."""
        found = {}
        for step in steps:
            reached = step.start
            for entry in step.entries:
                assert reached < entry.next_offset
                reached = entry.next_offset
                for one in await self.batches(entry) if entry.epoch else []:
                    for record in read_records(one, max_bytes=MIB):
                        value = None if record.value is None else record.value.decode()
                        found[record.offset] = ((record.key or b"").decode(), value)
            assert reached == step.end
        return found


async def rewritten(service: IndexerService, request: RewriteRequest) -> list[RewriteEvent]:
    events: list[RewriteEvent] = []

    async def send(event: RewriteEvent) -> None:
        events.append(event)

    with trio.fail_after(30):
        await service.rewrite(request, send)
    return events


async def steps_of(service: IndexerService, request: RewriteRequest) -> list[RewrittenStep]:
    """Return the steps of a rewrite that succeeds."""
    events = await rewritten(service, request)
    assert [event.detail for event in events if event.status != Status.OK] == []
    return [event.step for event in events if event.HasField("step")]


async def failure_of(service: IndexerService, request: RewriteRequest) -> tuple[Status, str]:
    """Return the status and detail of a rewrite that reports no step."""
    *before, last = await rewritten(service, request)
    assert not any(event.status or event.HasField("step") for event in before)
    return last.status, last.detail
