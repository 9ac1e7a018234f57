"""Takes the large field out of a message without protobuf, which copies it when it parses and when it reads it."""

from google.protobuf.message import DecodeError

from kafscale.records.checksum import Buffer

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5  # wire types, https://protobuf.dev/programming-guides/encoding/
_FIXED_BYTES = {_I64: 8, _I32: 4}
_LONGEST_VARINT = 10


def taken_apart(message: Buffer, number: int) -> tuple[bytes, memoryview]:
    """Return the message without the bytes field ``number``, and the bytes of the field (empty if it is missing).

    If the field occurs twice, the last one counts, as in protobuf. Raises DecodeError.
    """
    view = memoryview(message)
    rest: list[memoryview] = []
    found = view[:0]
    kept = at = 0
    while at < len(message):
        start = at
        tag, at = _varint(view, at)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _varint(view, at)
        elif kind == _LEN:
            size, at = _varint(view, at)
            if tag >> 3 == number:
                rest.append(view[kept:start])
                found, kept = view[at : at + size], at + size
            at += size
        elif kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]
        else:
            raise DecodeError(f"wire type {kind}")
    if at > len(message):
        raise DecodeError("the message ends within a field")
    return b"".join([*rest, view[kept:]]), found


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    number = 0
    for place, byte in enumerate(message[at : at + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise DecodeError("a varint is too long")
