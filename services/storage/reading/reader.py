"""Read committed batches: from the segment cache, by index and one ranged GET, or, for a sequential reader, in whole
segments and large parts of rewritten objects."""

from collections import OrderedDict
from functools import partial
from typing import NamedTuple

import structlog
import trio

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError, Unavailable
from kafscale.objects.interface import ObjectNotFound, ObjectStore
from kafscale.rewritten.index import RewrittenIndex
from kafscale.rpc.generated import IndexerClient
from kafscale.segment.format import FOOTER_SIZE, HEADER_SIZE, CorruptSegment, SegmentHeader
from kafscale.segment.index import Index, IndexEntry, build_index, parse_index
from kafscale.segment.reader import ParsedSegment, parse_segment, scan_batches
from kafscale.threads import RunSync
from kafscale.v1.common_pb2 import Status
from kafscale.v1.indexer_pb2 import SegmentRef
from kafscale.v1.rewritten_pb2 import RewrittenEntry
from services.storage.counters import StorageCounters
from services.storage.log.commit import Commit
from services.storage.log.known_segment import UNKNOWN_TIME, KnownSegment
from services.storage.log.partition import CommittedLog
from services.storage.reading.cache import CachedSegment, LruCache, SegmentId
from services.storage.reading.contents import StoredSegment
from services.storage.reading.finder import Damaged, OfAnotherEpoch, OffsetsMissing, SegmentFinder
from services.storage.reading.rewritten import RewrittenObjects
from services.storage.reading.single_flight import Flight, SingleFlight

log = structlog.get_logger()

_INDEX_TIMEOUT = 10.0
_MIN_RANGE = 64 * 1024
_READERS_REMEMBERED = 4096
_GAPPED_REMEMBERED = 4096
_TRIES = 3
"""Attempts at one read while the log is rewritten."""
_READS_WAITING = 32  # fetches for each of the reads in flight


class StoredRange(NamedTuple):
    """Whole batches of a segment, at ``position`` in its object, followed by ``next_offset``."""

    records: bytes
    position: int
    next_offset: int


