"""Records of the files in which a local directory keeps many objects (storage-format, "Local directory")."""

import struct
from dataclasses import dataclass
from typing import BinaryIO

from kafscale.objects.interface import Body, pieces_of
from kafscale.records.checksum import crc32c

DELETED = 0
"""The stamp of a record that deletes its object."""

# CRC-32C of the file's number, of what follows and of the key; magic, size of the key, CRC-32C of the body, size of the
# body, and ns since 1970 or DELETED
_HEADER = struct.Struct(">I4sHIQQ")
_NUMBER = struct.Struct(">Q")
_CHECKED_FROM = _MAGIC_AT = 4
_MAGIC = b"KFSO"


@dataclass(frozen=True, slots=True)
class Record:
    """A record with its body at ``position``. ``key`` is None if its header is damaged, and the rest is not known."""

    key: str | None
    position: int
    size: int
    stamp: int
    is_damaged: bool

    @property
    def end(self) -> int:
        return self.position + self.size

    @property
    def is_last(self) -> bool:
        """Whether it ends a file that was used again."""
        return not (self.key or self.stamp or self.is_damaged)


def record_size(key: str, size: int) -> int:
    """Return the size of a record with a body of this ``size``."""
    return _HEADER.size + len(key.encode()) + size


def record_at(file: BinaryIO, start: int, end: int, number: int) -> Record | None:
    """Return the record of the file ``number`` at ``start``, or None if there is only a part of one before ``end``."""
    file.seek(start)
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    checksum, magic, key_size, body_checksum, size, stamp = _HEADER.unpack(header)
    encoded = file.read(key_size)
    position = start + _HEADER.size + key_size
    if magic == _MAGIC and position > end:
        return None
    if magic != _MAGIC or checksum != _checksum(header, encoded, number):
        return Record(None, start + 1, 0, 0, is_damaged=True)
    if position + size > end:
        return None
    return Record(encoded.decode(), position, size, stamp, is_damaged=crc32c(file.read(size)) != body_checksum)


def is_ended(file: BinaryIO, size: int, number: int) -> bool:
    """Whether the last record of the file ``number``, of this ``size``, says that it ends there."""
    end = record_head("", b"", 0, number)
    file.seek(max(0, size - len(end)))
    return file.read(len(end)) == end


def has_record(file: BinaryIO, position: int, number: int) -> bool:
    """Whether a record of the file ``number`` begins at ``position`` or later."""
    file.seek(position)
    data = file.read()
    found = data.find(_MAGIC, _MAGIC_AT)
    while found >= 0:
        header = data[found - _MAGIC_AT : found - _MAGIC_AT + _HEADER.size]
        if len(header) == _HEADER.size:
            checksum, _, key_size, *_ = _HEADER.unpack(header)
            encoded = data[found - _MAGIC_AT + _HEADER.size :][:key_size]
            if checksum == _checksum(header, encoded, number):
                return True
        found = data.find(_MAGIC, found + 1)
    return False


def _checksum(header: bytes, key: bytes, number: int) -> int:
    return crc32c(key, crc32c(header[_CHECKED_FROM:], crc32c(_NUMBER.pack(number))))


def record_head(key: str, body: Body, stamp: int, number: int) -> bytes:
    """Return the header and the key of a record (storage-format, "Local directory"), which precede the body.

    ``stamp``: ns since 1970, or DELETED; without a key, the size of the file before it was used again, or 0 at the
    end of such a file. ``number``: that of the file.
    """
    encoded = key.encode()
    checksum = 0
    for piece in pieces_of(body):
        checksum = crc32c(piece, checksum)
    fields = _MAGIC, len(encoded), checksum, len(body), stamp
    return _HEADER.pack(_checksum(_HEADER.pack(0, *fields), encoded, number), *fields) + encoded
