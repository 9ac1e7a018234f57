"""The fixed parts of a segment file: its 32-byte header and its 16-byte footer (storage-format, "Segment file format").

All integers are big-endian. The body between them is a chain of Kafka record batches of magic 2, byte for byte as
Kafka clients send and fetch them.
"""

import struct
from dataclasses import dataclass

from kafscale.errors import CorruptData
from kafscale.records.checksum import Buffer

SEGMENT_MAGIC = b"KAFS"
FOOTER_MAGIC = b"END!"
SEGMENT_VERSION = 1
HEADER_SIZE = 32
FOOTER_SIZE = 16
MAX_SEGMENT_SIZE = 2**32 - 1
"""An index holds file positions in 4 bytes."""
MAX_OFFSET = 2**63 - 1

# magic, version, flags, base offset, message count, created, epoch (the spec's Reserved; 0 where KafScale 1 wrote)
_HEADER = struct.Struct(">4sHHqIqi")
# CRC-32C of the body, last offset, magic
_FOOTER = struct.Struct(">Iq4s")


class CorruptSegment(CorruptData):
    """Bytes that are not a segment, or a segment that is inconsistent."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """Bytes 0 to 31.

    ``flags`` (low three bits: the Kafka id of the codec that KafScale itself applied) and ``created_ms`` (ms since
    1970) are for information only: no checksum covers them and nothing may depend on them. The other fields are
    verified by the body. ``epoch`` is the owner's; 0 means imported from KafScale 1.
    """

    flags: int
    base_offset: int
    message_count: int
    created_ms: int
    epoch: int

    def encode(self) -> bytes:
        return _HEADER.pack(
            SEGMENT_MAGIC,
            SEGMENT_VERSION,
            self.flags,
            self.base_offset,
            self.message_count,
            self.created_ms,
            self.epoch,
        )

    @staticmethod
    def parse(data: Buffer, *, may_be_empty: bool = False) -> "SegmentHeader":
        """Return the header at the start of ``data``, or raise CorruptSegment. The body is not checked.

        ``may_be_empty``: no messages are no fault.
        """
        if len(data) < HEADER_SIZE:
            raise CorruptSegment(f"a segment header has {HEADER_SIZE} bytes, but there are only {len(data)}")
        magic, version, flags, base_offset, message_count, created_ms, epoch = _HEADER.unpack_from(data)
        if magic != SEGMENT_MAGIC:
            raise CorruptSegment(f"not a segment: it begins with {magic!r}, not {SEGMENT_MAGIC!r}")
        if version != SEGMENT_VERSION:
            raise CorruptSegment(f"segment version {version}, expected {SEGMENT_VERSION}")
        if base_offset < 0 or (message_count == 0 and not may_be_empty) or epoch < 0:
            raise CorruptSegment(
                f"header out of range: base offset {base_offset}, {message_count} messages, epoch {epoch}"
            )
        return SegmentHeader(flags, base_offset, message_count, created_ms, epoch)


@dataclass(frozen=True, slots=True)
class SegmentFooter:
    """The last 16 bytes: CRC-32C of the body and the offset of the last message."""

    crc: int
    last_offset: int

    def encode(self) -> bytes:
        return _FOOTER.pack(self.crc, self.last_offset, FOOTER_MAGIC)

    @staticmethod
    def parse(data: Buffer) -> "SegmentFooter":
        """Return the footer at the end of ``data``, or raise CorruptSegment. The checksum is not verified."""
        if len(data) < FOOTER_SIZE:
            raise CorruptSegment(f"a segment footer has {FOOTER_SIZE} bytes, but there are only {len(data)}")
        crc, last_offset, magic = _FOOTER.unpack_from(data, len(data) - FOOTER_SIZE)
        if magic != FOOTER_MAGIC:
            raise CorruptSegment(f"truncated or damaged: it ends with {magic!r}, not {FOOTER_MAGIC!r}")
        return SegmentFooter(crc, last_offset)
