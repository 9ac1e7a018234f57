"""Verifies pieces of segments, and describes which of their records are wanted."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kafscale.errors import CorruptData
from kafscale.records.batch import HEADER_SIZE
from kafscale.records.checksum import Buffer, crc32c
from kafscale.segment.chain import batch_at, link_fault
from kafscale.segment.format import MAX_OFFSET, CorruptSegment
from kafscale.segment.reader import verify_batch
from kafscale_spark import kernel
from kafscale_spark.machine import Ints, frozen

_BATCHES = 256  # verified and then decoded together
_CHECKED_FROM = 40  # bytes of the header that the checksum covers


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive whole batches of one object.

    ``source`` names the object in errors. ``first_offset`` is the first batch's base offset. ``epoch`` is that of the
    segment, or None for that of the first batch. With ``gaps``, offsets may be missing between batches, as after
    compaction. Set it only if the segment's checksum was verified, because the batches' do not cover base offsets.
    """

    data: Buffer
    source: str
    first_offset: int
    epoch: int | None = None
    gaps: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """Offsets from ``start`` up to ``end``, timestamps (ms since 1970) from ``since_ms`` up to ``until_ms``.

    Ends are exclusive, and None means no bound. A batch is skipped if, by its header, all its records are older, as in
    lookups by time.
    """

    start: int = 0
    end: int = MAX_OFFSET
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def times(self) -> tuple[int, int]:
        """Return the first and the last wanted timestamp, which are those of int64 if there is no bound."""
        return (
            -MAX_OFFSET - 1 if self.since_ms is None else self.since_ms,
            MAX_OFFSET if self.until_ms is None else self.until_ms - 1,
        )


@dataclass(frozen=True, slots=True)
class Partition:
    """The partition being read, for columns and errors."""

    topic: str
    number: int

    def damaged(self, offset: int, source: str, error: CorruptData) -> CorruptData:
        """Return the error with its place."""
        return CorruptData(f"topic {self.topic}, partition {self.number}, offset {offset} in {source}: {error}")


class Chain:
    """Verifies the batches of a partition's pieces: their checksums, and that each follows the one before."""

    def __init__(self, partition: Partition, request: Ints) -> None:
        self._partition = partition
        self._request = request
        self._table = np.empty((_BATCHES, kernel.ENTRY), np.int64)

    def tables(self, piece: Piece) -> Iterator[Ints]:
        """Yield the entries of some batches at a time, up to the wanted end, in an array that is reused.

        Raises CorruptData after yielding the valid batches before the damage.
        """
        if not len(piece.data):
            return
        data, view = frozen(piece.data), memoryview(piece.data)
        place = np.array([0, piece.first_offset, 1, -1 if piece.epoch is None else piece.epoch, piece.gaps, 0])
        found = 1
        while found and not place[kernel.BEYOND]:
            expected = int(place[kernel.NEXT_OFFSET])
            found = kernel.link(data, place, self._request, self._table)
            table = self._table[:found]
            whole = _whole(view, table)
            if whole:
                yield table[:whole]
                expected = int(table[whole - 1, kernel.BASE_OFFSET] + table[whole - 1, kernel.LAST_DELTA] + 1)
            if whole < found:
                raise self._fault(piece, int(table[whole, kernel.START]) - HEADER_SIZE, expected, place)
        if not place[kernel.BEYOND] and place[kernel.POSITION] < len(view):
            raise self._fault(piece, int(place[kernel.POSITION]), int(place[kernel.NEXT_OFFSET]), place)

    def _fault(self, piece: Piece, position: int, expected: int, place: Ints) -> CorruptData:
        """Return the error of the batch at ``position``, as `chain` describes it. ``expected`` is the next offset."""
        exact = position == 0 or not piece.gaps
        try:
            found = batch_at(piece.data, position, len(piece.data))
            fault = link_fault(found, expected, max(int(place[kernel.EPOCH]), 0), exact=exact)
            if fault:
                raise CorruptSegment(f"batch at {position} {fault}")
            verify_batch(piece.data, position, found)
        except CorruptData as error:
            return self._partition.damaged(expected, piece.source, error)
        return self._partition.damaged(expected, piece.source, CorruptSegment(f"no batch follows at {position}"))


def _whole(view: memoryview, table: Ints) -> int:
    """Return the number of batches before the first whose bytes do not have the checksum of its header."""
    starts, ends = (table[:, kernel.START] - _CHECKED_FROM).tolist(), table[:, kernel.END].tolist()
    # Without Python code per batch, which costs more than the checksums if batches are small.
    sums = np.fromiter(map(crc32c, map(view.__getitem__, map(slice, starts, ends))), np.int64, len(table))
    damaged = np.flatnonzero(sums != table[:, kernel.CRC])
    return int(damaged[0]) if len(damaged) else len(table)
