"""Read rewritten objects: parts of them, which their indexes verify, or whole ones."""

from array import array

import structlog
import trio

from kafscale.errors import CorruptData, Unavailable
from kafscale.objects.interface import ObjectNotFound, ObjectStore
from kafscale.records.batch import walk
from kafscale.rewritten.index import RewrittenIndex, parse_rewritten_index
from kafscale.rewritten.keys import RewrittenKey
from kafscale.rewritten.object import index_of, parse_object
from kafscale.rpc.generated import IndexerClient
from kafscale.segment.index import Index
from kafscale.segment.reader import ParsedSegment
from kafscale.threads import RunSync
from kafscale.v1.common_pb2 import Status
from kafscale.v1.indexer_pb2 import SegmentRef
from kafscale.v1.rewritten_pb2 import RewrittenEntry
from services.storage.log.partition import CommittedLog
from services.storage.reading.cache import CachedSegment, LruCache, SegmentId
from services.storage.reading.finder import Damaged
from services.storage.reading.single_flight import SingleFlight

log = structlog.get_logger()

PART_BYTES = 4 << 20
"""The size of the parts that are cached, as large as a segment by default."""
_INDEX_TIMEOUT = 10.0


class RewrittenObjects:
    """Reads parts of rewritten objects. A part holds whole batches, and all offsets up to where the next part begins.

    ``indexes``: the cache that the indexes share with those of segments.
    """

    def __init__(
        self,
        *,
        nursery: trio.Nursery,
        objects: ObjectStore,
        indexer: IndexerClient,
        namespace: str,
        indexes: LruCache[Index | RewrittenIndex],
        limiter: trio.CapacityLimiter,
        run_sync: RunSync,
    ) -> None:
        self._objects = objects
        self._indexer = indexer
        self._namespace = namespace
        self._indexes = indexes
        self._limiter = limiter
        self._run_sync = run_sync
        self._index_loads: SingleFlight[SegmentId, RewrittenIndex] = SingleFlight(nursery)

    def key(self, view: CommittedLog, entry: RewrittenEntry) -> RewrittenKey:
        return RewrittenKey.of(entry, self._namespace, view.topic, view.partition)

    def id(self, view: CommittedLog, entry: RewrittenEntry) -> SegmentId:
        """Identify the object in caches."""
        return SegmentId(view.topic_id, view.partition, entry.base_offset, entry.epoch, entry.attempt)

    def part_id(self, view: CommittedLog, entry: RewrittenEntry, offset: int) -> SegmentId | None:
        """Identify the part with ``offset`` in caches. None if the object's index is not in memory."""
        whole = self.id(view, entry)
        index = self._indexes.glance(whole)
        if not isinstance(index, RewrittenIndex):
            return None
        return whole._replace(position=index.positions[_part(index, offset)[0]])

    async def part(self, view: CommittedLog, entry: RewrittenEntry, offset: int) -> CachedSegment:
        """Return the part with ``offset``, read from the store. Raises Damaged, Unavailable."""
        index = await self._index(view, entry)
        return await self._read(view, entry, index, *_part(index, offset))

    async def range(self, view: CommittedLog, entry: RewrittenEntry, offset: int, max_bytes: int) -> CachedSegment:
        """Read about ``max_bytes`` of batches from ``offset`` on from the store. Raises Damaged, Unavailable."""
        index = await self._index(view, entry)
        return await self._read(view, entry, index, *index.part(offset, max_bytes))

    async def parsed(self, view: CommittedLog, entry: RewrittenEntry) -> ParsedSegment:
        """Read and verify the whole object. Raises Damaged, Unavailable."""
        key = str(self.key(view, entry))
        async with self._limiter:
            try:
                body = (await self._objects.get(key)).body
            except ObjectNotFound as error:
                raise _missing(key) from error
        try:
            return await self._run_sync(lambda: parse_object(entry, body))
        except CorruptData as error:
            raise Damaged(f"{key}: {error}") from error

    async def _read(
        self, view: CommittedLog, entry: RewrittenEntry, index: RewrittenIndex, first: int, end: int
    ) -> CachedSegment:
        key, start = str(self.key(view, entry)), index.positions[first]
        for again in (True, False):
            data = await self._get_range(key, start, index.positions[end] - start)
            try:
                index.verify(data, first, end)
                break
            except CorruptData as error:
                if again:
                    log.warning("part of an object is damaged, reading it again", key=key, error=str(error))
                    continue
                self._indexes.discard(self.id(view, entry))
                raise Damaged(f"{key}: {error}") from error
        offsets, positions, newest = array("q"), array("I"), -1
        for position, header in walk(data):
            offsets.append(header.base_offset)
            positions.append(position)
            newest = max(newest, header.max_timestamp)
        return CachedSegment(data, offsets, positions, index.offsets[end], newest, len(data), start)

    async def _get_range(self, key: str, start: int, length: int) -> bytes:
        async with self._limiter:
            try:
                return await self._objects.get_range(key, start, length)
            except ObjectNotFound as error:
                raise _missing(key) from error

    async def _index(self, view: CommittedLog, entry: RewrittenEntry) -> RewrittenIndex:
        whole = self.id(view, entry)
        cached = self._indexes.get(whole)
        if isinstance(cached, RewrittenIndex):
            return cached

        async def load() -> RewrittenIndex:
            index = await self._stored_index(view, entry) or await self._rebuilt_index(view, entry)
            self._indexes.put(whole, index)
            return index

        return await self._index_loads.do(whole, load)

    async def _stored_index(self, view: CommittedLog, entry: RewrittenEntry) -> RewrittenIndex | None:
        key = str(self.key(view, entry).index)
        try:
            async with self._limiter:
                index = parse_rewritten_index((await self._objects.get(key)).body)
        except (ObjectNotFound, CorruptData) as error:
            log.warning("index missing or damaged, rebuilding it", key=key, error=str(error))
            return None
        if index.offsets[-1] != entry.next_offset:
            log.warning("index of another object, rebuilding it", key=key)
            return None
        return index

    async def _rebuilt_index(self, view: CommittedLog, entry: RewrittenEntry) -> RewrittenIndex:
        ref = SegmentRef(topic=view.topic, partition=view.partition, base_offset=entry.base_offset, rewritten=entry)
        try:
            reply = await self._indexer.rebuild(ref, timeout=_INDEX_TIMEOUT)
        except Unavailable as error:
            log.warning("no indexer answered, reading the object", partition=view.name, error=str(error))
            parsed = await self.parsed(view, entry)
            return parse_rewritten_index(await self._run_sync(lambda: index_of(parsed)))
        if reply.status == Status.DAMAGED:
            raise Damaged(reply.detail)
        if reply.status != Status.OK:
            raise Unavailable(reply.detail)
        return parse_rewritten_index(reply.index)


def _part(index: RewrittenIndex, offset: int) -> tuple[int, int]:
    """Return the index entries of the part with ``offset``, as those of any other offset in it."""
    first, _ = index.part(offset, 0)
    number = index.positions[first] // PART_BYTES
    while first and index.positions[first - 1] // PART_BYTES == number:
        first -= 1
    end = first + 1
    while end < len(index.crcs) and index.positions[end] // PART_BYTES == number:
        end += 1
    return first, end


def _missing(key: str) -> Damaged:
    return Damaged(f"{key} is missing from the object store")
