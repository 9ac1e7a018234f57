"""The kcat commands that do what a page shows, quoted for a POSIX shell. They contain no login. No IO."""

import itertools
import shlex
from collections.abc import Callable, Sequence

from services.console.records.query import BEGINNING, NEWEST, OFFSET, TIME, Query
from services.console.requests import WrongRequest

_FORMAT = r"%t [%p] at offset %o, time %T, headers %h\nkey: %k\nvalue: %s\n---\n"
_PLAIN = frozenset(b' !#$&()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~"')
# Not as numbers, which some shells would read as a part of the format.
_QUOTED = {ord("%"): "%%", ord("\\"): "\\\\"}


def _shared(brokers: Sequence[str], protocol: str, topic: str) -> list[str]:
    security = [] if protocol == "PLAINTEXT" else ["-X", f"security.protocol={protocol}"]
    return ["-b", ",".join(brokers), *security, "-t", topic]


def consume(brokers: Sequence[str], protocol: str, topic: str, query: Query, *, follow: bool) -> str:
    """Return the command that reads from where ``query`` starts, without its filter."""
    words = ["kcat", "-C", *_shared(brokers, protocol, topic)]
    if query.partition is not None:
        words += ["-p", str(query.partition)]
    where = {BEGINNING: "beginning", NEWEST: f"-{query.number}", OFFSET: str(query.number), TIME: f"s@{query.number}"}
    words += ["-o", where.get(query.start, "end")]
    if not follow:
        words += ["-e", "-c", str(query.limit)]
    return shlex.join([*words, "-f", _FORMAT])


def produce(
    brokers: Sequence[str],
    protocol: str,
    topic: str,
    *,
    partition: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes]],
) -> str:
    """Return the command that writes a record. Raises WrongRequest if no kcat command does."""
    if (key is None or value is None) and b"" in (key, value):
        raise WrongRequest("kcat cannot write a record with a null and an empty part")
    words = ["kcat", "-P", *_shared(brokers, protocol, topic)]
    if partition is not None:
        words += ["-p", str(partition)]
    for name, content in headers:
        try:
            text = f"{name}={content.decode()}"
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text or "=" in name:
            raise WrongRequest("kcat cannot write this header") from None
        words += ["-H", text]
    data = value or b""
    if key is not None:
        given = key
        separator = _delimiter("|", lambda mark: (given + mark + data).find(mark) == len(given))
        words += ["-K", separator.decode()]
        data = key + separator + data
    if key is None or value is None:
        words.append("-Z")
    end = _delimiter("~", lambda mark: (data + mark).find(mark) == len(data))
    words += ["-D", end.decode()]
    return f"printf '{_printf(data + end)}' | {shlex.join(words)}"


def _delimiter(mark: str, separates: Callable[[bytes], bool]) -> bytes:
    """Return text between two marks that separates the parts, which contain only so many such texts."""
    return next(text for number in itertools.count() if separates(text := f"{mark}{number}{mark}".encode()))


def _printf(data: bytes) -> str:
    return "".join(_QUOTED.get(byte) or (chr(byte) if byte in _PLAIN else f"\\{byte:03o}") for byte in data)
