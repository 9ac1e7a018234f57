"""Rewritten objects: the batches of a range of a log, which may be of several epochs, and between which offsets may be
missing.

The layout is that of a segment. The base offset in the header is that of the range, the last offset in the footer the
last one of the range, the epoch that of the owner for which the object was written, and bit 3 of the flags says that
the object is rewritten. The batches keep the epochs in which they were written; these never fall. The object's key and
the root decide what the object is, not the header.
"""

from array import array
from dataclasses import dataclass

from kafscale.errors import CorruptData
from kafscale.records.batch import BatchHeader, peek_one, verify_crc, walk
from kafscale.records.checksum import Buffer, crc32c
from kafscale.rewritten.index import IndexBuilder, RewrittenIndex
from kafscale.rewritten.keys import RewrittenKey
from kafscale.segment.format import FOOTER_SIZE, HEADER_SIZE, MAX_SEGMENT_SIZE, SegmentFooter, SegmentHeader
from kafscale.segment.reader import ParsedSegment
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
        # Batches that KafScale 1 wrote may have epoch -1.
        epoch = max(header.leader_epoch, 0)
        if epoch < self._epoch:
            raise CorruptObject(f"a batch of epoch {epoch} after one of epoch {self._epoch}")
        self._next_offset, self._epoch = header.next_offset, epoch
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
        self._index = IndexBuilder()
        self._crc = 0
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
        if self.size + len(batch) > MAX_SEGMENT_SIZE:
            raise CorruptObject(f"more than {MAX_SEGMENT_SIZE} bytes in one object")
        self._index.add(batch, header.base_offset, self.size - FOOTER_SIZE)
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
        index = self._index.finish(next_offset, self.size - FOOTER_SIZE)
        return BuiltObject(b"".join([header.encode(), *self._batches, footer.encode()]), index, entry)


def verify_object(key: RewrittenKey, data: Buffer, *, check_batches: bool = False) -> RewrittenEntry:
    """Return the description of an object after verifying it.

    ``check_batches`` verifies the checksums of the batches too, to detect damage from before the object was built.
    Raises CorruptObject, CorruptBatch, CorruptSegment.
    """
    found, _ = _parsed(data, check_batches=check_batches)
    found.attempt = key.attempt
    stated = (found.base_offset, found.next_offset, found.epoch)
    if stated != (key.base_offset, key.next_offset, key.epoch):
        raise CorruptObject(f"base offset, next offset and epoch are {stated}, not those of the key")
    return found


def parse_object(entry: RewrittenEntry, data: Buffer, *, check_batches: bool = False) -> ParsedSegment:
    """Return the batches of the object that ``entry`` of a root describes, like those of a segment, after verifying it.

    Raises CorruptObject, CorruptBatch, CorruptSegment.
    """
    found, parsed = _parsed(data, check_batches=check_batches)
    found.attempt = entry.attempt
    if found != entry:
        raise CorruptObject(f"the object is not the one that the root describes: {found!r} instead of {entry!r}")
    return parsed


def index_of(parsed: ParsedSegment) -> bytes:
    """Return the index of an object that was verified, byte for byte as `ObjectBuilder` builds it."""
    builder, data = IndexBuilder(), memoryview(parsed.data)
    for offset, position, end in zip(parsed.offsets, parsed.positions, parsed.ends, strict=True):
        builder.add(data[position:end], offset, position)
    return builder.finish(parsed.next_offset, parsed.body_end)


def _parsed(data: Buffer, *, check_batches: bool) -> tuple[RewrittenEntry, ParsedSegment]:
    header, footer = SegmentHeader.parse(data, may_be_empty=True), SegmentFooter.parse(data)
    body = memoryview(data)[HEADER_SIZE : len(data) - FOOTER_SIZE]
    computed = crc32c(body)
    if computed != footer.crc:
        raise CorruptObject(f"checksum of the body is {computed:#010x}, the footer says {footer.crc:#010x}")
    parsed = ParsedSegment(data, header, footer, array("q"), array("q"), array("I"), array("I"), array("q"))
    description = _Description(header.base_offset)
    for position, batch in walk(body):
        if check_batches:
            verify_crc(body, position, batch)
        description.add(batch)
        parsed.offsets.append(batch.base_offset)
        parsed.next_offsets.append(batch.next_offset)
        parsed.positions.append(HEADER_SIZE + position)
        parsed.ends.append(HEADER_SIZE + position + batch.size)
        parsed.max_timestamps.append(batch.max_timestamp)
    description.end(footer.last_offset + 1)
    entry = description.entry
    if not body or entry.records + entry.control_records != header.message_count:
        raise CorruptObject(
            f"{len(body)} bytes with {entry.records + entry.control_records} records, the header says "
            f"{header.message_count}"
        )
    entry.epoch, entry.created_ms, entry.size, entry.crc = header.epoch, header.created_ms, len(data), footer.crc
    return entry, parsed


def batches_of(piece: Buffer, index: RewrittenIndex, first: int, end: int) -> list[memoryview]:
    """Return the batches in the bytes of the index entries ``first`` to ``end``, verified. Raises CorruptData."""
    index.verify(piece, first, end)
    view = memoryview(piece)
    return [view[position : position + header.size] for position, header in walk(piece)]
