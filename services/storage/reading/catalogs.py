"""The catalogs of partitions: pages that describe 64 segments each, written as the log grows and read when needed.

The root describes the part of a log that was rewritten, so no page is read for it.

A page is a hint. Pages that do not match the log's epoch history are skipped; without a page the segments themselves
are read. Nothing here delays producers or startup.
"""

from collections.abc import AsyncGenerator

import structlog
import trio

from kafscale import paths
from kafscale.catalog.page import SEGMENTS_PER_PAGE, CorruptPage, age_from, build_page, describe, misfit, parse_page
from kafscale.errors import KafscaleError, Refused, Unavailable
from kafscale.objects.interface import ObjectNotFound, ObjectStore
from kafscale.objects.puts import put_derived
from kafscale.rpc.generated import IndexerClient
from kafscale.v1.catalog_pb2 import CatalogSegment
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.indexer_pb2 import WriteCatalogPageRequest
from services.storage.log.commit import Commit
from services.storage.log.known_segment import UNKNOWN_TIME, KnownSegment
from services.storage.log.pages import KnownPage
from services.storage.log.partition import CommittedLog, Partition
from services.storage.reading.finder import Damaged, OfAnotherEpoch
from services.storage.reading.reader import Reader

log = structlog.get_logger()

_PAGE = 1000
_MAX_KEYS = 100_000
_INDEXER_SECONDS = 5.0
_RETRY_SECONDS = 5.0
_AT_THE_SAME_TIME = 2
"""Partitions whose pages are stored, including reading their segments for it."""
_PAGES_AT_A_TIME = 4
"""Pages read concurrently for one plan."""
_MAX_READ_AGAIN = 2 * SEGMENTS_PER_PAGE
"""Segments of former owners that are read for a page. If more have none, they are left without pages."""


