"""What a PromQL expression names, for the tests of alerts and dashboards: no more of the language than these need."""

import re
from dataclasses import dataclass, field

FUNCTIONS = {"absent", "clamp_min", "deriv", "histogram_quantile", "increase", "label_replace", "max_over_time", "rate"}
AGGREGATIONS = {"avg", "count", "max", "min", "sum", "topk"}
_WORDS = {"and", "or", "unless"}
_GROUPING = {"by", "on", "group_left"}
_OF_COUNTERS = {"rate", "increase"}

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<range>\[(?:\d+[smhd]|\$__rate_interval)\])
  | (?P<number>\d+(?:\.\d+)?(?![\w.]))
  | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
  | (?P<matching>=~|!~|!=|=(?!=))
  | (?P<operator>==|>=|<=|[-+*/><])
  | (?P<mark>[(){},])
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Matcher:
    label: str
    value: str

    @property
    def values(self) -> list[str]:
        """What it matches, where that is plain words."""
        return self.value.split("|") if re.fullmatch(r"[\w|]+", self.value) else []


@dataclass(frozen=True, slots=True)
class Selector:
    """``metric`` as it is written, a histogram's suffix included; ``function``: the one that stands right around it."""

    metric: str
    matchers: tuple[Matcher, ...]
    function: str

    @property
    def takes_counters(self) -> bool:
        return self.function in _OF_COUNTERS


@dataclass(slots=True)
class Expression:
    """``labels``: those that it groups by and joins on; ``made``: those that it makes itself."""

    selectors: list[Selector] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)


class _Tokens:
    def __init__(self, text: str) -> None:
        self.text = text
        self._left: list[tuple[str, str]] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise ValueError(f"not read: {text[position:]}")
            if match.lastgroup != "space":
                self._left.append((match.lastgroup, match[0]))
            position = match.end()
        if text.count("(") != text.count(")") or text.count("{") != text.count("}"):
            raise ValueError(f"unbalanced: {text}")
        self._left.reverse()

    def __bool__(self) -> bool:
        return bool(self._left)

    @property
    def next(self) -> str:
        return self._left[-1][1] if self._left else ""

    def take(self, *kinds: str) -> tuple[str, str]:
        """The next token. Raises ValueError where it is of none of ``kinds``; without any, of whatever kind."""
        kind, token = self._left.pop() if self._left else ("end", "")
        if kinds and kind not in kinds and token not in kinds:
            raise ValueError(f"{token or 'the end'} instead of {' or '.join(kinds)}: {self.text}")
        return kind, token


def read(text: str) -> Expression:
    """Raises ValueError for what is no PromQL, or more of it than is known here."""
    tokens, found, strings, before = _Tokens(text), Expression(), list[str](), ("", "")
    while tokens:
        kind, token = tokens.take("name", "number", "string", "operator", "(", ")", ",", "range")
        if kind == "string":
            strings.append(token[1:-1])
        elif token in _GROUPING:
            found.labels |= _grouping(tokens)
        elif kind == "name" and token in FUNCTIONS | AGGREGATIONS:
            if tokens.next not in ("(", "by"):
                raise ValueError(f"{token} of nothing: {text}")
            before = (token, tokens.next)
            continue
        elif kind == "name" and token not in _WORDS:
            found.selectors.append(_selector(tokens, token, before[0] if before[1] == "(" else ""))
        if token != "(":
            before = ("", "")
    # Of all functions label_replace alone takes strings: what it makes, of what, from which label, by which pattern.
    found.made = set(strings[::4])
    found.labels |= set(strings[2::4]) - {""}
    return found


def _selector(tokens: _Tokens, metric: str, function: str) -> Selector:
    if tokens.next == "(":
        raise ValueError(f"{metric} is no function that is known here: {tokens.text}")
    matchers = []
    if tokens.next == "{":
        tokens.take()
        while tokens.next != "}":
            label = tokens.take("name")[1]
            tokens.take("matching")
            matchers.append(Matcher(label, tokens.take("string")[1][1:-1]))
            if tokens.next == ",":
                tokens.take()
        tokens.take("}")
    return Selector(metric, tuple(matchers), function)


def _grouping(tokens: _Tokens) -> set[str]:
    labels = set()
    tokens.take("(")
    while tokens.next != ")":
        labels.add(tokens.take("name")[1])
        if tokens.next == ",":
            tokens.take()
    tokens.take(")")
    return labels
