"""Zigzag varints, as in Protocol Buffers' sint64: Kafka's record fields (``ByteUtils.readVarlong``)."""

from kafscale.records.errors import CorruptBatch

_LAST_SHIFT = 63
_MAX_RAW = (1 << 64) - 1


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return the number at ``pos`` and the position after it.

    Raises IndexError if ``data`` ends within it (decoders translate that once per record), and CorruptBatch if it has
    more than 64 bits.
    """
    byte = data[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    raw = byte & 0x7F
    byte = data[pos + 1]
    pos += 2
    raw |= (byte & 0x7F) << 7
    shift = 14
    while byte >= 0x80:
        if shift > _LAST_SHIFT:
            raise CorruptBatch("a varint is longer than 64 bits")
        byte = data[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    if raw > _MAX_RAW:
        raise CorruptBatch("a varint is longer than 64 bits")
    return (raw >> 1) ^ -(raw & 1), pos


def append_varint(out: bytearray, value: int) -> None:
    """Append ``value`` (signed, 64 bits) to ``out``."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)
