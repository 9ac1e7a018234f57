"""The objects of an intake (storage-format, "Intake objects"). All integers are big-endian.

An object has a header of 40 bytes, the batches of all entries, a table (``IntakeTable``) and a footer of 12 bytes. A
seal is a header and a footer alone. It ends the chain of a run: neither the run nor anyone else adds objects there.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from google.protobuf.message import DecodeError

from kafscale.errors import CorruptData
from kafscale.records.checksum import Buffer, crc32c
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.intake_pb2 import IntakeEntry, IntakeTable
from kafscale.v1.metadata_pb2 import SinkProgress

MAGIC = b"KFSI"
VERSION = 1
HEADER_SIZE = 40
FOOTER_SIZE = 12
FOOTER_MAGIC = b"END!"

# magic, version, kind, number, checkpoint, created in ms, position of the table
_HEADER = struct.Struct(">4sHHqqqQ")
# CRC-32C of header and table, size of the table, magic
_FOOTER = struct.Struct(">II4s")


class CorruptIntake(CorruptData):
    """Bytes that are not an intake object, or an object that is inconsistent."""


class Kind(IntEnum):
    """What an object is: records, or the end of the chain."""

    RECORDS = 1
    SEAL = 2


@dataclass(frozen=True, slots=True)
class IntakeHeader:
    """The first 40 bytes.

    ``number``: the object's in its chain, from 1. ``checkpoint``: the lowest number whose records are needed, because
    they are not in segments yet; at most ``number``, and 0 in a seal. ``created_ms``: ms since 1970.
    """

    kind: Kind
    number: int
    checkpoint: int
    created_ms: int
    table_position: int

    def encode(self) -> bytes:
        return _HEADER.pack(
            MAGIC, VERSION, self.kind, self.number, self.checkpoint, self.created_ms, self.table_position
        )

    @staticmethod
    def parse(data: Buffer) -> "IntakeHeader":
        """Return the header at the start of ``data``. Raises CorruptIntake. No checksum is verified."""
        if len(data) < HEADER_SIZE:
            raise CorruptIntake(f"an intake header has {HEADER_SIZE} bytes, but there are only {len(data)}")
        magic, version, kind, number, checkpoint, created_ms, position = _HEADER.unpack_from(data)
        if magic != MAGIC:
            raise CorruptIntake(f"not an intake object: it begins with {magic!r}, not {MAGIC!r}")
        if version != VERSION or kind not in set(Kind):
            raise CorruptIntake(f"intake object of version {version} and kind {kind}, expected version {VERSION}")
        lowest = 1 if kind == Kind.RECORDS else 0
        if number < 1 or not lowest <= checkpoint <= (number if lowest else 0) or position < HEADER_SIZE:
            raise CorruptIntake(f"header out of range: number {number}, checkpoint {checkpoint}, table at {position}")
        return IntakeHeader(Kind(kind), number, checkpoint, created_ms, position)


@dataclass(frozen=True, slots=True)
class Entry:
    """Consecutive batches of one partition.

    ``batches`` are buffers that, one after another, are the batches with their offsets and epoch. ``sinks`` has the
    progress of sink epochs in the log with these batches.
    """

    partition: PartitionRef
    epoch: int
    base_offset: int
    next_offset: int
    batches: Sequence[Buffer]
    sinks: Sequence[SinkProgress] = ()

    @property
    def size(self) -> int:
        """The size of the batches in bytes."""
        return sum(map(len, self.batches))


@dataclass(frozen=True, slots=True)
class IntakeObject:
    """A parsed object. A seal has no entries."""

    header: IntakeHeader
    run_id: str
    entries: list[Entry]


def encode(
    namespace: str, run_id: str, *, number: int, checkpoint: int, created_ms: int, entries: Iterable[Entry]
) -> list[Buffer]:
    """Return the object ``number`` of the run's chain in pieces, without copying batches. There must be an entry."""
    table = IntakeTable(namespace=namespace, run_id=run_id)
    pieces: list[Buffer] = []
    position = HEADER_SIZE
    for entry in entries:
        size = crc = 0
        for piece in entry.batches:
            crc = crc32c(piece, crc)
            size += len(piece)
        pieces += entry.batches
        table.entries.add(
            partition=entry.partition,
            epoch=entry.epoch,
            base_offset=entry.base_offset,
            next_offset=entry.next_offset,
            position=position,
            size=size,
            crc=crc,
            sinks=entry.sinks,
        )
        position += size
    header = IntakeHeader(Kind.RECORDS, number, checkpoint, created_ms, position).encode()
    return _whole(header, pieces, table)


