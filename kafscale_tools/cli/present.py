"""Bytes, times and columns as text for a terminal. Nothing that a record holds can move the cursor."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BYTE_ESCAPES = 0xDC00  # what surrogateescape adds to a byte that is not UTF-8
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(data: bytes | None, width: int) -> str:
    """``data`` as quoted text, or null; bytes that are no printable UTF-8 are escaped.

    At most about ``width`` characters; what is left out is told by the full size in bytes.
    """
    if data is None:
        return "null"
    shown: list[str] = []
    used = 0
    # No character has more than four bytes, so what the cut leaves of the last one is never shown.
    for character in data[: (width + 1) * 4].decode("utf-8", "surrogateescape"):
        text = _escaped(character)
        used += len(text)
        if used > width:
            return f'"{"".join(shown)}"... ({len(data):,} bytes)'
        shown.append(text)
    return f'"{"".join(shown)}"'


def printable(text: str) -> str:
    """``text`` with what cannot be shown escaped."""
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def count(number: int, of: str) -> str:
    """``1 topic``, ``2,000 topics``."""
    return f"{number:,} {of}{'' if number == 1 else 's'}"


def time_text(timestamp_ms: int) -> str:
    """UTC with milliseconds; ``-`` for none (-1), the bare number for what no calendar has."""
    if timestamp_ms == -1:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def facts(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Lines of a name and its value each."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        yield f"  {name:<{width}}  {value}"


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[str] = (), indent: str = "  "
) -> Iterator[str]:
    """Aligned lines, heads first; the columns named in ``left`` are set left, the others right."""
    widths = [max(len(head), *(len(row[i]) for row in rows), 0) for i, head in enumerate(heads)]
    for row in (heads, *rows):
        cells = (
            f"{cell:<{width}}" if head in left else f"{cell:>{width}}"
            for cell, head, width in zip(row, heads, widths, strict=True)
        )
        yield (indent + "  ".join(cells)).rstrip()


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if _BYTE_ESCAPES <= code <= _BYTE_ESCAPES + 0xFF:
        return f"\\x{code - _BYTE_ESCAPES:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
