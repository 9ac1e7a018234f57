"""Formats bytes, times and tables for a terminal, with control characters escaped."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BYTE_ESCAPES = 0xDC00  # surrogateescape adds this to a byte that is not UTF-8
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(data: bytes | None, width: int) -> str:
    """Return ``data`` as quoted text, or null. Bytes that are not printable UTF-8 are escaped.

    The text has at most about ``width`` characters. If it is truncated, the full size in bytes follows.
    """
    if data is None:
        return "null"
    parts: list[str] = []
    used = 0
    # No character has more than four bytes, so a last character that the cut splits is never printed.
    for character in data[: (width + 1) * 4].decode("utf-8", "surrogateescape"):
        text = _escaped(character)
        used += len(text)
        if used > width:
            return f'"{"".join(parts)}"... ({len(data):,} bytes)'
        parts.append(text)
    return f'"{"".join(parts)}"'


def printable(text: str) -> str:
    """Return ``text`` with unprintable characters escaped."""
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def count(number: int, of: str) -> str:
    """Return a number with its noun, such as ``1 topic`` or ``2,000 topics``."""
    return f"{number:,} {of}{'' if number == 1 else 's'}"


def time_text(timestamp_ms: int) -> str:
    """Return a time in UTC with milliseconds, ``-`` for none (-1), or the number if it is out of range."""
    if timestamp_ms == -1:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def facts(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield aligned lines with a name and its value."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        yield f"  {name:<{width}}  {value}"


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[str] = (), indent: str = "  "
) -> Iterator[str]:
    """Yield the lines of a table, header first. Columns are right-aligned, except those named in ``left``."""
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
