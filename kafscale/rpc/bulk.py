"""Messages with one large field, which is copied once when it is encoded. Protobuf would copy it four times."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from kafscale.records.checksum import Buffer

A = TypeVar("A", bound=Message)
_LEN = 2  # the wire type of bytes, https://protobuf.dev/programming-guides/encoding/


@dataclass(frozen=True, slots=True)
class Bulk(Generic[A]):
    """``message`` without its bytes field ``number``, and the ``data`` of that field, which must not change."""

    message: A
    number: int
    data: Buffer

    def encoded(self) -> bytes:
        """Return the encoded message. The field comes last, because protobuf accepts fields in any order."""
        head = self.message.SerializeToString()
        return b"".join((head, _varint(self.number << 3 | _LEN), _varint(len(self.data)), self.data))

    def whole(self) -> A:
        """Return the message including the field."""
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
