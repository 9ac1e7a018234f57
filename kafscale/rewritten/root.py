"""Roots: which objects are the part of a partition's log that was rewritten (``protos/kafscale/v1/rewritten.proto``).

The entries of a root tile its range, from its start up to `through`. So the root says which offsets have no record.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from google.protobuf.message import DecodeError

from kafscale.errors import CorruptData
from kafscale.records.checksum import crc32c
from kafscale.v1.metadata_pb2 import EpochHistory
from kafscale.v1.rewritten_pb2 import CompactionPass, RewrittenEntry, RewrittenRoot

FORMAT = 1
MAX_ENTRIES = 65_536
_CRC_FIELD_SIZE = 5
_ID_BYTES = 16


class CorruptRoot(CorruptData):
    """Bytes that are not a root, or a root that is inconsistent."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The part of the log from ``start`` to ``end``. ``found`` describes its object; None if no record is left."""

    start: int
    end: int
    found: RewrittenEntry | None


@dataclass(frozen=True, slots=True)
class Root:
    """A parsed root. ``epochs``: (epoch, first offset) pairs up to `through`, ascending."""

    topic_id: bytes
    number: int
    entries: Sequence[Entry]
    epochs: Sequence[EpochHistory.Entry]
    first_dirty: int = 0
    compaction: CompactionPass | None = None
    obsolete: Sequence[str] = ()

    @property
    def start(self) -> int:
        return self.entries[0].start

    @property
    def through(self) -> int:
        """Where the segments follow that are not rewritten."""
        return self.entries[-1].end


def build_root(root: Root) -> bytes:
    """Return the object. Raises CorruptRoot if it would be inconsistent."""
    message = RewrittenRoot(
        format=FORMAT,
        topic_id=root.topic_id,
        number=root.number,
        start=root.start,
        epochs=root.epochs,
        first_dirty=root.first_dirty,
        obsolete=root.obsolete,
    )
    if root.compaction is not None:
        message.compaction.CopyFrom(root.compaction)
    for entry in root.entries:
        stored = message.entries.add()
        if entry.found is None:
            stored.next_offset = entry.end
            continue
        if entry.found.next_offset != entry.end:
            raise CorruptRoot(f"the object of the entry up to {entry.end} ends at {entry.found.next_offset}")
        stored.CopyFrom(entry.found)
    fault = _fault(message)
    if fault:
        raise CorruptRoot(fault)
    body = message.SerializeToString(deterministic=True)
    return body + RewrittenRoot(crc=crc32c(body)).SerializeToString()


def parse_root(data: bytes) -> Root:
    """Return the content of a stored root, after verifying its checksum and entries. Raises CorruptRoot."""
    try:
        message = RewrittenRoot.FromString(data)
    except DecodeError as error:
        raise CorruptRoot(f"not a root: {error}") from error
    if message.format != FORMAT:
        raise CorruptRoot(f"root of format {message.format}, expected {FORMAT}")
    computed = crc32c(memoryview(data)[:-_CRC_FIELD_SIZE])
    if not message.HasField("crc") or computed != message.crc:
        raise CorruptRoot(f"root has checksum {message.crc:#010x}, computed {computed:#010x}")
    fault = _fault(message)
    if fault:
        raise CorruptRoot(fault)
    entries, start = [], message.start
    for stored in message.entries:
        entries.append(Entry(start, stored.next_offset, stored if stored.epoch else None))
        start = stored.next_offset
    return Root(
        message.topic_id,
        message.number,
        entries,
        list(message.epochs),
        message.first_dirty,
        message.compaction if message.HasField("compaction") else None,
        tuple(message.obsolete),
    )


def stored_crc(data: bytes) -> int:
    """Return the checksum at the end of a root, to which a partition's state refers."""
    return int.from_bytes(data[-4:], "little")


def _fault(root: RewrittenRoot) -> str | None:
    """Return what is inconsistent, or None."""
    if len(root.topic_id) != _ID_BYTES or not root.number:
        return f"topic id of {len(root.topic_id)} bytes, number {root.number}"
    if not 1 <= len(root.entries) <= MAX_ENTRIES:
        return f"{len(root.entries)} entries"
    start = root.start
    for number, entry in enumerate(root.entries):
        if not 0 <= start < entry.next_offset:
            return f"an entry from {start} to {entry.next_offset}"
        # The log may start within its first object.
        trimmed = number == 0 and 0 <= entry.base_offset < start
        if entry.epoch and entry.base_offset != start and not trimmed:
            return f"the object of the entry at {start} begins at {entry.base_offset}"
        if bool(entry.epoch) != bool(entry.attempt and entry.size):
            return f"the entry at {start} describes an object with {entry.size} bytes, attempt {entry.attempt}"
        start = entry.next_offset
    epochs = [(one.epoch, one.first_offset) for one in root.epochs]
    ascend = all(one[0] < next_[0] and one[1] < next_[1] for one, next_ in pairwise(epochs))
    if not epochs or not ascend or epochs[0][1] > root.start or epochs[-1][1] >= start:
        return f"epochs {epochs} of a log from {root.start} to {start}"
    if not 0 <= root.first_dirty <= start:
        return f"the first dirty offset {root.first_dirty} of a log up to {start}"
    if root.HasField("compaction"):
        reached, end = root.compaction.next_offset, root.compaction.end
        if not (root.start < reached <= start and root.first_dirty < end and reached < end):
            return f"a pass at {reached} up to {end} of a log up to {start}, dirty from {root.first_dirty}"
    return None
