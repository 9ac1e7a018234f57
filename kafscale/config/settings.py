"""Settings as frozen dataclasses whose fields declare the environment variables that they are read from.

A service declares its settings once. `load` reads them, and `docs/reference/configuration.md` is generated from them::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class StorageSettings:
        segment_bytes: int = setting(
            "KAFSCALE_SEGMENT_BYTES", default=4 * MIB, parse=within(size, 64 * KIB), doc="Seal a buffer at this size."
        )

    settings = load(StorageSettings, os.environ)

An invalid value is a ``ConfigError``: the process must not start, and no default is used instead. A variable that is
set to the empty string counts as unset. Checks of several fields belong in the class's ``__post_init__``.
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from kafscale.errors import ConfigError

PREFIX = "KAFSCALE_"
KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

_METADATA_KEY = "kafscale.setting"
_UNITS = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": TIB}
_SIZE = re.compile(r"([0-9]{1,18}) *(?:([KMGT])I?B?|B)?", re.IGNORECASE)
_TRUE = ("true", "yes", "1")
_FALSE = ("false", "no", "0")
# Kubernetes sets these variables in every pod for a Service whose name begins with "kafscale".
_INJECTED_NAME = re.compile(
    r"KAFSCALE_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)"
)
_INJECTED_PORT = re.compile(r"(tcp|udp|sctp)://.+")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parser(Generic[T]):
    """Parses the text of a variable. ``parse`` raises ValueError; ``accepts`` describes valid texts."""

    accepts: str
    parse: Callable[[str], T]
    show: Callable[[T], str] = str


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of a field. ``default_text``: as a user would write it, or None if the default is unset."""

    env: str
    parser: Parser[Any]
    default_text: str | None
    doc: str
    secret: bool


def setting(
    env: str, *, default: T, parse: Parser[T], doc: str, secret: bool = False, default_text: str | None = None
) -> T:
    """Declare a dataclass field that `load` fills from ``env``. A secret does not appear in errors or in ``repr``.

    ``default_text`` describes the default if it is not a single value.
    """
    if not env.startswith(PREFIX):
        raise ValueError(f"{env} does not begin with {PREFIX}")
    if default_text is None and default is not None:
        default_text = parse.show(default)
    declared = Setting(env, parse, default_text, doc, secret)
    # Annotated with the type of the value, like dataclasses.field in the type stubs.
    return dataclasses.field(default=default, repr=not secret, metadata={_METADATA_KEY: declared})


def load(cls: type[T], environ: Mapping[str, str]) -> T:
    """Return an instance of ``cls``. Raises a ConfigError that names all invalid variables in one line."""
    values: dict[str, object] = {}
    invalid: list[str] = []
    for name, declared in _fields(cls):
        text = environ.get(declared.env, "").strip()
        if not text:
            continue
        try:
            values[name] = declared.parser.parse(text)
        except ValueError:
            shown = "(value not shown)" if declared.secret else f"= {text!r}"
            invalid.append(f"{declared.env} {shown} is not {declared.parser.accepts}")
    if invalid:
        raise ConfigError("; ".join(invalid))
    return cls(**values)


def documented(classes: Iterable[type]) -> list[tuple[type, list[Setting]]]:
    """Return the settings of each class in the order of declaration, for docs/reference/configuration.md."""
    return [(cls, [declared for _, declared in _fields(cls)]) for cls in classes]


def warn_unknown(known: Collection[str], environ: Mapping[str, str]) -> list[str]:
    """Return a message for each KAFSCALE_ variable of ``environ`` that is not ``known``, with the most similar name.

    Variables that Kubernetes injects for Services (``*_SERVICE_HOST``, ``*_SERVICE_PORT*``, ``*_PORT_9092_TCP*``, and
    ``*_PORT`` with a ``tcp://`` address as its value) are ignored.
    """
    messages = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known or _injected(name, environ[name]):
            continue
        # Without the common prefix, which would make any two names similar.
        nearest = difflib.get_close_matches(name.removeprefix(PREFIX), [env.removeprefix(PREFIX) for env in known], n=1)
        hint = f"; did you mean {PREFIX}{nearest[0]}?" if nearest else ""
        messages.append(f"{name} is set, but not used{hint}")
    return messages


def within(parser: Parser[T], low: T | None = None, high: T | None = None) -> Parser[T]:
    """Limit ``parser`` to values from ``low`` to ``high`` inclusive. None means no limit."""

    def parse(text: str) -> T:
        value = cast(Any, parser.parse(text))
        if (low is not None and value < low) or (high is not None and value > high):
            raise ValueError(text)
        return cast(T, value)

    if low is not None and high is not None:
        bounds = f" from {parser.show(low)} to {parser.show(high)}"
    else:
        bounds = f", at least {parser.show(low)}" if low is not None else ""
        bounds += f", at most {parser.show(high)}" if high is not None else ""
    return Parser(parser.accepts + bounds, parse, parser.show)


def integer(low: int | None = None, high: int | None = None) -> Parser[int]:
    """Return a parser for whole numbers from ``low`` to ``high`` inclusive."""
    whole = Parser("a whole number", _whole)
    return whole if low is None and high is None else within(whole, low, high)


def choice(*values: str) -> Parser[str]:
    """Return a parser that accepts one of ``values`` in any case and returns it as spelled here."""
    by_lower = {value.lower(): value for value in values}

    def parse(text: str) -> str:
        try:
            return by_lower[text.lower()]
        except KeyError:
            raise ValueError(text) from None

    return Parser(f"one of {', '.join(values)}", parse)


def optional(parser: Parser[T]) -> Parser[T | None]:
    """Return ``parser`` for a setting whose default is None (unset)."""
    return Parser(parser.accepts, parser.parse, lambda value: "" if value is None else parser.show(value))


def _whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueError(text)
    return int(text)


def _parse_size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _UNITS[(found[2] or "").upper()]


def _show_size(value: int) -> str:
    for unit in ("T", "G", "M", "K"):
        if value and value % _UNITS[unit] == 0:
            return f"{value // _UNITS[unit]}{unit}B"
    return str(value)


def _parse_boolean(text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError(text)
    return text.lower() in _TRUE


def _parse_seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text):
        raise ValueError(text)
    return float(text)


def _parse_share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError(text)
    return value


size: Parser[int] = Parser("a size (4MB, 256KiB, plain bytes)", _parse_size, _show_size)
"""A size in bytes. Units are powers of two with or without the ``i``: 4 MB is 4 MiB = 4194304 bytes."""
milliseconds: Parser[int] = within(Parser("a whole number of milliseconds", _whole), 0)
seconds: Parser[float] = Parser("a number of seconds", _parse_seconds, lambda value: f"{value:g}")
share: Parser[float] = Parser("a number above 0 and up to 1", _parse_share, lambda value: f"{value:g}")
boolean: Parser[bool] = Parser("true or false", _parse_boolean, lambda value: "true" if value else "false")
text: Parser[str] = Parser("text", str)


def _fields(cls: type) -> list[tuple[str, Setting]]:
    declared = [(field.name, field.metadata.get(_METADATA_KEY)) for field in dataclasses.fields(cls)]
    undeclared = [name for name, found in declared if found is None]
    if undeclared:
        raise TypeError(f"{cls.__name__}.{undeclared[0]} is not a setting()")
    return cast(list[tuple[str, Setting]], declared)


def _injected(name: str, value: str) -> bool:
    if _INJECTED_NAME.fullmatch(name):
        return True
    return name.endswith("_PORT") and bool(_INJECTED_PORT.fullmatch(value))
