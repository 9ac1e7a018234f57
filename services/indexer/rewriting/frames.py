"""The frames between the indexer and the process that rewrites: a kind, a length, and that many bytes.

The indexer sends BEGIN and REQUEST. Then the process sends READ, or ENTRY, INDEX and OBJECT to have an object stored,
and each is answered with an OBJECT; or STEP, which has no answer. It ends with END or FAILED.
"""

import struct
from enum import IntEnum

from kafscale.errors import CorruptData
from kafscale.segment.format import MAX_SEGMENT_SIZE

_HEADER = struct.Struct(">BQ")
HEADER_SIZE = _HEADER.size
BEGIN = struct.Struct(">q32s")
"""The time of creation in ms since 1970, and the secret of the keys."""
MOST_BYTES = 256 << 20
"""The largest frame that is not an object. gRPC's limit for the request is lower."""


class Kind(IntEnum):
    """What a frame has, and as which message."""

    BEGIN = 1
    REQUEST = 2  # RewriteRequest
    READ = 3  # RewriteInput
    ENTRY = 4  # RewrittenEntry
    INDEX = 5
    OBJECT = 6
    STEP = 7  # RewrittenStep
    FAILED = 8  # RewriteEvent with status and detail
    END = 9


def frame_header(kind: Kind, size: int) -> bytes:
    """Return the bytes before those of a frame. Raises CorruptData if it is too large."""
    _check(kind, size)
    return _HEADER.pack(kind, size)


def parse_frame_header(data: bytes) -> tuple[Kind, int]:
    """Return kind and size of a frame. Raises CorruptData if it is none, or too large."""
    number, size = _HEADER.unpack(data)
    try:
        kind = Kind(number)
    except ValueError:
        raise CorruptData(f"a frame of kind {number}") from None
    _check(kind, size)
    return kind, size


def _check(kind: Kind, size: int) -> None:
    if size > (MAX_SEGMENT_SIZE if kind == Kind.OBJECT else MOST_BYTES):
        raise CorruptData(f"a frame of kind {kind.name} with {size} bytes")
