"""Header blocks of HTTP/2 (RFC 7541), as a gRPC client needs them that lets its peer remember no headers."""

from collections.abc import Iterable

_INDEXED, _KEPT, _TABLE_SIZE = 0x80, 0x40, 0x20
_HUFFMAN = 0x80
_LONGEST_NUMBER = 5  # bytes
_LONG = 0x7F
_STATIC_ENTRIES = 61
# Of the static table only what a reply's status is taken from.
_STATUS = {8: "200", 9: "204", 10: "206", 11: "304", 12: "400", 13: "404", 14: "500"}
# Appendix B's symbols by the length of their codes, which count up; those that no text of a header has are left out.
_SYMBOLS = {
    5: "012aceiost",
    6: " %-./3456789=A_bdfghlmnpru",
    7: ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: "&*,;XZ",
    10: '!"()?',
    11: "'+|",
    12: "#>",
    13: "\0$@[]~",
    14: "^}",
    15: "<`{",
    19: "\\",
}


class BadHeaders(Exception):
    """What a peer sent is no header block, or one for a table that it was not given."""


def _codes() -> dict[tuple[int, int], str]:
    codes, code, before = {}, 0, 0
    for length, symbols in _SYMBOLS.items():
        code <<= length - before
        before = length
        for symbol in symbols:
            codes[length, code] = symbol
            code += 1
    return codes


_CODES = _codes()


def encoded(headers: Iterable[tuple[str, str]]) -> bytes:
    """Literals that are not to be kept."""
    return b"".join(b"\0" + _literal(name) + _literal(value) for name, value in headers)


def _literal(text: str) -> bytes:
    """RFC 7541, 5.1 and 5.2: its length, with a prefix of 7 bits, and the text as it is."""
    data = text.encode("ascii")
    if len(data) < _LONG:
        return bytes([len(data)]) + data
    size, rest = bytearray([_LONG]), len(data) - _LONG
    while rest >= 0x80:
        size.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*size, rest]) + data


def decoded(block: bytes) -> dict[str, str]:
    """Names and values, but for those whose name is one of the static table other than ``:status``."""
    return _Block(block).headers()


class _Block:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        while self._at < len(self._data):
            first = self._data[self._at]
            if first & _INDEXED:
                index = self._index(7)
                found[_name(index)] = _STATUS.get(index, "")
            elif first & _KEPT:
                self._field(found, 6)
            elif first & _TABLE_SIZE:
                self._number(5)
            else:
                self._field(found, 4)
        found.pop("", None)
        return found

    def _field(self, found: dict[str, str], bits: int) -> None:
        index = self._index(bits)
        name = _name(index) if index else self._text()
        found[name] = self._text()

    def _index(self, bits: int) -> int:
        index = self._number(bits)
        if index > _STATIC_ENTRIES:
            raise BadHeaders(f"header {index} of a table of {_STATIC_ENTRIES}")
        return index

    def _text(self) -> str:
        packed = self._byte(self._at) & _HUFFMAN
        size = self._number(7)
        data = self._data[self._at : self._at + size]
        self._at += size
        if len(data) < size:
            raise BadHeaders("a header block ends within a header")
        return _unpacked(data) if packed else data.decode("latin-1")

    def _number(self, bits: int) -> int:
        """RFC 7541, 5.1."""
        most = (1 << bits) - 1
        number = self._byte(self._at) & most
        self._at += 1
        if number < most:
            return number
        for place in range(_LONGEST_NUMBER):
            byte = self._byte(self._at)
            self._at += 1
            number += (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return number
        raise BadHeaders("a number of a header block does not end")

    def _byte(self, at: int) -> int:
        if at >= len(self._data):
            raise BadHeaders("a header block ends within a header")
        return self._data[at]


def _name(index: int) -> str:
    return ":status" if index in _STATUS else ""


def _unpacked(data: bytes) -> str:
    """RFC 7541, 5.2: the text ends with fewer than 8 bits that are all 1."""
    text, length, code = [], 0, 0
    for bit in "".join(f"{byte:08b}" for byte in data):
        length, code = length + 1, code << 1 | (bit == "1")
        symbol = _CODES.get((length, code))
        if symbol is not None:
            text.append(symbol)
            length, code = 0, 0
    if length > 7 or code != (1 << length) - 1:
        raise BadHeaders("a header is coded in a way that gRPC has no use for")
    return "".join(text)
