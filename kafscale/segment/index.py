"""The sparse index of a segment (storage-format, "Index file format"): offset -> file position of some batches.

An index is only a hint about where a scan of the segment can begin. Readers check that the batch found there has the
entry's offset (``reader.scan_batches`` does); otherwise they ignore the index and have it rebuilt.
"""

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafscale.errors import CorruptData
from kafscale.records.batch import HEADER_SIZE as BATCH_HEADER_SIZE
from kafscale.records.checksum import Buffer
from kafscale.segment.format import HEADER_SIZE, MAX_SEGMENT_SIZE

INDEX_MAGIC = b"IDX\0"
# The spec's 0x494458 as a 4-byte integer. KafScale's own files begin with the letters.
_OTHER_MAGIC = b"\0IDX"
INDEX_VERSION = 1
INDEX_HEADER_SIZE = 16
INDEX_ENTRY_SIZE = 12
DEFAULT_INTERVAL = 100
"""The number of messages between entries, as written by KafScale 1."""

# magic, version, entry count, interval, reserved
_HEADER = struct.Struct(">4sHIIH")
_ENTRY = struct.Struct(">qI")


class CorruptIndex(CorruptData):
    """Bytes that are not an index, or an index that is inconsistent."""


class IndexEntry(NamedTuple):
    """The base offset of a batch, and the position in the segment file where the batch begins."""

    offset: int
    position: int


def is_index(data: Buffer) -> bool:
    """Return whether ``data`` begins like an index. It may still be damaged."""
    return bytes(data[:4]) in (INDEX_MAGIC, _OTHER_MAGIC)


def choose_entries(offsets: Sequence[int], interval: int) -> list[int]:
    """Return the numbers of the batches with an entry: the first, then each at least ``interval`` offsets further."""
    chosen: list[int] = []
    due = -1
    for number, offset in enumerate(offsets):
        if offset >= due:
            chosen.append(number)
            due = offset + interval
    return chosen


def build_index(offsets: Sequence[int], positions: Sequence[int], interval: int = DEFAULT_INTERVAL) -> bytes:
    """Return the index file of a segment whose batches have these base offsets and absolute file positions.

    Raises ValueError if they are empty, differ in length, do not ascend, or are out of range.
    """
    if not 0 < interval < 2**32:
        raise ValueError(f"index interval {interval} is not between 1 and {2**32 - 1}")
    if len(offsets) != len(positions):
        raise ValueError(f"{len(offsets)} offsets but {len(positions)} positions")
    fault = _fault(offsets, positions)
    if fault:
        raise ValueError(fault)
    chosen = choose_entries(offsets, interval)
    parts = [_HEADER.pack(INDEX_MAGIC, INDEX_VERSION, len(chosen), interval, 0)]
    parts += [_ENTRY.pack(offsets[number], positions[number]) for number in chosen]
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Index:
    """A parsed index. Entry i is (``offsets[i]``, ``positions[i]``). Both ascend strictly and are never empty."""

    interval: int
    offsets: "array[int]"
    positions: "array[int]"

    @property
    def memory_size(self) -> int:
        """The number of bytes that this index occupies in a cache."""
        return sys.getsizeof(self.offsets) + sys.getsizeof(self.positions) + 128

    def entry_for(self, offset: int) -> IndexEntry:
        """Return the last entry at or below ``offset``, or the first entry if the offset is below all."""
        number = max(bisect_right(self.offsets, offset) - 1, 0)
        return IndexEntry(self.offsets[number], self.positions[number])


def parse_index(data: Buffer) -> Index:
    """Parse an index file or raise CorruptIndex. Callers may trust it only as a place to start scanning."""
    if len(data) < INDEX_HEADER_SIZE:
        raise CorruptIndex(f"an index header has {INDEX_HEADER_SIZE} bytes, but there are only {len(data)}")
    magic, version, count, interval, reserved = _HEADER.unpack_from(data)
    if magic not in (INDEX_MAGIC, _OTHER_MAGIC):
        raise CorruptIndex(f"not an index: it begins with {magic!r}, not {INDEX_MAGIC!r}")
    if version != INDEX_VERSION:
        raise CorruptIndex(f"index version {version}, expected {INDEX_VERSION}")
    if interval == 0 or reserved != 0:
        raise CorruptIndex(f"header out of range: interval {interval}, reserved {reserved}")
    if len(data) != INDEX_HEADER_SIZE + count * INDEX_ENTRY_SIZE:
        raise CorruptIndex(f"{len(data)} bytes do not match the {count} entries in the header")
    offsets, positions = array("q"), array("I")
    for offset, position in _ENTRY.iter_unpack(memoryview(data)[INDEX_HEADER_SIZE:]):
        offsets.append(offset)
        positions.append(position)
    fault = _fault(offsets, positions)
    if fault:
        raise CorruptIndex(fault)
    return Index(interval, offsets, positions)


def _fault(offsets: Sequence[int], positions: Sequence[int]) -> str | None:
    """Return why these cannot be the offsets and positions of a segment's batches, or None."""
    if not offsets:
        return "no entries, but a segment has at least one batch"
    if offsets[0] < 0 or positions[0] != HEADER_SIZE:
        return f"the first entry is offset {offsets[0]} at {positions[0]}, but the first batch is at {HEADER_SIZE}"
    last_offset, last_position = offsets[0], positions[0]
    for number in range(1, len(offsets)):
        offset, position = offsets[number], positions[number]
        if offset <= last_offset or position < last_position + BATCH_HEADER_SIZE:
            return f"entry {number}, offset {offset} at {position}, cannot follow {last_offset} at {last_position}"
        last_offset, last_position = offset, position
    if last_position > MAX_SEGMENT_SIZE:
        return f"position {last_position} does not fit in 4 bytes"
    return None
