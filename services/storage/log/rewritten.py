"""The part of a log that was rewritten, as its root describes it. No I/O."""

from bisect import bisect_right
from collections.abc import Sequence

from kafscale.rewritten.root import Root
from kafscale.v1.metadata_pb2 import EpochHistory, RootRef
from services.storage.log.known_segment import KnownSegment


class RewrittenLog:
    """The log below `through`, by the root ``ref``.

    ``root`` is None if the root cannot be read, for the reason ``fault``. Nothing below `through` can then be read.
    """

    def __init__(self, ref: RootRef, root: Root | None, fault: str = "") -> None:
        self.ref = ref
        self.root = root
        self.fault = fault
        self._ends = [entry.end for entry in root.entries] if root is not None else []
        # The number of the first entry with an object from each entry on; the number of entries if there is none.
        self._following: list[int] = []
        for number in reversed(range(len(self._ends))):
            has_object = root is not None and root.entries[number].found is not None
            after = self._following[-1] if self._following else len(self._ends)
            self._following.append(number if has_object else after)
        self._following.reverse()

    @property
    def through(self) -> int:
        return self.ref.through

    @property
    def start(self) -> int:
        """Where the root begins. What precedes it was deleted."""
        return self.root.start if self.root is not None else 0

    @property
    def epochs(self) -> Sequence[EpochHistory.Entry]:
        """The epochs of the log up to `through`."""
        return self.root.epochs if self.root is not None else ()

    def holding(self, offset: int) -> KnownSegment | None:
        """Return the object of the entry with ``offset``, or the next object; None if there is none below `through`, or
        the offset is below `start`."""
        return self._object(bisect_right(self._ends, offset)) if offset >= self.start else None

    def after(self, segment: KnownSegment) -> KnownSegment | None:
        """Return the object after ``segment``, or None. If it was replaced, return the one that has its first offset,
        or the next one."""
        number = bisect_right(self._ends, segment.base_offset)
        found = self._object(number)
        return self._object(number + 1) if found is not None and found.rewritten == segment.rewritten else found

    def stretch(self, offset: int, end: int) -> tuple[list[KnownSegment], int]:
        """Return the objects from ``offset`` up to base ``end``, and the offset up to which these are all of them."""
        found: list[KnownSegment] = []
        one = self.holding(offset)
        while one is not None and one.base_offset < end:
            found.append(one)
            one = self.after(one)
        if self.root is None or offset < self.start:
            return [], offset
        return found, self.through if one is None else one.base_offset

    def _object(self, number: int) -> KnownSegment | None:
        if self.root is None or number >= len(self._following) or self._following[number] >= len(self._ends):
            return None
        found = self.root.entries[self._following[number]].found
        return None if found is None else KnownSegment(found.base_offset, found.size, found.max_timestamp, found)
