"""The index of a rewritten object: which offsets are where, with a checksum for each part of the object.

Between the batches of a rewritten object offsets may be missing, and no checksum of a batch covers its base offset. So
a part of the object is only believed if it matches the checksum in the index. An entry is about 64 KiB after the one
before it. All integers are big-endian:

- header, 16 bytes: ``IDX\\0``, version (2 bytes: 2), number of entries (4), 65536 (4), 0 (2)
- entries, 16 bytes each: offset (8), position in the object (4), CRC-32C of the bytes up to the next entry (4)
- footer, 16 bytes: the offset after the last one of the object (8), the position after its last batch (4), CRC-32C of
  all bytes of the index before this field (4)
"""

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kafscale.errors import CorruptData
from kafscale.records.checksum import Buffer, crc32c
from kafscale.segment.format import HEADER_SIZE as OBJECT_HEADER_SIZE
from kafscale.segment.index import INDEX_MAGIC

VERSION = 2
INTERVAL_BYTES = 64 * 1024

_HEADER = struct.Struct(">4sHIIH")
_ENTRY = struct.Struct(">qII")
_END = struct.Struct(">qI")
_CRC = struct.Struct(">I")
_FOOTER_SIZE = _END.size + _CRC.size


class CorruptRewrittenIndex(CorruptData):
    """Bytes that are not the index of a rewritten object, or an index that is inconsistent."""


@dataclass(frozen=True, slots=True)
class RewrittenIndex:
    """A parsed index. Entry i is about the bytes from ``positions[i]`` up to ``positions[i + 1]``, whose CRC is
    ``crcs[i]`` and whose batches begin at ``offsets[i]``.

    ``positions`` has one number more than there are entries: the position after the last batch. So has ``offsets``.
    """

    offsets: "array[int]"
    positions: "array[int]"
    crcs: "array[int]"

    @property
    def memory_size(self) -> int:
        """The number of bytes that this index occupies in a cache."""
        return sum(map(sys.getsizeof, (self.offsets, self.positions, self.crcs))) + 128

    def part(self, offset: int, max_bytes: int) -> tuple[int, int]:
        """Return the numbers of the first entry to read and of the one after the last, for a read from ``offset``.

        They are about ``max_bytes`` apart, and at least one. Their batches may all be below ``offset``, because the
        offsets up to the next entry may be missing. The read then goes on from ``offsets[end]``.
        """
        first = max(bisect_right(self.offsets, offset, hi=len(self.crcs)) - 1, 0)
        end = bisect_right(self.positions, self.positions[first] + max_bytes) - 1
        return first, min(max(end, first + 1), len(self.crcs))

    def verify(self, piece: Buffer, first: int, end: int) -> None:
        """Check the bytes of the object of the entries ``first`` to ``end``. Raises CorruptRewrittenIndex."""
        view, start = memoryview(piece), self.positions[first]
        if len(view) != self.positions[end] - start:
            raise CorruptRewrittenIndex(f"{len(view)} bytes instead of {self.positions[end] - start}")
        for number in range(first, end):
            found = crc32c(view[self.positions[number] - start : self.positions[number + 1] - start])
            if found != self.crcs[number]:
                raise CorruptRewrittenIndex(
                    f"checksum of the part at {self.positions[number]} is {found:#010x}, not {self.crcs[number]:#010x}"
                )


class IndexBuilder:
    """Builds the index of an object whose batches are added in their order."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._positions: list[int] = []
        self._crcs: list[int] = []
        self._part = 0

    def add(self, batch: Buffer, offset: int, position: int) -> None:
        """Add the batch with this base offset, which is at ``position`` in the object."""
        if not self._positions or position - self._positions[-1] >= INTERVAL_BYTES:
            if self._positions:
                self._crcs.append(self._part)
            self._offsets.append(offset)
            self._positions.append(position)
            self._part = 0
        self._part = crc32c(batch, self._part)

    def finish(self, next_offset: int, body_end: int) -> bytes:
        """Return the index of an object that ends before ``next_offset``, and whose batches end at ``body_end``.

        Raises CorruptRewrittenIndex if the batches are not in order.
        """
        return build_rewritten_index(
            [*self._offsets, next_offset], [*self._positions, body_end], [*self._crcs, self._part]
        )


def build_rewritten_index(offsets: Sequence[int], positions: Sequence[int], crcs: Sequence[int]) -> bytes:
    """Return the index. ``offsets`` and ``positions`` have one number more than ``crcs``, as in `RewrittenIndex`.

    Raises CorruptRewrittenIndex if they are inconsistent.
    """
    _check(offsets, positions, crcs)
    parts = [_HEADER.pack(INDEX_MAGIC, VERSION, len(crcs), INTERVAL_BYTES, 0)]
    parts += [_ENTRY.pack(*entry) for entry in zip(offsets, positions, crcs, strict=False)]
    parts.append(_END.pack(offsets[-1], positions[-1]))
    body = b"".join(parts)
    return body + _CRC.pack(crc32c(body))


def parse_rewritten_index(data: Buffer) -> RewrittenIndex:
    """Return the content of an index after verifying it. Raises CorruptRewrittenIndex."""
    if len(data) < _HEADER.size + _FOOTER_SIZE:
        raise CorruptRewrittenIndex(f"an index cannot have {len(data)} bytes")
    magic, version, count, interval, reserved = _HEADER.unpack_from(data)
    if (magic, version, interval, reserved) != (INDEX_MAGIC, VERSION, INTERVAL_BYTES, 0):
        raise CorruptRewrittenIndex(f"not the index of a rewritten object: it begins with {bytes(data[:6])!r}")
    end = _HEADER.size + count * _ENTRY.size
    if len(data) != end + _FOOTER_SIZE:
        raise CorruptRewrittenIndex(f"{len(data)} bytes do not match the {count} entries in the header")
    view = memoryview(data)
    (crc,) = _CRC.unpack_from(data, end + _END.size)
    computed = crc32c(view[: -_CRC.size])
    if computed != crc:
        raise CorruptRewrittenIndex(f"checksum of the index is {computed:#010x}, not {crc:#010x}")
    offsets, positions, crcs = array("q"), array("I"), array("I")
    for offset, position, part in _ENTRY.iter_unpack(view[_HEADER.size : end]):
        offsets.append(offset)
        positions.append(position)
        crcs.append(part)
    next_offset, body_end = _END.unpack_from(data, end)
    offsets.append(next_offset)
    positions.append(body_end)
    _check(offsets, positions, crcs)
    return RewrittenIndex(offsets, positions, crcs)


def _check(offsets: Sequence[int], positions: Sequence[int], crcs: Sequence[int]) -> None:
    if not len(offsets) == len(positions) == len(crcs) + 1:
        raise CorruptRewrittenIndex(f"{len(offsets)} offsets and {len(positions)} positions for {len(crcs)} entries")
    if positions[0] != OBJECT_HEADER_SIZE or offsets[0] < 0:
        raise CorruptRewrittenIndex(f"the first part is at {positions[0]}, from offset {offsets[0]} on")
    for numbers in (offsets, positions):
        if any(later <= earlier for earlier, later in pairwise(numbers)):
            raise CorruptRewrittenIndex("offsets or positions do not ascend")
