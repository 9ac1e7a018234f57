"""Corrects the header checksum of LZ4 frames in magic-0 messages, which Kafka once computed wrongly.

Clients included the frame's magic number in the hash of the descriptor (KAFKA-3160), so standard decoders reject such
frames. Format: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md and xxHash's own description of XXH32.
"""

from kafscale.records.errors import CorruptBatch

_DESCRIPTOR_AT = 4  # after the magic number
_FLAGS_AND_BLOCK_SIZE = 2
_CONTENT_SIZE_BIT, _CONTENT_SIZE_BYTES = 0x08, 8
_DICTIONARY_BIT, _DICTIONARY_BYTES = 0x01, 4

_PRIME1 = 2654435761
_PRIME2 = 2246822519
_PRIME3 = 3266489917
_PRIME4 = 668265263
_PRIME5 = 374761393
_MASK = 0xFFFFFFFF


def with_right_header_checksum(frame: bytes) -> bytes:
    """Return ``frame`` with the standard header checksum. Raises CorruptBatch if it ends within its header."""
    if len(frame) <= _DESCRIPTOR_AT:
        raise CorruptBatch("lz4: the frame ends within its header")
    flags = frame[_DESCRIPTOR_AT]
    size = _FLAGS_AND_BLOCK_SIZE
    size += _CONTENT_SIZE_BYTES if flags & _CONTENT_SIZE_BIT else 0
    size += _DICTIONARY_BYTES if flags & _DICTIONARY_BIT else 0
    end = _DESCRIPTOR_AT + size
    if len(frame) <= end:
        raise CorruptBatch("lz4: the frame ends within its header")
    checksum = (_xxh32_short(frame[_DESCRIPTOR_AT:end]) >> 8) & 0xFF
    return b"".join((frame[:end], bytes((checksum,)), frame[end + 1 :]))


def _xxh32_short(data: bytes) -> int:
    """Return XXH32 with seed 0 of fewer than 16 bytes, for which the algorithm skips its four-lane loop."""
    whole = len(data) // 4 * 4
    acc = _PRIME5 + len(data)
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little")
        acc = _rotate(acc + word * _PRIME3, 17) * _PRIME4
    for byte in data[whole:]:
        acc = _rotate(acc + byte * _PRIME5, 11) * _PRIME1
    acc &= _MASK
    acc = (acc ^ acc >> 15) * _PRIME2 & _MASK
    acc = (acc ^ acc >> 13) * _PRIME3 & _MASK
    return acc ^ acc >> 16


def _rotate(number: int, bits: int) -> int:
    number &= _MASK
    return (number << bits | number >> (32 - bits)) & _MASK