def encode_seal(namespace: str, run_id: str, *, number: int, created_ms: int) -> bytes:
    """Return a seal at ``number`` of the run's chain."""
    header = IntakeHeader(Kind.SEAL, number, 0, created_ms, HEADER_SIZE).encode()
    return b"".join(_whole(header, [], IntakeTable(namespace=namespace, run_id=run_id)))


def parse(data: Buffer) -> IntakeObject:
    """Return the object after verifying all checksums. Raises CorruptIntake. Batches are views of ``data``."""
    header = IntakeHeader.parse(data)
    end = len(data) - FOOTER_SIZE
    if end < header.table_position:
        raise CorruptIntake(f"{len(data)} bytes, but the table begins at {header.table_position}")
    crc, size, magic = _FOOTER.unpack_from(data, end)
    if magic != FOOTER_MAGIC:
        raise CorruptIntake(f"truncated or damaged: it ends with {magic!r}, not {FOOTER_MAGIC!r}")
    if header.table_position + size != end:
        raise CorruptIntake(f"a table of {size} bytes at {header.table_position} does not end at {end}")
    view = memoryview(data)
    body = view[header.table_position : end]
    computed = crc32c(body, crc32c(view[:HEADER_SIZE]))
    if computed != crc:
        raise CorruptIntake(f"checksum of header and table is {computed:#010x}, the footer says {crc:#010x}")
    try:
        table = IntakeTable.FromString(bytes(body))
    except DecodeError as error:
        raise CorruptIntake(f"not a table of an intake object: {error}") from error
    return IntakeObject(header, table.run_id, _entries(header, table, view))


def _entries(header: IntakeHeader, table: IntakeTable, data: memoryview) -> list[Entry]:
    found, position = [], HEADER_SIZE
    for stored in table.entries:
        batches = data[stored.position : stored.position + stored.size]
        if stored.position != position or not stored.size:
            raise CorruptIntake(f"an entry of {stored.size} bytes at {stored.position}, expected at {position}")
        if not 0 <= stored.base_offset < stored.next_offset or stored.epoch < 0:
            raise CorruptIntake(
                f"an entry with epoch {stored.epoch} and offsets {stored.base_offset} to {stored.next_offset - 1}"
            )
        computed = crc32c(batches)
        if computed != stored.crc:
            raise CorruptIntake(f"checksum of {_name(stored)} is {computed:#010x}, the table says {stored.crc:#010x}")
        position += stored.size
        found.append(
            Entry(stored.partition, stored.epoch, stored.base_offset, stored.next_offset, (batches,), stored.sinks)
        )
    if position != header.table_position:
        raise CorruptIntake(f"the entries end at {position}, the table begins at {header.table_position}")
    return found


def _whole(header: bytes, pieces: list[Buffer], table: IntakeTable) -> list[Buffer]:
    body = table.SerializeToString(deterministic=True)
    footer = _FOOTER.pack(crc32c(body, crc32c(header)), len(body), FOOTER_MAGIC)
    return [header, *pieces, body, footer]


def _name(entry: IntakeEntry) -> str:
    return f"{entry.partition.topic}-{entry.partition.partition} at offset {entry.base_offset}"
