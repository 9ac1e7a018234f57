"""Reads and writes the objects of the indexer: indexes, catalog pages, and segments, which are always verified.

A reference to a segment may mean a rewritten object. All of this applies to both.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from kafscale import paths
from kafscale.catalog.page import build_page
from kafscale.errors import CorruptData, Unavailable
from kafscale.objects.interface import Object, ObjectNotFound, ObjectStore, PreconditionFailed
from kafscale.objects.puts import put_derived
from kafscale.rewritten.keys import RewrittenKey
from kafscale.rewritten.object import parse_object
from kafscale.segment.format import CorruptSegment
from kafscale.segment.reader import ParsedSegment, parse_segment
from kafscale.threads import RunSync
from kafscale.v1.indexer_pb2 import SegmentRef, WriteCatalogPageRequest
from services.indexer.counters import IndexerCounters
from services.indexer.errors import check_partition

T = TypeVar("T")


class StoredSegments:
    """The segments and indexes of a namespace. At most ``reads`` segments are in memory at the same time."""

    def __init__(
        self, store: ObjectStore, namespace: str, *, reads: int, run_sync: RunSync, counters: IndexerCounters
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._run_sync = run_sync
        self._counters = counters
        self._limiter = trio.CapacityLimiter(reads)

    def segment_key(self, ref: SegmentRef) -> str:
        """Return the key of the object. Raises InvalidRequest, as the other methods do, if there can be none."""
        check_partition(ref.topic, ref.partition)
        if ref.HasField("rewritten"):
            return str(RewrittenKey.of(ref.rewritten, self._namespace, ref.topic, ref.partition))
        return paths.segment_key(self._namespace, ref.topic, ref.partition, ref.base_offset)

    def index_key(self, ref: SegmentRef) -> str:
        check_partition(ref.topic, ref.partition)
        if ref.HasField("rewritten"):
            return str(RewrittenKey.of(ref.rewritten, self._namespace, ref.topic, ref.partition).index)
        return paths.index_key(self._namespace, ref.topic, ref.partition, ref.base_offset)

    async def study(self, ref: SegmentRef, work: Callable[[ParsedSegment], T]) -> T:
        """Read and verify the whole segment, and return the result of ``work``, which runs off the event loop.

        Raises a CorruptData that names the object, also for one from ``work``; ObjectNotFound, Unavailable, Refused.
        """
        key = self.segment_key(ref)

        def parse_and_work(body: bytes) -> T:
            if ref.HasField("rewritten"):
                return work(parse_object(ref.rewritten, body))
            segment = parse_segment(body)
            if segment.header.base_offset != ref.base_offset:
                raise CorruptSegment(f"begins at offset {segment.header.base_offset}")
            return work(segment)

        async with self._turn():
            body = (await self._store.get(key)).body
            self._counters.segments_read += 1
            self._counters.read_bytes += len(body)
            try:
                return await self._run_sync(lambda: parse_and_work(body))
            except CorruptData as error:
                raise CorruptData(f"{key}: {error}") from error

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        counters = self._counters
        counters.waiting += 1
        try:
            await self._limiter.acquire()
        finally:
            counters.waiting -= 1
        counters.reading += 1
        try:
            yield
        finally:
            counters.reading -= 1
            self._limiter.release()

    async def index(self, ref: SegmentRef) -> Object | None:
        """Return the stored index, not parsed, or None if there is none."""
        try:
            return await self._store.get(self.index_key(ref))
        except ObjectNotFound:
            return None

    async def put_index(self, ref: SegmentRef, data: bytes) -> None:
        """Store the index of a new segment. Raises PreconditionFailed, ObjectNotFound, Unavailable, Refused."""
        await put_derived(self._store, self.index_key(ref), data)

    async def write_index(self, ref: SegmentRef, data: bytes, *, instead_of: Object | None) -> bool:
        """Replace ``instead_of`` (None: no index) and return True, or False if the stored index is a different one."""
        key = self.index_key(ref)
        try:
            if instead_of is None:
                await self._store.put_if_absent(key, data)
            else:
                await self._store.replace_if_match(key, data, instead_of.etag)
        except PreconditionFailed:
            return False
        return True

    async def write_page(self, request: WriteCatalogPageRequest) -> str:
        """Store the page and return its key. Raises CorruptPage, Unavailable, Refused."""
        check_partition(request.partition.topic, request.partition.partition)
        partition, page = request.partition, build_page(request.partition, request.epoch, request.segments)
        base = request.segments[0].base_offset
        key = paths.catalog_page_key(self._namespace, partition.topic, partition.partition, base, request.epoch)
        try:
            await put_derived(self._store, key, page)
        except (PreconditionFailed, ObjectNotFound) as error:
            raise Unavailable(f"{key}: written by others at the same time") from error
        self._counters.pages += 1
        return key
