"""The sparse index of a segment (storage-format, "Index file format"): offset -> file position of some batches.

An index is a hint and nothing more: it says where in a segment a scan may begin. Whoever follows it checks that the
batch found there has the entry's offset (``reader.scan_batches`` does), else ignores the index and has it rebuilt.
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
# The spec's 0x494458 read as a 4-byte integer; what KafScale wrote has the letters first.
_OTHER_MAGIC = b"\0IDX"
INDEX_VERSION = 1
INDEX_HEADER_SIZE = 16
INDEX_ENTRY_SIZE = 12
DEFAULT_INTERVAL = 100
"""Messages between entries, as KafScale 1 wrote them."""

# magic, version, entry count, interval, reserved
_HEADER = struct.Struct(">4sHIIH")
_ENTRY = struct.Struct(">qI")


class CorruptIndex(CorruptData):
    """Bytes that are no index, or an index that contradicts itself."""


class IndexEntry(NamedTuple):
    """The base offset of a batch, and where in the segment file the batch begins."""

    offset: int
    position: int


def is_index(data: Buffer) -> bool:
    """Whether ``data`` begins as an index does; it may still be damaged."""
    return bytes(data[:4]) in (INDEX_MAGIC, _OTHER_MAGIC)


def choose_entries(offsets: Sequence[int], interval: int) -> list[int]:
    """The numbers of the batches that get an entry: the first, then each ``interval`` offsets or more past the last."""
    chosen: list[int] = []
    due = -1
    for number, offset in enumerate(offsets):
        if offset >= due:
            chosen.append(number)
            due = offset + interval
    return chosen


def build_index(offsets: Sequence[int], positions: Sequence[int], interval: int = DEFAULT_INTERVAL) -> bytes:
    """The index file of a segment whose batches have these base offsets and absolute file positions.

    Raises ValueError where the two cannot be a segment's: none, unequal numbers, not ascending, out of range.
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
    """A parsed index: entry i is (``offsets[i]``, ``positions[i]``), both strictly ascending, never empty."""

    interval: int
    offsets: "array[int]"
    positions: "array[int]"

    @property
    def memory_size(self) -> int:
        """Bytes that this occupies in a cache."""
        return sys.getsizeof(self.offsets) + sys.getsizeof(self.positions) + 128

    def entry_for(self, offset: int) -> IndexEntry:
        """The last entry at or below ``offset``; the first one for an offset below all."""
        number = max(bisect_right(self.offsets, offset) - 1, 0)
        return IndexEntry(self.offsets[number], self.positions[number])


def parse_index(data: Buffer) -> Index:
    """An index file's content, or CorruptIndex. Nothing in it is trusted beyond "start scanning here"."""
    if len(data) < INDEX_HEADER_SIZE:
        raise CorruptIndex(f"an index header has {INDEX_HEADER_SIZE} bytes, here are {len(data)}")
    magic, version, count, interval, reserved = _HEADER.unpack_from(data)
    if magic not in (INDEX_MAGIC, _OTHER_MAGIC):
        raise CorruptIndex(f"not an index: it begins with {magic!r}, not {INDEX_MAGIC!r}")
    if version != INDEX_VERSION:
        raise CorruptIndex(f"index version {version}, known is {INDEX_VERSION}")
    if interval == 0 or reserved != 0:
        raise CorruptIndex(f"header out of range: interval {interval}, reserved {reserved}")
    if len(data) != INDEX_HEADER_SIZE + count * INDEX_ENTRY_SIZE:
        raise CorruptIndex(f"{len(data)} bytes do not hold the {count} entries that the header announces")
    offsets, positions = array("q"), array("I")
    for offset, position in _ENTRY.iter_unpack(memoryview(data)[INDEX_HEADER_SIZE:]):
        offsets.append(offset)
        positions.append(position)
    fault = _fault(offsets, positions)
    if fault:
        raise CorruptIndex(fault)
    return Index(interval, offsets, positions)


def _fault(offsets: Sequence[int], positions: Sequence[int]) -> str | None:
    """Why these cannot be offsets and positions of batches of one segment, or None."""
    if not offsets:
        return "no entry at all, a segment has a batch at least"
    if offsets[0] < 0 or positions[0] != HEADER_SIZE:
        return f"the first entry is offset {offsets[0]} at {positions[0]}, a segment's first batch is at {HEADER_SIZE}"
    last_offset, last_position = offsets[0], positions[0]
    for number in range(1, len(offsets)):
        offset, position = offsets[number], positions[number]
        if offset <= last_offset or position < last_position + BATCH_HEADER_SIZE:
            return f"entry {number}, offset {offset} at {position}, cannot follow {last_offset} at {last_position}"
        last_offset, last_position = offset, position
    if last_position > MAX_SEGMENT_SIZE:
        return f"position {last_position} does not fit in 4 bytes"
    return None
