"""The parts of a log, from its root and its segments, with what a choice of those to rewrite must know of them."""

from collections.abc import Collection
from dataclasses import dataclass, field

import trio

from kafscale.errors import KafscaleError
from kafscale.segment.format import SegmentHeader
from services.storage.log.known_segment import UNKNOWN_TIME, KnownSegment
from services.storage.log.partition import CommittedLog, Partition
from services.storage.log.rewriting import MOST_PARTS, Part, parts_of
from services.storage.reading.catalogs import Catalogs
from services.storage.reading.reader import Reader

_HEADERS_AT_A_TIME = 16
"""A new owner of many segments that no page describes reads as many headers concurrently."""


@dataclass(slots=True)
class _Learned:
    """What is known of the segments of a partition.

    ``written_ms``: when segments of unknown timestamps were written, by base offset. ``headers``: those that were read
    ahead, likewise. ``pages``: the catalog pages were read.
    """

    written_ms: dict[int, int] = field(default_factory=dict)
    headers: dict[int, SegmentHeader] = field(default_factory=dict)
    pages: bool = False


class LogParts:
    """Reads the parts of owned partitions. Remembers what it learned of those that are checked again and again."""

    def __init__(self, reader: Reader, catalogs: Catalogs) -> None:
        self._reader = reader
        self._catalogs = catalogs
        self._learned: dict[Partition, _Learned] = {}

    def keep(self, partitions: Collection[Partition]) -> None:
        """Forget what is known of all other partitions."""
        self._learned = {one: self._learned[one] for one in partitions if one in self._learned}

    async def has_segments(self, partition: Partition, limit: int, *, number: int, size: int) -> bool:
        """Return whether there are ``number`` segments up to ``limit``, or ``size`` bytes of them.

        They are listed if they are not known, but not read. Raises Damaged, Unavailable.
        """
        view = partition.log
        offset = max(view.log_start, view.segments.through)
        segment = await self._reader.finder.holding(view, offset) if offset < limit else None
        while segment is not None and segment.base_offset < limit:
            number, size = number - 1, size - segment.size
            if number <= 0 or size <= 0:
                return True
            segment = await self._reader.finder.after(view, segment)
        return False

    async def read(self, partition: Partition, limit: int) -> list[Part]:
        """Return the parts of the log up to ``limit``, in order, at most MOST_PARTS. Raises Damaged, Unavailable."""
        view = partition.log
        rewritten = view.segments.rewritten
        root = rewritten.root if rewritten is not None else None
        parts = [part for part in parts_of(root) if part.end > view.log_start] if root is not None else []
        learned = self._learned.setdefault(partition, _Learned())
        learned.headers.clear()
        offset = max(view.log_start, view.segments.through)
        segment = await self._reader.finder.holding(view, offset) if offset < limit else None
        if segment is not None:
            segment = await self._in_log(view, segment, offset, learned)
        while segment is not None and offset < limit and len(parts) < MOST_PARTS:
            following = await self._after(view, segment, learned)
            end = view.segments_end if following is None else following.base_offset
            time_ms = await self._time_of(view, segment, learned.written_ms)
            epoch = view.epoch_of(segment.base_offset)
            parts.append(Part(segment.base_offset, end, segment.size, time_ms, epoch=epoch))
            offset, segment = end, following
        for base in [base for base in learned.written_ms if base < view.segments.through]:
            del learned.written_ms[base]
        return parts

    async def _after(self, view: CommittedLog, segment: KnownSegment, learned: _Learned) -> KnownSegment | None:
        """Return the next segment of the log."""
        while (following := await self._reader.finder.after(view, segment)) is not None:
            base = following.base_offset
            if (await self._in_log(view, following, base, learned)).base_offset == base:
                return following
            segment = following
        return None

    async def _in_log(self, view: CommittedLog, segment: KnownSegment, offset: int, learned: _Learned) -> KnownSegment:
        """Return the segment that holds ``offset``: ``segment``, or an earlier one if that is a dead owner's object."""
        base = segment.base_offset
        if segment.max_timestamp != UNKNOWN_TIME or base in learned.written_ms:
            return segment
        if not learned.pages:
            # A new owner knows the segments by a listing alone, and a page describes many of them.
            await self._catalogs.learn(view, base, view.segments_end)
            learned.pages = True
            return await self._in_log(view, await self._reader.finder.holding(view, offset), offset, learned)
        header = await self._header(view, segment, learned)
        if header.epoch != view.epoch_of(base):
            return await self._reader.holding(view, offset)
        learned.written_ms[base] = header.created_ms
        return segment

    async def _header(self, view: CommittedLog, segment: KnownSegment, learned: _Learned) -> SegmentHeader:
        """Return the segment's header. Those of the following segments are read at the same time."""
        if segment.base_offset not in learned.headers:
            learned.headers.clear()
            unknown = await self._unknown_from(view, segment, learned)
            async with trio.open_nursery() as nursery:
                for one in unknown:
                    nursery.start_soon(self._read_ahead, view, one, learned)
        header = learned.headers.pop(segment.base_offset, None)
        return header or await self._reader.header(view, segment)

    async def _unknown_from(self, view: CommittedLog, segment: KnownSegment, learned: _Learned) -> list[KnownSegment]:
        """Return ``segment`` and the segments after it up to the first one whose time is known, a bounded number."""
        unknown: list[KnownSegment] = []
        following: KnownSegment | None = segment
        while following is not None and len(unknown) < _HEADERS_AT_A_TIME:
            if following.max_timestamp != UNKNOWN_TIME or following.base_offset in learned.written_ms:
                break
            unknown.append(following)
            try:
                following = await self._reader.finder.after(view, following)
            except KafscaleError:
                # It is looked for again if it is needed, and reported then.
                break
        return unknown

    async def _read_ahead(self, view: CommittedLog, segment: KnownSegment, learned: _Learned) -> None:
        try:
            learned.headers[segment.base_offset] = await self._reader.header(view, segment)
        except KafscaleError:
            # It is read again if it is needed, and reported then.
            return

    async def _time_of(self, view: CommittedLog, segment: KnownSegment, written: dict[int, int]) -> int:
        """Return the largest timestamp in a segment if it is known, otherwise when the segment was written."""
        if segment.max_timestamp >= 0:
            return segment.max_timestamp
        if segment.base_offset not in written:
            written[segment.base_offset] = (await self._reader.header(view, segment)).created_ms
        return written[segment.base_offset]
