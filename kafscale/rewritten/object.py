"""Rewritten objects: the batches of a range of a log, which may be of several epochs, and between which offsets may be
missing.

The layout is that of a segment. The base offset in the header is that of the range, the last offset in the footer the
last one of the range, the epoch that of the owner for which the object was written, and bit 3 of the flags says that
the object is rewritten. The batches keep the epochs in which they were written; these never fall. The object's key and
the root decide what the object is, not the header.
"""

from dataclasses import dataclass

from kafscale.errors import CorruptData
from kafscale.records.batch import BatchHeader, peek_one, verify_crc, walk
from kafscale.records.checksum import Buffer, crc32c
from kafscale.rewritten.index import INTERVAL_BYTES, RewrittenIndex, build_rewritten_index
from kafscale.rewritten.keys import RewrittenKey
from kafscale.segment.format import FOOTER_SIZE, HEADER_SIZE, MAX_SEGMENT_SIZE, SegmentFooter, SegmentHeader
from kafscale.v1.rewritten_pb2 import RewrittenEntry

REWRITTEN_FLAG = 0x08


class CorruptObject(CorruptData):
    """Bytes that are not a rewritten object, or an object that is inconsistent."""


@dataclass(frozen=True, slots=True)
class BuiltObject:
    """A rewritten object with its index, and its description for the root."""

    data: bytes
    index: bytes
    entry: RewrittenEntry


class _Description:
    """The description of an object whose batches are added in their order."""

    def __init__(self, base_offset: int) -> None:
        self.entry = RewrittenEntry(base_offset=base_offset, min_timestamp=-1, max_timestamp=-1)
        self._next_offset = base_offset
        self._epoch = 0

    def add(self, header: BatchHeader) -> None:
        """Raises CorruptObject if the batch cannot follow the one before it."""
        if header.base_offset < self._next_offset or header.last_offset_delta < 0 or header.record_count < 0:
            raise CorruptObject(
                f"a batch of offsets {header.base_offset} to {header.last_offset}, but {self._next_offset} is next"
            )
        if header.leader_epoch < self._epoch:
            raise CorruptObject(f"a batch of epoch {header.leader_epoch} after one of epoch {self._epoch}")
        self._next_offset, self._epoch = header.next_offset, header.leader_epoch
        entry = self.entry
        if header.is_control:
            entry.control_records += header.record_count
        else:
            entry.records += header.record_count
        entry.max_timestamp = max(entry.max_timestamp, header.max_timestamp)
        if header.is_log_append_time:
            first = header.max_timestamp
        else:
            first = -1 if header.has_horizon else header.base_timestamp
        if first >= 0 and (first < entry.min_timestamp or entry.min_timestamp < 0):
            entry.min_timestamp = first

    def end(self, next_offset: int) -> None:
        if next_offset < self._next_offset:
            raise CorruptObject(f"the range ends at {next_offset}, its batches at {self._next_offset}")
        self.entry.next_offset = next_offset


class ObjectBuilder:
    """Builds the object of a range from ``base_offset``. ``epoch`` and ``attempt`` are those of its key."""

    def __init__(self, base_offset: int, *, epoch: int, attempt: int, created_ms: int) -> None:
        self._description = _Description(base_offset)
        entry = self._description.entry
        entry.epoch, entry.attempt, entry.created_ms = epoch, attempt, created_ms
        self._batches: list[Buffer] = []
        self._offsets: list[int] = []
        self._positions: list[int] = []
        self._crcs: list[int] = []
        self._crc = self._part = 0
        self.size = HEADER_SIZE + FOOTER_SIZE
        """The size that the object has so far, in bytes."""

    @property
    def empty(self) -> bool:
        """Whether no batch was added."""
        return not self._batches

    def add(self, batch: Buffer) -> None:
        """Add a batch, which must not change later. Raises CorruptObject, CorruptBatch."""
        header = peek_one(batch)
        self._description.add(header)
        position = self.size - FOOTER_SIZE
        if self.size + len(batch) > MAX_SEGMENT_SIZE:
            raise CorruptObject(f"more than {MAX_SEGMENT_SIZE} bytes in one object")
        if not self._positions or position - self._positions[-1] >= INTERVAL_BYTES:
            if self._positions:
                self._crcs.append(self._part)
            self._offsets.append(header.base_offset)
            self._positions.append(position)
            self._part = 0
        self._part = crc32c(batch, self._part)
        self._crc = crc32c(batch, self._crc)
        self._batches.append(batch)
        self.size += len(batch)

    def finish(self, next_offset: int) -> BuiltObject | None:
        """Return the object of the range up to ``next_offset``; None if it has no batches. Raises CorruptObject."""
        self._description.end(next_offset)
        if self.empty:
            return None
        entry = self._description.entry
        entry.size, entry.crc = self.size, self._crc
        header = SegmentHeader(
            REWRITTEN_FLAG,
            entry.base_offset,
            entry.records + entry.control_records,
            entry.created_ms,
            entry.epoch,
        )
        footer = SegmentFooter(self._crc, next_offset - 1)
        index = build_rewritten_index(
            [*self._offsets, next_offset], [*self._positions, self.size - FOOTER_SIZE], [*self._crcs, self._part]
        )
        return BuiltObject(b"".join([header.encode(), *self._batches, footer.encode()]), index, entry)


def verify_object(key: RewrittenKey, data: Buffer, *, check_batches: bool = False) -> RewrittenEntry:
    """Return the description of an object after verifying it.

    ``check_batches`` verifies the checksums of the batches too, to detect damage from before the object was built.
    Raises CorruptObject, CorruptBatch, CorruptSegment.
    """
    header, footer = SegmentHeader.parse(data, may_be_empty=True), SegmentFooter.parse(data)
    found = (header.base_offset, footer.last_offset + 1, header.epoch)
    if found != (key.base_offset, key.next_offset, key.epoch):
        raise CorruptObject(f"base offset, next offset and epoch are {found}, not those of the key")
    view = memoryview(data)
    body = view[HEADER_SIZE : len(data) - FOOTER_SIZE]
    computed = crc32c(body)
    if computed != footer.crc:
        raise CorruptObject(f"checksum of the body is {computed:#010x}, the footer says {footer.crc:#010x}")
    description = _Description(key.base_offset)
    for position, batch in walk(body):
        if check_batches:
            verify_crc(body, position, batch)
        description.add(batch)
    description.end(key.next_offset)
    entry = description.entry
    if not body or entry.records + entry.control_records != header.message_count:
        raise CorruptObject(
            f"{len(body)} bytes with {entry.records + entry.control_records} records, the header says "
            f"{header.message_count}"
        )
    entry.epoch, entry.attempt = key.epoch, key.attempt
    entry.created_ms, entry.size, entry.crc = header.created_ms, len(data), footer.crc
    return entry


def batches_of(piece: Buffer, index: RewrittenIndex, first: int, end: int) -> list[memoryview]:
    """Return the batches in the bytes of the index entries ``first`` to ``end``, verified. Raises CorruptData."""
    index.verify(piece, first, end)
    view = memoryview(piece)
    return [view[position : position + header.size] for position, header in walk(piece)]
