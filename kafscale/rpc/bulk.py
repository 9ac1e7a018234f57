"""A message with one large field, which is copied once on its way to the wire instead of four times by protobuf."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from kafscale.records.checksum import Buffer

A = TypeVar("A", bound=Message)
_LEN = 2  # the wire type of bytes, https://protobuf.dev/programming-guides/encoding/


@dataclass(frozen=True, slots=True)
class Bulk(Generic[A]):
    """``message`` without its bytes field ``number``, and ``data`` for it, which stays as it is until it is sent."""

    message: A
    number: int
    data: Buffer

    def encoded(self) -> bytes:
        """As on the wire, the field last: protobuf reads fields in any order."""
        head = self.message.SerializeToString()
        return b"".join((head, _varint(self.number << 3 | _LEN), _varint(len(self.data)), self.data))

    def whole(self) -> A:
        """The message with the field in it."""
        whole = type(self.message)()
        whole.ParseFromString(self.encoded())
        return whole


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
