"""The kcat commands: a shell passes exactly what is meant, whatever the record contains."""

import subprocess
from pathlib import Path

import pytest

from services.console.records import kcat
from services.console.records.query import parse_query
from services.console.requests import WrongRequest

HOSTILE = b"'\"; touch gone; $(touch gone) `touch gone` \\n %s %d \x00\n|0|~0~|\xff"


def run(command: str, tmp_path: Path) -> tuple[list[str], bytes]:
    """Run a command whose kcat shows its arguments and input. Return them."""
    fake = tmp_path / "kcat"
    fake.write_text('#!/bin/sh\nfor each in "$@"; do printf "%s\\0" "$each"; done\nprintf "INPUT\\0"; exec cat\n')
    fake.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, check=True
    )
    assert [each.name for each in tmp_path.iterdir()] == ["kcat"]
    arguments, _, given = done.stdout.partition(b"INPUT\0")
    return [each.decode() for each in arguments.split(b"\0")[:-1]], given


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, HOSTILE), (None, b"x~0"), (b"", b""), (b"a|0", b"%d\\"), (b"|", HOSTILE), (HOSTILE, HOSTILE)],
)
def test_a_record_reaches_kcat_as_it_is(tmp_path: Path, key: bytes | None, value: bytes) -> None:
    headers = [("h", b"it's $HOME")]
    command = kcat.produce(["a:1", "b:2"], "SASL_SSL", "t", partition=3, key=key, value=value, headers=headers)
    arguments, given = run(command, tmp_path)
    shared = ["-P", "-b", "a:1,b:2", "-X", "security.protocol=SASL_SSL", "-t", "t", "-p", "3", "-H", "h=it's $HOME"]
    assert arguments[: len(shared)] == shared
    end = arguments[arguments.index("-D") + 1].encode()
    record, _, rest = given.partition(end)
    assert rest == b""
    if key is None:
        assert ("-Z" in arguments, record) == (True, value)
    else:
        separator = arguments[arguments.index("-K") + 1].encode()
        assert tuple(record.split(separator, 1)) == (key, value)


def test_what_kcat_cannot_write_is_refused() -> None:
    for key, value, headers in (
        (None, b"", []),
        (b"", None, []),
        (b"k", b"v", [("h", b"\0")]),
        (b"k", b"v", [("=", b"")]),
    ):
        with pytest.raises(WrongRequest):
            kcat.produce(["a:1"], "PLAINTEXT", "t", partition=None, key=key, value=value, headers=headers)


def test_reading_begins_where_the_page_does(tmp_path: Path) -> None:
    query = parse_query({"start": "time", "time": "17", "partition": "2", "limit": "5"}, most=10, limit=10)
    arguments, _ = run(kcat.consume(["a:1"], "PLAINTEXT", "it's", query, follow=False) + " </dev/null", tmp_path)
    start = ["-C", "-b", "a:1", "-t", "it's", "-p", "2", "-o", "s@17", "-e", "-c", "5", "-f"]
    assert arguments[:-1] == start
