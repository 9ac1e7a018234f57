"""Bookkeeping of a log's catalog: its stored pages and the page that is not full yet. No I/O."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kafscale.catalog.page import SEGMENTS_PER_PAGE
from kafscale.v1.catalog_pb2 import CatalogSegment

MAX_PAGES = 100_000
"""Pages remembered per partition, at some tens of bytes each. Beyond them the segments are read."""
MAX_WAITING = 16 * SEGMENTS_PER_PAGE
"""Segments per partition that may wait for their page to be stored."""
_NOT_READ = -1


class KnownPage(NamedTuple):
    """``end``: one past the last offset, ``newest``: the largest timestamp; both -1 if the page was not read yet.

    ``size``: the total size of its segments in bytes.
    """

    base_offset: int
    epoch: int
    end: int = _NOT_READ
    newest: int = _NOT_READ
    size: int = 0

    @property
    def read(self) -> bool:
        return self.end != _NOT_READ


class KnownPages:
    """Pages by first base offset. ``listed``: the pages that were stored before this owner began are included.

    ``listed_end``: the high watermark up to which pages written by others were listed.
    """

    __slots__ = ("_bases", "_ends", "_epochs", "_newest", "_sizes", "listed", "listed_end")

    def __init__(self) -> None:
        self.listed = False
        self.listed_end = 0
        self._bases: array[int] = array("q")
        self._epochs: array[int] = array("i")
        self._ends: array[int] = array("q")
        self._newest: array[int] = array("q")
        self._sizes: array[int] = array("q")

    def __len__(self) -> int:
        return len(self._bases)

    def add(self, page: KnownPage) -> None:
        """Add or update a page. Of two with the same base offset, the one with the higher epoch is kept."""
        i = bisect_left(self._bases, page.base_offset)
        if i < len(self) and self._bases[i] == page.base_offset:
            if page.epoch >= self._epochs[i]:
                self._epochs[i], self._ends[i], self._newest[i] = page.epoch, page.end, page.newest
                self._sizes[i] = page.size
        elif len(self) < MAX_PAGES:
            for column, value in zip(self._columns, page, strict=True):
                column.insert(i, value)

    def covering(self, offset: int) -> KnownPage | None:
        """Return the page that holds ``offset``, or may hold it if it was not read yet."""
        i = bisect_right(self._bases, offset) - 1
        if i < 0 or _NOT_READ != self._ends[i] <= offset:
            return None
        return self._at(i)

    def unread(self, start: int, end: int) -> list[KnownPage]:
        """Return the pages not read yet that may hold offsets from ``start`` up to ``end``."""
        first = max(bisect_right(self._bases, start) - 1, 0)
        found = (self._at(i) for i in range(first, bisect_left(self._bases, end)))
        return [page for page in found if not page.read]

    def last(self) -> KnownPage | None:
        return self._at(len(self) - 1) if self._bases else None

    def discard(self, page: KnownPage) -> None:
        """Drop a page that does not describe the log."""
        i = bisect_left(self._bases, page.base_offset)
        if i < len(self) and (self._bases[i], self._epochs[i]) == (page.base_offset, page.epoch):
            self._cut(i, i + 1)

    def forget_below(self, offset: int) -> None:
        """Drop the pages that are known to end at or before ``offset``, the new log start."""
        i = bisect_right(self._bases, offset) - 1
        if i >= 0:
            self._cut(0, i + 1 if _NOT_READ != self._ends[i] <= offset else i)

    def _at(self, i: int) -> KnownPage:
        return KnownPage._make(column[i] for column in self._columns)

    def _cut(self, start: int, end: int) -> None:
        for column in self._columns:
            del column[start:end]

    @property
    def _columns(self) -> "tuple[array[int], ...]":
        """In the order of a `KnownPage`."""
        return self._bases, self._epochs, self._ends, self._newest, self._sizes


@dataclass(slots=True)
class UnfinishedPage:
    """The log's last segments, which are in no stored page yet; bounded by MAX_WAITING.

    ``chained``: they begin where the last stored page ends, or no page precedes them.
    """

    segments: list[CatalogSegment] = field(default_factory=list)
    chained: bool = False
    under_way: bool = False
    # When to retry storing after a failure (Trio time).
    not_before: float = 0.0

    @property
    def full(self) -> bool:
        return len(self.segments) >= SEGMENTS_PER_PAGE

    def add(self, segment: CatalogSegment) -> None:
        """Add a segment that was just committed."""
        self.segments.append(segment)
        if len(self.segments) > MAX_WAITING:
            # Pages cannot be stored at present; leave this stretch without one.
            del self.segments[:SEGMENTS_PER_PAGE]
            self.chained = True

    def prepend(self, segments: Iterable[CatalogSegment]) -> None:
        """Insert the segments that a former owner committed since the last page."""
        self.segments[:0] = segments
        self.chained = True