class Reader:
    """Reads any committed range. Every byte from the object store is verified before it is returned or cached."""

    def __init__(
        self,
        *,
        nursery: trio.Nursery,
        objects: ObjectStore,
        indexer: IndexerClient,
        namespace: str,
        cache_size: int,
        index_cache_size: int,
        readahead: int,
        reads_in_flight: int,
        index_interval: int,
        run_sync: RunSync,
        counters: StorageCounters,
    ) -> None:
        self._nursery = nursery
        self._objects = objects
        self._indexer = indexer
        self.namespace = namespace
        self._readahead = readahead
        self._index_interval = index_interval
        self.run_sync = run_sync
        self._limiter = trio.CapacityLimiter(reads_in_flight)
        self._reads: SingleFlight[tuple[CommittedLog, int, int], bytes] = SingleFlight(nursery)
        self._most_reads = _READS_WAITING * reads_in_flight
        self._loads: SingleFlight[SegmentId, CachedSegment] = SingleFlight(nursery)
        self._index_loads: SingleFlight[SegmentId, Index] = SingleFlight(nursery)
        self._ends: OrderedDict[tuple[bytes, int, int], None] = OrderedDict()
        # Imported segments that must be read whole, because parts of them cannot be verified.
        self._gapped: OrderedDict[SegmentId, None] = OrderedDict()
        self.finder = SegmentFinder(objects, namespace)
        self.segments: LruCache[CachedSegment] = LruCache(
            cache_size, lambda segment: segment.cost, counters.segment_cache
        )
        self.indexes: LruCache[Index | RewrittenIndex] = LruCache(
            index_cache_size, lambda index: index.memory_size, counters.index_cache
        )
        self._rewritten = RewrittenObjects(
            nursery=nursery,
            objects=objects,
            indexer=indexer,
            namespace=namespace,
            indexes=self.indexes,
            limiter=self._limiter,
            run_sync=run_sync,
        )

    def committed(self, commit: Commit) -> None:
        """Add committed segments to the cache."""
        log = commit.partition.log
        for segment in commit.segments:
            key = SegmentId(log.topic_id, log.partition, segment.base_offset, commit.partition.epoch)
            self.segments.put(
                key,
                CachedSegment(
                    segment.data,
                    segment.offsets,
                    segment.positions,
                    segment.next_offset,
                    segment.max_timestamp_ms,
                    len(segment.data) - FOOTER_SIZE,
                ),
            )

    async def read(self, view: CommittedLog, offset: int, max_bytes: int) -> bytes:
        """Return whole batches from the one that holds ``offset``, about ``max_bytes`` but at least one batch.

        ``offset`` must be in the log. Batches in memory are returned without waiting. Raises Damaged, Unavailable.
        """
        if view.tail is not None and offset >= view.segments_end:
            return view.tail.read(offset, max_bytes)
        if self.is_cached(view, offset):
            return await self._read(view, offset, max_bytes)
        return await self.begin(view, offset, max_bytes).wait()

    def is_cached(self, view: CommittedLog, offset: int) -> bool:
        """Return whether `read` need not wait for the object store."""
        if offset >= view.segments_end:
            return True
        segment = view.segments.holding(offset)
        key = self._cache_key(view, segment, offset) if segment is not None else None
        return key is not None and key in self.segments

    def begin(self, view: CommittedLog, offset: int, max_bytes: int) -> Flight[bytes]:
        """Start a read from the store. It continues without waiters, so that a retry can join it or use its result.

        Raises Unavailable if too many reads are waiting.
        """
        key = (view, offset, max_bytes)
        if len(self._reads) >= self._most_reads and not self._reads.under_way(key):
            raise Unavailable("too many reads are waiting for the object store")
        return self._reads.begin(key, partial(self._read, view, offset, max_bytes))

    async def _read(self, view: CommittedLog, offset: int, max_bytes: int) -> bytes:
        tries = 0
        while True:
            tries, rewritten = tries + 1, view.segments.rewritten
            # The batches that are read verify its epoch.
            segment = await self.finder.holding(view, offset)
            try:
                return await self._read_from(view, segment, offset, max_bytes)
            except OfAnotherEpoch:
                log.info("object of another epoch skipped", partition=view.name, base=segment.base_offset)
            except Damaged:
                # If the log was rewritten during the read, the missing object may have been replaced.
                if tries >= _TRIES or view.segments.rewritten is rewritten:
                    raise

    async def _read_from(self, view: CommittedLog, segment: KnownSegment, offset: int, max_bytes: int) -> bytes:
        pieces: list[bytes | memoryview] = []
        size, position = 0, offset
        while True:
            key = self._cache_key(view, segment, position)
            cached = self.segments.get(key) if key is not None else None
            if cached is None:
                if pieces:
                    break
                in_order = self._in_order(view, position)
                found = None if in_order else await self._part(view, segment, position, max_bytes)
                if found is not None:
                    position = found.next_offset
                    pieces.append(found.records)
                    break
                cached = await self._load(view, segment, position)
            if position >= cached.next_offset:
                segment = await self.behind_hole(view, segment, position)
                continue
            part, following_offset = cached.cut(position, max_bytes - size)
            if pieces and size + len(part) > max_bytes:
                break
            position = following_offset
            if part:
                pieces.append(part)
                size += len(part)
            if size >= max_bytes or position < cached.next_offset:
                break
            following = self._following(view, segment, position)
            if following is None and not pieces:
                # The offsets up to the end of a rewritten object may have no records.
                following = await self._found_following(view, segment, position)
            if following is None:
                break
            segment = following
        self._remember(view, position)
        self._read_ahead(view, segment, position)
        return b"".join(pieces) if len(pieces) != 1 else bytes(pieces[0])

    def _following(self, view: CommittedLog, segment: KnownSegment, position: int) -> KnownSegment | None:
        """Return what has the batches from ``position`` on, where a segment or a part of a rewritten object ends.

        None if it is unknown, or at the end.
        """
        if segment.rewritten is not None and position < segment.rewritten.next_offset:
            return segment
        if segment.base_offset >= view.segments.through:
            return view.segments.after(segment)
        # The log may have been rewritten since the segment was found.
        return view.segments.holding(position) if position < view.segments_end else None

    async def _found_following(self, view: CommittedLog, segment: KnownSegment, position: int) -> KnownSegment | None:
        """Return the same, also if it must be listed. Raises Damaged, Unavailable."""
        if segment.base_offset >= view.segments.through:
            return await self.finder.after(view, segment)
        return await self.finder.holding(view, position) if position < view.segments_end else None

    async def _part(self, view: CommittedLog, segment: KnownSegment, offset: int, max_bytes: int) -> StoredRange | None:
        try:
            return await self.range(view, segment, offset, max_bytes)
        except OffsetsMissing:
            return None

    async def behind_hole(self, view: CommittedLog, segment: KnownSegment, offset: int) -> KnownSegment:
        """Return the segment after ``segment``, which ends before ``offset``.

        Raises Damaged unless both are imported, because only then offsets may be missing; Unavailable.
        """
        following = await self.finder.after(view, segment)
        if following is None or view.epoch_of(segment.base_offset) or view.epoch_of(following.base_offset):
            raise Damaged(f"{view.name}: no segment holds offset {offset}: {segment.base_offset} ends before it")
        return following

    async def whole(self, view: CommittedLog, segment: KnownSegment) -> CachedSegment:
        """Return one whole segment of the log, from the cache if possible."""
        if segment.rewritten is not None:
            return cached_segment(await self._rewritten.parsed(view, segment.rewritten))
        return self.segments.get(self._id(view, segment)) or await self._load(view, segment, segment.base_offset)

    async def parsed(self, view: CommittedLog, segment: KnownSegment) -> ParsedSegment:
        """Read a whole segment with its headers, bypassing the cache. Raises Damaged, OfAnotherEpoch, Unavailable."""
        return await self._parsed(view, segment)

    async def stored(self, view: CommittedLog, segment: KnownSegment) -> StoredSegment:
        """Read a whole segment and its index, which are neither verified nor cached. Raises Damaged, Unavailable."""
        if segment.rewritten is not None:
            key = self._rewritten.key(view, segment.rewritten)
            names = str(key), str(key.index)
        else:
            place = self.namespace, view.topic, view.partition, segment.base_offset
            names = paths.segment_key(*place), paths.index_key(*place)
        async with self._limiter:
            try:
                data = (await self._objects.get(names[0])).body
            except ObjectNotFound as error:
                raise Damaged(f"{names[0]}: missing") from error
            try:
                index = (await self._objects.get(names[1])).body
            except ObjectNotFound:
                index = None
        return StoredSegment(names[0], data, names[1], index, segment.rewritten)

    async def newest_timestamp(self, view: CommittedLog, segment: KnownSegment) -> int:
        """Return the largest timestamp in a segment, or its creation time if no record has a timestamp.

        A segment that has to be read is not cached. Raises Damaged, Unavailable.
        """
        if segment.rewritten is not None:
            return segment.max_timestamp if segment.max_timestamp >= 0 else segment.rewritten.created_ms
        cached = self.segments.get(self._id(view, segment))
        newest = UNKNOWN_TIME if cached is None else cached.max_timestamp
        if newest < 0:
            parsed = await self._parsed(view, segment)
            newest = parsed.max_timestamp_ms if parsed.max_timestamp_ms >= 0 else parsed.header.created_ms
        view.segments.learn_time(segment.base_offset, newest)
        return newest

    async def holding(self, view: CommittedLog, offset: int) -> KnownSegment:
        """Return the log's segment that holds ``offset``, skipping objects of another epoch in favor of earlier ones.

        Raises Damaged, Unavailable.
        """
        while True:
            segment = await self.finder.holding(view, offset)
            if segment.rewritten is not None:
                return segment
            key = self._id(view, segment)
            if key in self.segments or key in self.indexes:
                return segment
            header = await self.header(view, segment)
            if header.epoch == key.epoch:
                return segment
            # A misread header must not exclude a segment from the log; only the whole object proves its epoch.
            try:
                await self._parsed(view, segment)
            except OfAnotherEpoch:
                log.info("object of another epoch skipped", partition=view.name, base=segment.base_offset)
            else:
                return segment

    async def header(self, view: CommittedLog, segment: KnownSegment) -> SegmentHeader:
        """Read the object's header, which has no checksum. Raises Damaged, Unavailable."""
        try:
            return SegmentHeader.parse(await self._get_range(view, segment, 0, HEADER_SIZE))
        except CorruptData as error:
            raise Damaged(f"{view.name}: segment {segment.base_offset}: {error}") from error

    def glance(self, view: CommittedLog, segment: KnownSegment, offset: int) -> CachedSegment | None:
        """Return the cached segment, or the part of a rewritten object with ``offset``, if any. For scans: its place in
        the cache is not refreshed."""
        key = self._cache_key(view, segment, offset)
        return self.segments.glance(key) if key is not None else None

    async def part(self, view: CommittedLog, segment: KnownSegment, offset: int) -> CachedSegment:
        """Read the part of a rewritten object with ``offset``, bypassing the cache. Raises Damaged, Unavailable."""
        if segment.rewritten is None:
            raise ValueError("a segment has no parts")
        return await self._rewritten.part(view, segment.rewritten, offset)

    def key(self, view: CommittedLog, segment: KnownSegment) -> str:
        """Return the key of the segment's object."""
        if segment.rewritten is not None:
            return str(self._rewritten.key(view, segment.rewritten))
        return paths.segment_key(self.namespace, view.topic, view.partition, segment.base_offset)

    async def _load(self, view: CommittedLog, segment: KnownSegment, offset: int) -> CachedSegment:
        """Return the segment, or the part of a rewritten object with ``offset``, and add it to the cache."""
        if segment.rewritten is not None:
            return await self._load_part(view, segment.rewritten, offset)
        key = self._id(view, segment)

        async def load() -> CachedSegment:
            parsed = await self._parsed(view, segment)
            view.segments.learn_time(segment.base_offset, parsed.max_timestamp_ms)
            found = cached_segment(parsed)
            self.segments.put(key, found, read_back=True)
            return found

        return await self._loads.do(key, load)

    async def _load_part(self, view: CommittedLog, entry: RewrittenEntry, offset: int) -> CachedSegment:
        # Until the index is read, it is not known which offsets share a part.
        key = self._rewritten.part_id(view, entry, offset) or SegmentId(view.topic_id, view.partition, offset, -1)

        async def load() -> CachedSegment:
            found = await self._rewritten.part(view, entry, offset)
            self.segments.put(self._rewritten.id(view, entry)._replace(position=found.start), found, read_back=True)
            return found

        return await self._loads.do(key, load)

    async def _parsed(self, view: CommittedLog, segment: KnownSegment) -> ParsedSegment:
        if segment.rewritten is not None:
            return await self._rewritten.parsed(view, segment.rewritten)
        name = paths.segment_key(self.namespace, view.topic, view.partition, segment.base_offset)
        async with self._limiter:
            try:
                body = (await self._objects.get(name)).body
            except ObjectNotFound as error:
                raise self._missing(view, segment) from error
        try:
            parsed = await self.run_sync(lambda: parse_segment(body))
        except CorruptData as error:
            raise Damaged(f"{name}: {error}") from error
        if parsed.header.base_offset != segment.base_offset:
            raise Damaged(f"{name}: it begins at offset {parsed.header.base_offset}")
        if parsed.header.epoch != view.epoch_of(segment.base_offset):
            view.segments.forget(segment.base_offset)
            raise OfAnotherEpoch(f"{name}: epoch {parsed.header.epoch} is not the epoch of the log there")
        return parsed

    async def range(self, view: CommittedLog, segment: KnownSegment, offset: int, max_bytes: int) -> StoredRange:
        """Read batches by index and ranged GET. A wrong index is rebuilt once; after that the segment is damaged.

        Raises Damaged, OfAnotherEpoch, OffsetsMissing, Unavailable.
        """
        if segment.rewritten is not None:
            return await self._rewritten_range(view, segment.rewritten, offset, max_bytes)
        key = self._id(view, segment)
        if key in self._gapped:
            raise OffsetsMissing(f"{self.key(view, segment)}: offsets are missing")
        for rebuild in (False, True):
            index = await self._index(view, segment, rebuild=rebuild)
            entry = index.entry_for(offset)
            try:
                found = await self._scan(view, segment, entry, offset, max_bytes)
            except CorruptData as error:
                if rebuild:
                    raise Damaged(f"{self.key(view, segment)}: {error}") from error
                # Raises OfAnotherEpoch, which only the whole object proves.
                await self._parsed(view, segment)
                log.warning("wrong index, rebuilding it", partition=view.name, base=segment.base_offset)
                continue
            if found is not None:
                if rebuild or key not in self.indexes:
                    self.indexes.put(key, index)
                return found
            break
        lacking = Damaged if view.epoch_of(segment.base_offset) else OffsetsMissing
        raise lacking(f"{self.key(view, segment)} does not hold offset {offset}")

    async def _rewritten_range(
        self, view: CommittedLog, entry: RewrittenEntry, offset: int, max_bytes: int
    ) -> StoredRange:
        found = await self._rewritten.range(view, entry, offset, max_bytes)
        records, following = found.cut(offset, max_bytes) if offset < found.next_offset else (memoryview(b""), 0)
        if not records:
            raise OffsetsMissing(f"{self._rewritten.key(view, entry)}: no batch from {offset} to {found.next_offset}")
        return StoredRange(bytes(records), found.start + found.positions[found.first_for(offset)], following)

    async def _scan(
        self, view: CommittedLog, segment: KnownSegment, entry: IndexEntry, offset: int, max_bytes: int
    ) -> StoredRange | None:
        epoch, index_is_right = view.epoch_of(segment.base_offset), False
        length = max(max_bytes, _MIN_RANGE)
        rest = segment.size - entry.position
        if rest <= FOOTER_SIZE:
            raise CorruptData(f"the index points to position {entry.position} of {segment.size}")
        while True:
            piece = await self._get_range(view, segment, entry.position, min(length, rest))
            at_end = length >= rest
            start, end, following = -1, 0, offset
            try:
                for position, header in scan_batches(piece, entry, at_end=at_end, epoch=epoch):
                    index_is_right = True
                    if header.next_offset <= offset:
                        continue
                    if start < 0:
                        start = position
                    elif position + header.size - start > max_bytes:
                        break
                    end, following = position + header.size, header.next_offset
            except CorruptSegment as error:
                if epoch or not index_is_right:
                    raise
                # Offsets are missing or a batch is damaged, which only reading the whole segment shows.
                self._gapped[self._id(view, segment)] = None
                if len(self._gapped) > _GAPPED_REMEMBERED:
                    self._gapped.popitem(last=False)
                raise OffsetsMissing(f"{self.key(view, segment)}: {error}") from error
            if start >= 0:
                return StoredRange(piece[start:end], entry.position + start, following)
            if at_end:
                return None
            length *= 4

    async def _index(self, view: CommittedLog, segment: KnownSegment, *, rebuild: bool) -> Index:
        """Return the index. The caller caches it once the segment is known to belong to the log."""
        key = self._id(view, segment)
        cached = None if rebuild else self.indexes.get(key)
        if isinstance(cached, Index):
            return cached

        async def load() -> Index:
            found = None if rebuild else await self._stored_index(view, segment)
            if found is None:
                found = await self._rebuilt_index(view, segment)
            return found

        return await self._index_loads.do(key, load)

    async def _rebuilt_index(self, view: CommittedLog, segment: KnownSegment) -> Index:
        ref = SegmentRef(topic=view.topic, partition=view.partition, base_offset=segment.base_offset)
        try:
            reply = await self._indexer.rebuild(ref, timeout=_INDEX_TIMEOUT)
        except Unavailable as error:
            log.warning("no indexer answered, reading the segment", partition=view.name, error=str(error))
            parsed = await self.parsed(view, segment)
            return parse_index(build_index(parsed.offsets, parsed.positions, self._index_interval))
        if reply.status == Status.DAMAGED:
            # A listed object of a dead owner may have been deleted since, so the next attempt lists again.
            view.segments.forget_stretch(segment.base_offset)
            raise Damaged(reply.detail)
        if reply.status != Status.OK:
            raise Unavailable(reply.detail)
        return parse_index(reply.index)

    async def _stored_index(self, view: CommittedLog, segment: KnownSegment) -> Index | None:
        name = paths.index_key(self.namespace, view.topic, view.partition, segment.base_offset)
        try:
            async with self._limiter:
                return parse_index((await self._objects.get(name)).body)
        except (ObjectNotFound, CorruptData) as error:
            log.warning("index missing or damaged, rebuilding it", key=name, error=str(error))
            return None

    async def _get_range(self, view: CommittedLog, segment: KnownSegment, start: int, length: int) -> bytes:
        name = paths.segment_key(self.namespace, view.topic, view.partition, segment.base_offset)
        async with self._limiter:
            try:
                return await self._objects.get_range(name, start, length)
            except ObjectNotFound as error:
                raise self._missing(view, segment) from error

    def _missing(self, view: CommittedLog, segment: KnownSegment) -> Damaged:
        view.segments.forget_stretch(segment.base_offset)
        return Damaged(f"{view.name}: the segment at offset {segment.base_offset} is missing from the object store")

    def _in_order(self, view: CommittedLog, offset: int) -> bool:
        return (view.topic_id, view.partition, offset) in self._ends

    def _remember(self, view: CommittedLog, position: int) -> None:
        self._ends[(view.topic_id, view.partition, position)] = None
        if len(self._ends) > _READERS_REMEMBERED:
            self._ends.popitem(last=False)

    def _read_ahead(self, view: CommittedLog, segment: KnownSegment, position: int) -> None:
        if self._nursery.cancel_scope.cancel_called:
            return
        for _ in range(self._readahead):
            current = self.glance(view, segment, position)
            position = max(position, current.next_offset) if current is not None else position
            following = self._following(view, segment, position)
            if following is None or self._limiter.available_tokens <= 1:
                return
            segment, position = following, max(position, following.base_offset)
            key = self._cache_key(view, segment, position)
            if key is None or (key not in self.segments and not self._loads.under_way(key)):
                self._nursery.start_soon(self._prefetch, view, segment, position)

    async def _prefetch(self, view: CommittedLog, segment: KnownSegment, position: int) -> None:
        try:
            await self._load(view, segment, position)
        except KafscaleError as error:
            # The error is reported when a client reads this segment.
            log.debug("read-ahead failed", partition=view.name, base=segment.base_offset, error=str(error))

    def _cache_key(self, view: CommittedLog, segment: KnownSegment, offset: int) -> SegmentId | None:
        """Return the key of the segment, or of the part of a rewritten object with ``offset``. None if not known."""
        if segment.rewritten is not None:
            return self._rewritten.part_id(view, segment.rewritten, offset)
        return self._id(view, segment)

    def _id(self, view: CommittedLog, segment: KnownSegment) -> SegmentId:
        return SegmentId(view.topic_id, view.partition, segment.base_offset, view.epoch_of(segment.base_offset))


def cached_segment(parsed: ParsedSegment) -> CachedSegment:
    return CachedSegment(
        bytes(parsed.data),
        parsed.offsets,
        parsed.positions,
        parsed.next_offset,
        parsed.max_timestamp_ms,
        parsed.body_end,
    )
