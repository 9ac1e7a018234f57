"""Kafka's wire primitives for hand-written codecs. Readers take a buffer and a position, and return value and position.

Formats: https://kafka.apache.org/protocol#protocol_types. Bounds are checked where slicing would hide an overrun.
`DECODE_ERRORS`, which unpacking raises past the end of a buffer, are translated once, by the top-level decoder.
"""

import struct

from kafscale.errors import CorruptData

Buffer = bytes | bytearray | memoryview

DECODE_ERRORS = (struct.error, IndexError, UnicodeDecodeError)

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")

_MAX_VARINT_SHIFT = 28
_MOST_ITEMS = 100_000
"""In one list: as many as a topic may have partitions. Items without content would take seconds to decode."""
_MOST_TAGS = 32


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most five bytes."""
    value = buffer[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > _MAX_VARINT_SHIFT:
            raise CorruptData("a varint has more than five bytes")


def read_string(buffer: Buffer, position: int, flexible: bool) -> tuple[str, int]:
    """Read a string that must not be null."""
    value, position = read_nullable_string(buffer, position, flexible)
    if value is None:
        raise CorruptData("a string is null")
    return value, position


def read_nullable_string(buffer: Buffer, position: int, flexible: bool) -> tuple[str | None, int]:
    if flexible:
        length, position = read_uvarint(buffer, position)
        length -= 1
    else:
        (length,) = INT16.unpack_from(buffer, position)
        position += 2
    if length < 0:
        return None, position
    end = position + length
    if end > len(buffer):
        raise CorruptData("a string extends past the end of its request")
    return str(buffer[position:end], "utf-8"), end


def read_array_length(buffer: Buffer, position: int, flexible: bool) -> tuple[int, int]:
    """Read the length of an array that must not be null."""
    if flexible:
        length, position = read_uvarint(buffer, position)
        length -= 1
    else:
        (length,) = INT32.unpack_from(buffer, position)
        position += 4
    if length < 0:
        raise CorruptData("an array is null")
    check_length(length, len(buffer) - position)
    return length, position


def check_length(items: int, left: int) -> None:
    """Raise CorruptData if an array has more items than there are bytes left, or than any request needs."""
    if items > left:
        raise CorruptData("an array is longer than its request")
    if items > _MOST_ITEMS:
        raise CorruptData(f"an array of {items} items, more than {_MOST_ITEMS}")


def skip_tags(buffer: Buffer, position: int) -> int:
    """Return the position after a tagged-field section, whatever its content."""
    count = buffer[position]
    if count == 0:
        return position + 1
    for _, _, end in tags(buffer, position):
        position = end
    return position


def tags(buffer: Buffer, position: int) -> list[tuple[int, int, int]]:
    """Return (tag, start, end of its value) of each field in a non-empty section, which ends with the last value."""
    count, position = read_uvarint(buffer, position)
    if count > _MOST_TAGS:
        raise CorruptData(f"{count} tagged fields, more than {_MOST_TAGS}")
    found = []
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        if position + size > len(buffer):
            raise CorruptData("a tagged field extends past the end of its request")
        found.append((tag, position, position + size))
        position += size
    return found


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: str, flexible: bool) -> bytes:
    raw = value.encode()
    return (uvarint(len(raw) + 1) if flexible else INT16.pack(len(raw))) + raw


def nullable_string(value: str | None, flexible: bool) -> bytes:
    if value is None:
        return b"\0" if flexible else b"\xff\xff"
    return string(value, flexible)


def array_length(length: int, flexible: bool) -> bytes:
    return uvarint(length + 1) if flexible else INT32.pack(length)
