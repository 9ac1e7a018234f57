"""Builds a segment file from placed batches, with one copy of the batches' bytes."""

import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from kafscale.records.batch import HEADER_SIZE as BATCH_HEADER_SIZE
from kafscale.records.checksum import Buffer, crc32c
from kafscale.segment.format import (
    FOOTER_SIZE,
    HEADER_SIZE,
    MAX_OFFSET,
    MAX_SEGMENT_SIZE,
    SegmentFooter,
    SegmentHeader,
)

PREFIX_SIZE = 16

# Kafka's 61-byte batch header, in the two pieces in which storage keeps it.
_PREFIX = struct.Struct(">qii")  # base offset, batch length (counted from after itself), leader epoch
_REST = struct.Struct(">b6xi8xq14xi")  # magic, last offset delta, max timestamp, record count


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """A segment file, and the data about it for its index and the partition's state.

    ``offsets`` and ``positions`` hold the base offset and absolute file position of every batch. ``next_offset`` is the
    offset after the last message, ``crc`` the footer's, ``max_timestamp_ms`` the largest of the batches, at least -1.
    """

    data: bytes
    base_offset: int
    next_offset: int
    message_count: int
    epoch: int
    crc: int
    offsets: "array[int]"
    positions: "array[int]"
    max_timestamp_ms: int

    @property
    def body_end(self) -> int:
        """The file position after the last batch."""
        return len(self.data) - FOOTER_SIZE


def build_segment(
    batches: Iterable[tuple[Buffer, Buffer]], *, epoch: int, created_ms: int, flags: int = 0
) -> BuiltSegment:
    """Return the segment with ``batches`` in this order.

    A batch is a pair: its first 16 bytes (``PREFIX_SIZE``: base offset, length, leader epoch, as assigned by the owner)
    and the rest as received from the producer. ``epoch`` is the owner's (0: imported), ``created_ms`` is ms since 1970.

    Raises ValueError, before any copy, if the batches have gaps or another epoch, which is a bug of the caller.
    """
    offsets, positions = array("q"), array("I")
    pieces: list[Buffer] = [b""]
    position, crc, messages, expected, newest = HEADER_SIZE, 0, 0, None, -1
    for prefix, rest in batches:
        base_offset, length, leader_epoch = _PREFIX.unpack(prefix)
        if len(rest) < BATCH_HEADER_SIZE - PREFIX_SIZE or length != len(rest) + 4:
            raise ValueError(f"batch at offset {base_offset}: length {length}, but {len(rest)} bytes after the prefix")
        magic, last_delta, max_timestamp, record_count = _REST.unpack_from(rest)
        following = base_offset + last_delta + 1
        if magic != 2 or last_delta < 0 or record_count < 0 or leader_epoch != epoch or following > MAX_OFFSET:
            raise ValueError(
                f"batch at offset {base_offset}: magic {magic}, last offset delta {last_delta}, {record_count} records,"
                f" epoch {leader_epoch} in a segment of epoch {epoch}"
            )
        if base_offset != expected and expected is not None:
            raise ValueError(f"batch at offset {base_offset}, but {expected} is next")
        offsets.append(base_offset)
        positions.append(position)
        pieces += (prefix, rest)
        crc = crc32c(rest, crc32c(prefix, crc))
        position += PREFIX_SIZE + len(rest)
        if position + FOOTER_SIZE > MAX_SEGMENT_SIZE:
            raise ValueError(f"more than {MAX_SEGMENT_SIZE} bytes in one segment")
        messages += record_count
        expected = following
        newest = max(newest, max_timestamp)
    if expected is None or messages == 0:
        raise ValueError("a segment must have at least one message")
    pieces[0] = SegmentHeader(flags, offsets[0], messages, created_ms, epoch).encode()
    pieces.append(SegmentFooter(crc, expected - 1).encode())
    return BuiltSegment(b"".join(pieces), offsets[0], expected, messages, epoch, crc, offsets, positions, newest)
