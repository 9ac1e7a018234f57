"""Bytes of records on a terminal: readable, limited and harmless."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale_tools.cli.present import quoted, table, time_text


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, "null"),
        (b"", '""'),
        (b"null", '"null"'),
        ("grüße 世界".encode(), '"grüße 世界"'),
        (b'a"b\\c', r'"a\"b\\c"'),
        (b"a\tb\r\n", r'"a\tb\r\n"'),
        (b"\x1b[2J\x00\x7f", r'"\x1b[2J\x00\x7f"'),
        (b"\xff\xfe\xc3", r'"\xff\xfe\xc3"'),
        ("\u202eevil".encode(), r'"\u202eevil"'),
        ("\U000e0001".encode(), r'"\U000e0001"'),
    ],
)
def test_bytes_are_printed_as_quoted_text_without_control_characters(data: bytes | None, shown: str) -> None:
    assert quoted(data, 40) == shown


def test_long_bytes_are_shortened_and_their_size_is_printed() -> None:
    assert quoted(b"x" * 10, 10) == '"xxxxxxxxxx"'
    assert quoted(b"x" * 1234, 10) == '"xxxxxxxxxx"... (1,234 bytes)'
    assert quoted(b"\x00" * 3, 10) == r'"\x00\x00"... (3 bytes)'
    assert quoted("世".encode() * 11, 10) == f'"{"世" * 10}"... (33 bytes)'
    assert quoted("😀".encode() * 10, 10) == f'"{"😀" * 10}"'


@given(data=st.binary(max_size=60), width=st.integers(8, 40))
def test_bytes_never_reach_the_terminal_unescaped_or_unlimited(data: bytes, width: int) -> None:
    shown = quoted(data, width)

    assert shown.isprintable()
    shown.encode()
    assert len(shown) <= width + len('""... (60 bytes)')
    assert ("..." in shown.rpartition('"')[2]) == (len(quoted(data, 10_000)) > width + 2)


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [
        (-1, "-"),
        (0, "1970-01-01 00:00:00.000Z"),
        (1_700_000_000_007, "2023-11-14 22:13:20.007Z"),
        (-1_000, "1969-12-31 23:59:59.000Z"),
        (2**63 - 1, str(2**63 - 1)),
        (-(2**63), str(-(2**63))),
    ],
)
def test_times_are_printed_in_utc_with_milliseconds(timestamp: int, shown: str) -> None:
    assert time_text(timestamp) == shown


def test_columns_are_aligned() -> None:
    lines = list(table(("n", "name"), [("1", "a"), ("100", "bcd")], left=("name",)))

    assert lines == ["    n  name", "    1  a", "  100  bcd"]
    assert list(table(("n", "name"), [])) == ["  n  name"]
