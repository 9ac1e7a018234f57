"""Settings as values: frozen dataclasses whose fields say which environment variable they come from.

A service declares what it reads, once; `load` reads it, `docs/reference/configuration.md` is generated from it::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class StorageSettings:
        segment_bytes: int = setting(
            "KAFSCALE_SEGMENT_BYTES", default=4 * MIB, parse=within(size, 64 * KIB), doc="Seal a buffer at this size."
        )

    settings = load(StorageSettings, os.environ)

A wrong value is a ``ConfigError``: the process must not start, and nothing falls back to a default. A variable that is
set to the empty string counts as unset. Rules that span several fields belong in the class's ``__post_init__``.
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
# What Kubernetes puts into every pod for a Service whose name begins with "kafscale".
_INJECTED_NAME = re.compile(
    r"KAFSCALE_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)"
)
_INJECTED_PORT = re.compile(r"(tcp|udp|sctp)://.+")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parser(Generic[T]):
    """How the text of a variable becomes a value; ``parse`` raises ValueError, ``accepts`` says what it takes."""

    accepts: str
    parse: Callable[[str], T]
    show: Callable[[T], str] = str


@dataclass(frozen=True, slots=True)
class Setting:
    """What one field declared; ``default_text`` as a person would write it, None: unset."""

    env: str
    parser: Parser[Any]
    default_text: str | None
    doc: str
    secret: bool


def setting(
    env: str, *, default: T, parse: Parser[T], doc: str, secret: bool = False, default_text: str | None = None
) -> T:
    """A dataclass field that `load` fills from ``env``. A secret is never shown: neither in errors nor in ``repr``.

    ``default_text`` says what stands for an unset variable where that is not one value.
    """
    if not env.startswith(PREFIX):
        raise ValueError(f"{env} does not begin with {PREFIX}")
    if default_text is None and default is not None:
        default_text = parse.show(default)
    declared = Setting(env, parse, default_text, doc, secret)
    # A field is typed as its value, as dataclasses.field is in the type stubs.
    return dataclasses.field(default=default, repr=not secret, metadata={_METADATA_KEY: declared})


def load(cls: type[T], environ: Mapping[str, str]) -> T:
    """An instance of the settings class ``cls``. Raises ConfigError that names every wrong variable in one line."""
    values: dict[str, object] = {}
    wrong: list[str] = []
    for name, declared in _fields(cls):
        text = environ.get(declared.env, "").strip()
        if not text:
            continue
        try:
            values[name] = declared.parser.parse(text)
        except ValueError:
            shown = "(value not shown)" if declared.secret else f"= {text!r}"
            wrong.append(f"{declared.env} {shown} is not {declared.parser.accepts}")
    if wrong:
        raise ConfigError("; ".join(wrong))
    return cls(**values)


def documented(classes: Iterable[type]) -> list[tuple[type, list[Setting]]]:
    """The settings of each class in the order of declaration, for the generator of docs/reference/configuration.md."""
    return [(cls, [declared for _, declared in _fields(cls)]) for cls in classes]


def warn_unknown(known: Collection[str], environ: Mapping[str, str]) -> list[str]:
    """One message for each KAFSCALE_ variable of ``environ`` that is not ``known``, with the nearest name that is.

    What Kubernetes injects for Services (``*_SERVICE_HOST``, ``*_SERVICE_PORT*``, ``*_PORT_9092_TCP*``, and ``*_PORT``
    when its value is a ``tcp://`` address) is passed over in silence.
    """
    messages = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known or _injected(name, environ[name]):
            continue
        # Without the prefix that all share, which would make any two names look alike.
        nearest = difflib.get_close_matches(name.removeprefix(PREFIX), [env.removeprefix(PREFIX) for env in known], n=1)
        hint = f"; did you mean {PREFIX}{nearest[0]}?" if nearest else ""
        messages.append(f"{name} is set, but nothing reads it{hint}")
    return messages


def within(parser: Parser[T], low: T | None = None, high: T | None = None) -> Parser[T]:
    """``parser``, and the value lies between ``low`` and ``high``, both included; None: no bound."""

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
    """A whole number between ``low`` and ``high``, both included."""
    whole = Parser("a whole number", _whole)
    return whole if low is None and high is None else within(whole, low, high)


def choice(*values: str) -> Parser[str]:
    """One of ``values``, in any case; the value is as given here."""
    by_lower = {value.lower(): value for value in values}

    def parse(text: str) -> str:
        try:
            return by_lower[text.lower()]
        except KeyError:
            raise ValueError(text) from None

    return Parser(f"one of {', '.join(values)}", parse)


def optional(parser: Parser[T]) -> Parser[T | None]:
    """``parser``, for a setting whose default is None: unset."""
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
"""Bytes. Units are powers of two with or without the i: the spec's 4 MB is 4 MiB = 4194304 bytes."""
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
