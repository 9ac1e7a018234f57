"""The service object of the indexer, with the methods of protos/kafscale/v1/indexer.proto. It is stateless."""

from array import array
from collections.abc import Awaitable, Callable
from functools import partial

import structlog
import trio

from kafscale.clock import wall_clock_ms
from kafscale.errors import CorruptData, KafscaleError, Unavailable
from kafscale.objects.interface import Object, ObjectNotFound, ObjectStore
from kafscale.rewritten.index import parse_rewritten_index
from kafscale.rewritten.object import index_of
from kafscale.rewritten.verify import verify_rewritten_index
from kafscale.segment.index import build_index, parse_index
from kafscale.segment.reader import ParsedSegment
from kafscale.segment.verify import verify_index
from kafscale.threads import RunSync, run_in_thread
from kafscale.v1.common_pb2 import Status
from kafscale.v1.indexer_pb2 import (
    LocateReply,
    LocateTimestampRequest,
    RebuildReply,
    RewriteEvent,
    RewriteRequest,
    SegmentRef,
    VerifyReply,
    WriteCatalogPageReply,
    WriteCatalogPageRequest,
    WriteIndexesReply,
    WriteIndexesRequest,
)
from services.indexer.counters import IndexerCounters
from services.indexer.errors import status_of
from services.indexer.rewriting.rewrites import Rewrites
from services.indexer.rewriting.runners import run_in_process, run_with
from services.indexer.settings import IndexerSettings
from services.indexer.stored import StoredSegments
from services.indexer.times import TimeSearch

_ATTEMPTS = 4
_WRITE_SECONDS = 3.0
"""How long the object store may take to store the indexes of new segments."""
_log = structlog.get_logger(__name__)


class IndexerService:
    """Stores, verifies, rebuilds and uses the indexes of a namespace's segments, stores catalog pages, rewrites logs.

    ``run_sync`` runs the parsing of whole segments, the decoding of records, and rewrites; simulations run them inline.
    By default, each rewrite has a process of its own, and threads do the rest. ``now_ms``: the wall clock, in ms.
    """

    def __init__(
        self,
        store: ObjectStore,
        namespace: str,
        settings: IndexerSettings,
        *,
        run_sync: RunSync | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._interval = settings.interval
        self.counters = IndexerCounters()
        self._stored = StoredSegments(
            store, namespace, reads=settings.reads, run_sync=run_sync or run_in_thread, counters=self.counters
        )
        self._rewrites = Rewrites(
            store,
            namespace,
            most=settings.rewrites,
            read_ahead_bytes=settings.rewrite_read_ahead_bytes,
            io_bytes_per_second=settings.rewrite_io_bytes_per_second,
            runner=run_with(run_sync) if run_sync is not None else run_in_process,
            now_ms=now_ms,
            counters=self.counters,
        )
        self._times = TimeSearch(self._stored, reads=settings.reads, decode_bytes=settings.decode_bytes)

    async def write_indexes(self, request: WriteIndexesRequest) -> WriteIndexesReply:
        """Return an error for each index that is not stored in time, so that the caller stores it."""
        errors = [f"the object store did not answer within {_WRITE_SECONDS:g} s"] * len(request.segments)

        async def write(position: int) -> None:
            batches = request.segments[position]
            try:
                index = build_index(array("q", batches.offsets), array("I", batches.positions), self._interval)
                await self._stored.put_index(batches.segment, index)
                self.counters.indexes["built"] += 1
                errors[position] = ""
            except ValueError as error:
                errors[position] = f"not the batches of a segment: {error}"
            except KafscaleError as error:
                errors[position] = str(error)

        with trio.move_on_after(_WRITE_SECONDS):
            async with trio.open_nursery() as nursery:
                for position in range(len(errors)):
                    nursery.start_soon(write, position)
        return WriteIndexesReply(errors=errors)

    async def verify(self, request: SegmentRef) -> VerifyReply:
        """Raises Unavailable or Refused if the store does not answer or refuses."""
        stored = await self._stored.index(request)
        if stored is None:
            return VerifyReply(detail=f"{self._stored.index_key(request)}: missing")
        try:
            findings = await self._stored.study(request, partial(_index_faults, request, stored.body))
        except ObjectNotFound:
            return VerifyReply(detail=f"{self._stored.segment_key(request)}: missing")
        except CorruptData as error:
            return VerifyReply(detail=str(error))
        return VerifyReply(intact=not findings, detail="; ".join(findings))

    async def rebuild(self, request: SegmentRef) -> RebuildReply:
        try:
            index, rebuilt = await self._rebuild(request)
            return RebuildReply(index=index, rebuilt=rebuilt)
        except KafscaleError as error:
            return RebuildReply(status=status_of(error), detail=str(error))

    async def write_catalog_page(self, request: WriteCatalogPageRequest) -> WriteCatalogPageReply:
        """Raises CorruptData if the request is not a valid page, or Unavailable or Refused if it cannot be stored."""
        return WriteCatalogPageReply(key=await self._stored.write_page(request))

    async def locate_timestamp(self, request: LocateTimestampRequest) -> LocateReply:
        try:
            found, newest = await self._times.locate(request)
        except KafscaleError as error:
            return LocateReply(status=status_of(error), detail=str(error))
        except ValueError as error:
            return LocateReply(status=Status.INVALID, detail=str(error))
        if found is None:
            return LocateReply(newest=newest)
        segment, record = found
        return LocateReply(
            found=True,
            segment=segment,
            position=record.position,
            offset=record.offset,
            timestamp=record.timestamp,
            newest=newest,
        )

    async def rewrite(self, request: RewriteRequest, send: Callable[[RewriteEvent], Awaitable[None]]) -> None:
        await self._rewrites.run(request, send)

    async def _rebuild(self, ref: SegmentRef) -> tuple[bytes, bool]:
        """Return the index, and whether it had to be written."""
        for _ in range(_ATTEMPTS):
            # Read the index before the segment: if its etag is unchanged at the write, no later owner replaced it.
            stored = await self._stored.index(ref)
            faults, fresh = await self._stored.study(ref, partial(self._compare, ref, stored))
            if stored is not None and not faults:
                self.counters.indexes["intact"] += 1
                return stored.body, False
            if await self._stored.write_index(ref, fresh, instead_of=stored):
                self.counters.indexes["rebuilt"] += 1
                _log.info("index rebuilt", key=self._stored.index_key(ref), reason="; ".join(faults))
                return fresh, True
        raise Unavailable(f"{self._stored.index_key(ref)}: repeatedly written by others at the same time")

    def _compare(self, ref: SegmentRef, stored: Object | None, segment: ParsedSegment) -> tuple[list[str], bytes]:
        faults = ["missing"] if stored is None else _index_faults(ref, stored.body, segment)
        if ref.HasField("rewritten"):
            return faults, index_of(segment)
        return faults, build_index(segment.offsets, segment.positions, self._interval)


def _index_faults(ref: SegmentRef, data: bytes, segment: ParsedSegment) -> list[str]:
    try:
        if ref.HasField("rewritten"):
            return verify_rewritten_index(parse_rewritten_index(data), segment)
        return verify_index(parse_index(data), segment)
    except CorruptData as error:
        return [str(error)]
