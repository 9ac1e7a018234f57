"""Output formats of records, with the placeholders of kcat's ``-f``."""

import re

import click

from kafscale.records.record import Record

_PIECES = re.compile(rb"%(.)|([^%]+)", re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_TOKENS = b"skoptThSK"


def unescaped(text: str) -> bytes:
    r"""Replace the escapes ``\n``, ``\r``, ``\t``, ``\0``, ``\\`` and ``\xHH``. Raises BadParameter for others."""
    out, position = bytearray(), 0
    for found in _ESCAPE.finditer(text):
        out += _bytes(text[position : found.start()])
        word, position = found[1], found.end()
        if len(word) == 3:
            out.append(int(word[1:], 16))
        elif word in _ESCAPES:
            out += _ESCAPES[word]
        else:
            raise click.BadParameter(f"{found[0]} is not one of \\n \\r \\t \\0 \\\\ \\xHH")
    return bytes(out) + _bytes(text[position:])


class Format:
    """The format of a record. ``null`` is written for a missing key or value."""

    def __init__(self, pieces: list[tuple[str, bytes]], null: bytes) -> None:
        self._pieces = pieces
        self._null = null

    @classmethod
    def parse(cls, text: str, null: bytes) -> "Format":
        """Parse a format. Raises BadParameter."""
        pieces: list[tuple[str, bytes]] = []
        data, position = unescaped(text), 0
        while position < len(data):
            found = _PIECES.match(data, position)
            if found is None:
                raise click.BadParameter("a % at the end; use %% for a percent sign")
            position = found.end()
            if found[2] is not None:
                pieces.append(("", found[2]))
            elif found[1] == b"%":
                pieces.append(("", b"%"))
            elif found[1] in _TOKENS:
                pieces.append((found[1].decode(), b""))
            else:
                raise click.BadParameter(f"%{found[1].decode('latin-1')} is not one of %s %k %o %p %t %T %h %S %K %%")
        return cls(pieces, null)

    def of(self, topic: str, partition: int, record: Record) -> bytes:
        return b"".join(literal or self._one(word, topic, partition, record) for word, literal in self._pieces)

    def _one(self, word: str, topic: str, partition: int, record: Record) -> bytes:
        match word:
            case "s" | "k":
                data = record.value if word == "s" else record.key
                return self._null if data is None else bytes(data)
            case "S" | "K":
                data = record.value if word == "S" else record.key
                return b"%d" % (-1 if data is None else len(data))
            case "o":
                return b"%d" % record.offset
            case "p":
                return b"%d" % partition
            case "T":
                return b"%d" % record.timestamp
            case "t":
                return topic.encode()
            case _:
                return b",".join(
                    _bytes(name) + b"=" + (self._null if value is None else bytes(value))
                    for name, value in record.headers
                )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