class Catalogs:
    """The catalogs of the partitions of one run."""

    def __init__(
        self, *, nursery: trio.Nursery, objects: ObjectStore, indexer: IndexerClient, reader: Reader, namespace: str
    ) -> None:
        self._nursery = nursery
        self._objects = objects
        self._indexer = indexer
        self._reader = reader
        self._namespace = namespace
        self._limiter = trio.CapacityLimiter(_AT_THE_SAME_TIME)

    def committed(self, commit: Commit) -> None:
        """Add committed segments and, if they fill a page, start storing the page. Does not wait."""
        partition = commit.partition
        page = partition.unfinished
        for segment in commit.segments:
            page.add(describe(segment.data, segment.positions, segment.next_offset))
        if page.full and not page.under_way and trio.current_time() >= page.not_before:
            page.under_way = True
            self._nursery.start_soon(self._store_full, partition)

    async def segments(self, view: CommittedLog, *, at_least: int) -> AsyncGenerator[KnownSegment, None]:
        """Yield the log's segments in order, with timestamps from pages, without some that are older than ``at_least``.

        Raises Damaged, Unavailable.
        """
        offset = view.log_start
        while offset < view.segments_end:
            page = view.pages.covering(offset) if offset >= view.segments.through else None
            if page is not None and page.read and page.newest < at_least:
                offset = page.end
                continue
            segment = view.segments.holding(offset)
            if segment is None or segment.max_timestamp == UNKNOWN_TIME:
                listed = await self._read(view, offset)
                if listed:
                    for entry in listed:
                        if entry.next_offset > offset:
                            yield _known(entry)
                    offset = listed[-1].next_offset
                    continue
                at_start = offset == view.log_start
                segment = await (self._reader if at_start else self._reader.finder).holding(view, offset)
            yield segment
            following = await self._reader.finder.after(view, segment)
            offset = view.segments_end if following is None else max(following.base_offset, offset + 1)

    async def learn(self, view: CommittedLog, start: int, end: int) -> None:
        """Read the unread pages that may hold offsets from ``start`` up to ``end``. Raises Unavailable.

        If another instance writes the log, its new pages are listed first.
        """
        start = max(start, view.segments.through)
        last = view.pages.last()
        if view.pages.listed_end < view.segments_end and (last is None or not last.read or last.end < end):
            known = last is not None and view.pages.listed
            after = self._page_key(view, last) if last is not None and known else ""
            await self._learn_names(view, after)
        remaining, failures = iter(view.pages.unread(start, end)), list[KafscaleError]()

        async def read() -> None:
            for page in remaining:
                try:
                    await self._checked(view, page)
                except KafscaleError as error:
                    failures.append(error)
                if failures:
                    return

        async with trio.open_nursery() as nursery:
            for _ in range(_PAGES_AT_A_TIME):
                nursery.start_soon(read)
        if failures:
            raise failures[0]

    async def entries(self, view: CommittedLog, offset: int) -> list[CatalogSegment]:
        """Return a page's entries from the segment that holds ``offset`` on. Empty if no page has it."""
        return [entry for entry in await self._read(view, offset) if entry.next_offset > offset]

    async def age_from(self, view: CommittedLog, segment: KnownSegment) -> int:
        """Return when the segment's age begins, or UNKNOWN_TIME if no page has it. Raises Unavailable."""
        for entry in await self._read(view, segment.base_offset):
            if entry.base_offset == segment.base_offset:
                return age_from(entry)
        return UNKNOWN_TIME

    async def keys_below(self, view: CommittedLog, kept_from: int) -> list[str]:
        """Return the keys of stored pages whose segments are all known to be below ``kept_from``."""
        names = await self._list(view, kept_from)
        if kept_from == view.segments_end:
            doomed = names
        else:
            # A page ends before the next one begins; the end of the last one is known only if it was read.
            last = view.pages.covering(names[-1].base_offset) if names else None
            whole = last is not None and last.read and last.end <= kept_from
            doomed = [name for name in names if whole or name.base_offset < names[-1].base_offset]
        view.pages.forget_below(kept_from)
        return [str(name) for name in doomed]

    async def _read(self, view: CommittedLog, offset: int) -> list[CatalogSegment]:
        """Return all entries of the page that holds ``offset``. Empty if there is no valid one."""
        if offset < view.segments.through:
            return []
        await self._know_names(view)
        while (page := view.pages.covering(offset)) is not None:
            segments = await self._checked(view, page)
            if offset < view.segments.through:
                # The log was rewritten meanwhile.
                return []
            if segments and segments[-1].next_offset > offset:
                return segments
        return []

    async def _know_names(self, view: CommittedLog) -> None:
        if not view.pages.listed:
            await self._learn_names(view, "")

    async def _learn_names(self, view: CommittedLog, after: str) -> None:
        end = view.segments_end
        for name in await self._list(view, end, after):
            view.pages.add(KnownPage(name.base_offset, name.epoch))
        view.pages.listed, view.pages.listed_end = True, end

    async def _checked(self, view: CommittedLog, page: KnownPage) -> list[CatalogSegment]:
        key = self._page_key(view, page)
        try:
            content = parse_page((await self._objects.get(key)).body)
            through = view.segments.through
            segments = list(content.segments)
            why = misfit(
                content,
                PartitionRef(topic=view.topic, topic_id=view.topic_id, partition=view.partition),
                epochs=view.epochs,
                log_start=view.log_start,
                high_watermark=view.segments_end,
            )
            if segments[0].base_offset != page.base_offset:
                why = f"it begins at offset {segments[0].base_offset}"
            elif not all(view.segments.belongs(one.base_offset) for one in segments if one.base_offset >= through):
                why = "it lists an object that does not belong to the log"
        except (CorruptPage, ObjectNotFound) as error:
            segments, why = [], f"{type(error).__name__}: {error}"
        if why is not None:
            log.warning("catalog page skipped", key=key, reason=why)
            view.pages.discard(page)
            return []
        newest = max(segment.max_timestamp for segment in segments)
        size = sum(segment.size for segment in segments)
        view.pages.add(page._replace(end=segments[-1].next_offset, newest=newest, size=size))
        view.segments.catalogued([_known(segment) for segment in segments], segments[-1].next_offset)
        return [segment for segment in segments if segment.base_offset >= view.segments.through]

    def _page_key(self, view: CommittedLog, page: KnownPage) -> str:
        return paths.catalog_page_key(self._namespace, view.topic, view.partition, page.base_offset, page.epoch)

    async def _list(self, view: CommittedLog, below: int, after: str = "") -> list[paths.CatalogPageKey]:
        """Return the keys of stored pages with a base offset below ``below``, in order, at most about _MAX_KEYS."""
        prefix = paths.catalog_prefix(self._namespace, view.topic, view.partition)
        names: list[paths.CatalogPageKey] = []
        while True:
            listed = [info.key for info in await self._objects.list_from(prefix, after, _PAGE)]
            names += [name for name in map(paths.parse_catalog_page_key, listed) if name is not None]
            if len(listed) < _PAGE or len(names) >= _MAX_KEYS or (names and names[-1].base_offset >= below):
                return sorted(
                    (name for name in names if name.base_offset < below),
                    key=lambda name: (name.base_offset, name.epoch),
                )
            after = listed[-1]

    async def _store_full(self, partition: Partition) -> None:
        page = partition.unfinished
        try:
            async with self._limiter:
                if not page.chained:
                    found = await self._read_again(partition, page.segments[0].base_offset)
                    if not page.chained:
                        page.prepend(found)
                while page.full and not partition.closed:
                    segments = page.segments[:SEGMENTS_PER_PAGE]
                    await self._store(partition, segments)
                    if page.segments[0] is segments[0]:
                        del page.segments[:SEGMENTS_PER_PAGE]
        except KafscaleError as error:
            log.warning("catalog page not stored, retrying later", partition=partition.name, error=str(error))
            page.not_before = trio.current_time() + _RETRY_SECONDS
        finally:
            page.under_way = False

    async def _store(self, partition: Partition, segments: list[CatalogSegment]) -> None:
        """Have an indexer store the page, or store it here if none answers."""
        ref, base = partition.ref, segments[0].base_offset
        request = WriteCatalogPageRequest(partition=ref, epoch=partition.epoch, segments=segments)
        partition.under_way += 1
        try:
            await self._indexer.write_catalog_page(request, timeout=_INDEXER_SECONDS)
        except (Unavailable, Refused) as error:
            log.warning("no indexer answered, storing catalog page", partition=partition.name, error=str(error))
            # The indexer may still be storing it.
            partition.last_unknown_request = trio.current_time()
            key = paths.catalog_page_key(self._namespace, ref.topic, ref.partition, base, partition.epoch)
            try:
                await put_derived(self._objects, key, build_page(ref, partition.epoch, segments))
            finally:
                partition.last_unknown_request = trio.current_time()
        finally:
            partition.request_ended()
        newest = max(segment.max_timestamp for segment in segments)
        size = sum(segment.size for segment in segments)
        partition.log.pages.add(KnownPage(base, partition.epoch, segments[-1].next_offset, newest, size))

    async def _read_again(self, partition: Partition, up_to: int) -> list[CatalogSegment]:
        """Describe the segments that former owners committed after the last page, up to base ``up_to``."""
        view = partition.log
        found: list[CatalogSegment] = []
        start = await self._end_of_pages(view)
        if start >= up_to:
            return found
        segment: KnownSegment | None = await self._reader.holding(view, start)
        while segment is not None and segment.base_offset < up_to:
            if len(found) == _MAX_READ_AGAIN:
                log.info("segments left without catalog page", partition=partition.name, start=start, end=up_to)
                return []
            try:
                parsed = await self._reader.parsed(view, segment)
            except OfAnotherEpoch:
                pass
            else:
                entry = describe(parsed.data, parsed.positions, parsed.next_offset)
                if found and entry.base_offset != found[-1].next_offset:
                    raise Damaged(f"{partition.name}: no segment holds offset {found[-1].next_offset}")
                found.append(entry)
            segment = await self._reader.finder.after(view, segment)
        return found

    async def _end_of_pages(self, view: CommittedLog) -> int:
        """Return the end of the last valid page, or where the segments begin if there is none."""
        await self._know_names(view)
        start = max(view.log_start, view.segments.through)
        while (page := view.pages.last()) is not None:
            if page.read:
                return max(start, page.end)
            await self._checked(view, page)
        return start


def _known(segment: CatalogSegment) -> KnownSegment:
    return KnownSegment(segment.base_offset, segment.size, segment.max_timestamp)
