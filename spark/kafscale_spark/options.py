"""Declares the options of the source and sink; parsing, error messages and the reference derive from these tables.

Spark passes names in any case and values as text. An unknown option is an error, so that misspelled names are not
silently ignored.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from kafscale.errors import ConfigError

T = TypeVar("T")

_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?(b?)", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+)\s*(ms|s|min|m|h)", re.IGNORECASE)
_ENDPOINT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Parser(Generic[T]):
    """``read`` raises ValueError with a message for users; ``accepts`` describes the values in the reference."""

    accepts: str
    read: Callable[[str], T]


@dataclass(frozen=True, slots=True, eq=False)
class Option(Generic[T]):
    """One option. ``uses`` is where it applies, as in the reference: `batch`, `streaming` or `batch, streaming`.

    The value of a ``secret`` option is not shown in errors.
    """

    name: str
    parser: Parser[T]
    default: T
    doc: str
    uses: str
    default_text: str = ""
    secret: bool = False


class Options:
    """The values of a table's options, including defaults."""

    def __init__(self, values: Mapping[str, object], set_names: frozenset[str]) -> None:
        self._values = dict(values)
        self._set = set_names

    def __getitem__(self, option: Option[T]) -> T:
        return cast(T, self._values[option.name])

    def is_set(self, option: Option[Any]) -> bool:
        return option.name in self._set


def read_options(
    table: Iterable[Option[Any]], texts: Mapping[str, str], hints: Mapping[str, str] | None = None
) -> Options:
    """Parse the values of ``table``'s options. ``hints`` has messages for other names, by pattern in lower case.

    Raises ConfigError, which names the option, and the nearest known option for an unknown one.
    """
    options = {option.name.lower(): option for option in table}
    values: dict[str, object] = {option.name: option.default for option in options.values()}
    names = set()
    for key, text in texts.items():
        option = options.get(key.lower())
        if option is None:
            raise ConfigError(_unknown(key, options, hints or {}))
        try:
            values[option.name] = option.parser.read(text)
        except ValueError as error:
            shown = f"{option.name} (value not shown)" if option.secret else f"{option.name}={text!r}"
            raise ConfigError(f"option {shown}: {error}; expected {option.parser.accepts}") from None
        names.add(option.name)
    return Options(values, frozenset(names))


def _unknown(key: str, options: Mapping[str, Option[Any]], hints: Mapping[str, str]) -> str:
    hint = next((hint for name, hint in hints.items() if re.fullmatch(name, key.lower())), None)
    if hint is not None:
        return f"option {key!r}: {hint}"
    nearest = get_close_matches(key.lower(), options, n=1, cutoff=0.5)
    what = f"did you mean {options[nearest[0]].name!r}?" if nearest else f"known options are {_listed(options)}"
    return f"unknown option {key!r}: {what}"


def _listed(options: Mapping[str, Option[Any]]) -> str:
    return ", ".join(option.name for option in options.values())


def option_rows(table: Iterable[Option[Any]]) -> list[tuple[str, str, str, str, str]]:
    """Return the rows of the reference's table: option, default, accepted values, use, meaning."""
    return [
        (
            f"`{option.name}`",
            f"`{option.default_text}`" if option.default_text else "none",
            option.parser.accepts,
            option.uses,
            option.doc,
        )
        for option in table
    ]


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def integer(least: int, most: int = 2**63 - 1) -> Parser[int]:
    def read(text: str) -> int:
        value = int(text) if re.fullmatch(r"\s*[+-]?[0-9]+\s*", text) else None
        if value is None or not least <= value <= most:
            raise ValueError("not a whole number in this range")
        return value

    bounds = f"a whole number from {least}" + (f" to {most}" if most < 2**63 - 1 else "")
    return Parser(bounds, read)


def size(least: int, most: int) -> Parser[int]:
    def read(text: str) -> int:
        found = _SIZE.fullmatch(text.strip())
        value = int(found[1]) * _UNITS[found[2].lower() + "b" if found[2] else ""] if found else -1
        if not least <= value <= most:
            raise ValueError("not a size in this range")
        return value

    return Parser(f"a size from {least} to {most} bytes, such as `64MB`", read)


def duration(least_seconds: float, most_seconds: float) -> Parser[float]:
    def read(text: str) -> float:
        found = _DURATION.fullmatch(text.strip())
        value = int(found[1]) * _SECONDS[found[2].lower()] if found else -1.0
        if not least_seconds <= value <= most_seconds:
            raise ValueError("not a time in this range")
        return value

    return Parser(f"a time from {least_seconds:g} s to {most_seconds:g} s, such as `500ms`, `30s`, `15m`", read)


def choice(*values: str) -> Parser[str]:
    def read(text: str) -> str:
        if text.strip().lower() not in values:
            raise ValueError("not an accepted value")
        return text.strip().lower()

    return Parser(" or ".join(f"`{value}`" for value in values), read)


def optional(parser: Parser[T]) -> Parser[T | None]:
    """Return the parser for an option that is None unless it is set."""
    return Parser(parser.accepts, parser.read)


def _boolean(text: str) -> bool:
    values = {"true": True, "false": False}
    if text.strip().lower() not in values:
        raise ValueError("neither true nor false")
    return values[text.strip().lower()]


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


def _endpoints(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    wrong = [part for part in found if not (match := _ENDPOINT.fullmatch(part)) or not 0 < int(match[2]) < 65536]
    if wrong or not found:
        raise ValueError(f"{wrong[0]!r} is not an address" if wrong else "it is empty")
    return found


BOOLEAN = Parser("`true` or `false`", _boolean)
TEXT = Parser("text", _text)
PATH: Parser[Path] = Parser("a path", lambda text: Path(_text(text)))
ENDPOINTS = Parser("`host:port`, or several separated by commas", _endpoints)
