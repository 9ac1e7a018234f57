"""Count the records of segments without reading them, from the root, catalogs and segment headers.

A segment header is trusted if its record count equals its number of offsets up to the next segment's base.
"""

from dataclasses import dataclass

import trio

from kafscale.metadata.outage import STORE_FAILURES
from kafscale.segment.format import SegmentHeader
from kafscale.v1.catalog_pb2 import CatalogSegment
from services.storage.log.known_segment import KnownSegment
from services.storage.log.partition import CommittedLog
from services.storage.reading.finder import Damaged
from services.storage.run import Run

_HEADERS_AT_A_TIME = 16


@dataclass(frozen=True, slots=True)
class Counted:
    """``records`` records at the offsets from ``base_offset`` up to, not including, ``next_offset``."""

    base_offset: int
    next_offset: int
    records: int

    def within(self, start: int, end: int) -> int | None:
        """Return the number of records from ``start`` up to ``end``, or None if it is unknown."""
        if start <= self.base_offset and self.next_offset <= end:
            return self.records
        if self.records == self.next_offset - self.base_offset:
            return min(end, self.next_offset) - max(start, self.base_offset)
        return None


async def counted_segments(run: Run, view: CommittedLog, offset: int, end: int) -> list[Counted]:
    """Return consecutive segments from the one with ``offset`` on. Empty if that one must be read. Raises as reads do.

    Imported segments are left out, because they may hold control records, which the counts include.
    """
    if offset < view.segments.through:
        return _of_root(view, offset, end)
    entries = _unfinished(run, view, offset) or await run.catalogs.entries(view, offset)
    if entries:
        found = []
        for entry in entries:
            if not entry.epoch or entry.base_offset >= end:
                break
            found.append(Counted(entry.base_offset, entry.next_offset, entry.records))
        return found
    return await _by_headers(run, view, offset, end)


def _of_root(view: CommittedLog, offset: int, end: int) -> list[Counted]:
    """Return what the root says. It counts control records separately, which are not records for readers."""
    rewritten = view.segments.rewritten
    if rewritten is None or rewritten.root is None or offset < rewritten.start:
        return []
    return [
        Counted(entry.start, entry.end, entry.found.records if entry.found is not None else 0)
        for entry in rewritten.root.entries
        if offset < entry.end and entry.start < end
    ]


def _unfinished(run: Run, view: CommittedLog, offset: int) -> list[CatalogSegment]:
    """Return the segments without a catalog page yet, which only the owner knows."""
    owned = run.owned.get((view.topic_id, view.partition))
    if owned is None or owned.log is not view:
        return []
    entries = [entry for entry in owned.unfinished.segments if entry.next_offset > offset]
    return entries if entries and entries[0].base_offset <= offset else []


async def _by_headers(run: Run, view: CommittedLog, offset: int, end: int) -> list[Counted]:
    segment: KnownSegment | None = await run.reader.finder.holding(view, offset)
    segments: list[KnownSegment] = []
    while segment is not None and segment.base_offset < end and len(segments) < _HEADERS_AT_A_TIME:
        segments.append(segment)
        segment = await run.reader.finder.after(view, segment)
    if offset < view.segments.through:
        # The log was rewritten meanwhile.
        return []
    following = view.segments_end if segment is None else segment.base_offset
    ends = [*(one.base_offset for one in segments[1:]), following]
    headers: list[SegmentHeader | None] = [None] * len(segments)

    async def read(i: int) -> None:
        try:
            cached = run.reader.glance(view, segments[i], segments[i].base_offset)
            headers[i] = SegmentHeader.parse(cached.data) if cached else await run.reader.header(view, segments[i])
        except (Damaged, *STORE_FAILURES):
            # The error is reported when somebody reads this segment.
            return

    async with trio.open_nursery() as nursery:
        for i in range(len(segments)):
            nursery.start_soon(read, i)
    found = []
    for one, header, next_offset in zip(segments, headers, ends, strict=True):
        count = next_offset - one.base_offset
        stated = header and (header.base_offset, header.epoch, header.message_count)
        if stated != (one.base_offset, view.epoch_of(one.base_offset), count) or not view.epoch_of(one.base_offset):
            break
        found.append(Counted(one.base_offset, next_offset, count))
    return found
