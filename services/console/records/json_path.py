"""Conditions on JSON: a path, and a comparison with what it leads to. No IO.

A small part of JSONPath (RFC 9535), whose evaluation takes a bounded time for every path and document::

    $.order.id == 17            $.items[0].name == "box"        $["a key"] >= 1.5
    $.items[*].name != "box"    $.note contains "late"          $.order.refund

A step is ``.name``, ``["name"]``, ``[number]``, or ``[*]`` for each item of an array or each value of an object. The
comparisons are ``== != < <= > >=`` with a number, a string, true, false or null, and ``contains`` with a string.
Without a comparison, the condition is that the path leads to something. It is met if any value at the path meets it.
Values of different types are not equal, and neither is less than the other.
"""

import json
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_LONGEST = 500
_MOST_STEPS = 32
_MOST_VALUES = 10_000
"""How many values a path may pass. Those beyond are not looked at."""
_STEP = re.compile(
    r"""\.(?P<name>[^\W\d][\w-]*)|\[\s*(?:(?P<index>-?\d{1,9})|(?P<quoted>"(?:[^"\\]|\\.)*"|'[^'\\]*')|(?P<all>\*))\s*\]"""
)
_COMPARISON = re.compile(r"\s*(?P<sign>==|!=|<=|>=|<|>|contains\b)\s*(?P<literal>.+?)\s*", re.DOTALL)
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class WrongPath(Exception):
    """The text is not a condition. The message says why."""


@dataclass(frozen=True, slots=True)
class Condition:
    """``steps``: names, indexes, or None for all. ``sign``: the comparison with ``literal``; empty if there is none."""

    steps: tuple[str | int | None, ...]
    sign: str = ""
    literal: Any = None

    def holds(self, document: Any) -> bool:
        return any(self._compare(value) for value in _found(document, self.steps))

    def _compare(self, value: Any) -> bool:
        if not self.sign:
            return True
        if self.sign == "contains":
            return isinstance(value, str) and self.literal in value
        alike = _kind(value) == _kind(self.literal)
        if self.sign in ("==", "!="):
            return (alike and value == self.literal) == (self.sign == "==")
        return alike and isinstance(value, (int, float, str)) and _SIGNS[self.sign](value, self.literal)


def parse(text: str) -> Condition:
    """Parse a condition. Raises WrongPath."""
    if len(text) > _LONGEST:
        raise WrongPath(f"a path has at most {_LONGEST} characters")
    text = text.strip()
    if not text.startswith("$"):
        raise WrongPath("a path begins with $, as in $.order.id == 17")
    steps: list[str | int | None] = []
    position = 1
    while found := _STEP.match(text, position):
        position = found.end()
        steps.append(_step(found))
    if len(steps) > _MOST_STEPS:
        raise WrongPath(f"a path has at most {_MOST_STEPS} steps")
    if position == len(text):
        return Condition(tuple(steps))
    comparison = _COMPARISON.fullmatch(text, position)
    if comparison is None:
        raise WrongPath(f"{text[position:]!r} is neither a step nor a comparison")
    sign = comparison["sign"]
    try:
        literal = json.loads(comparison["literal"])
    except (ValueError, RecursionError):
        literal = ()
    if not isinstance(literal, (str, int, float, bool, type(None))):
        raise WrongPath(f"{comparison['literal']} is not a number, a string in double quotes, true, false or null")
    if sign == "contains" and not isinstance(literal, str):
        raise WrongPath("contains needs a string in double quotes")
    return Condition(tuple(steps), sign, literal)


def _step(found: re.Match[str]) -> str | int | None:
    if found["name"] is not None:
        return found["name"]
    if found["index"] is not None:
        return int(found["index"])
    if found["quoted"] is None:
        return None
    if found["quoted"].startswith("'"):
        return found["quoted"][1:-1]
    try:
        return str(json.loads(found["quoted"]))
    except ValueError:
        raise WrongPath(f"{found['quoted']} is not a string") from None


def _found(document: Any, steps: tuple[str | int | None, ...]) -> list[Any]:
    values = [document]
    for step in steps:
        following: list[Any] = []
        for value in values:
            following += _children(value, step, _MOST_VALUES - len(following))
        values = following
    return values


def _children(value: Any, step: str | int | None, most: int) -> list[Any]:
    match value:
        case dict():
            if step is None:
                return list(value.values())[:most]
            return [value[step]][:most] if isinstance(step, str) and step in value else []
        case list():
            if step is None:
                return value[:most]
            return [value[step]][:most] if isinstance(step, int) and -len(value) <= step < len(value) else []
    return []


def _kind(value: Any) -> type:
    """Return the type of a value in JSON, which has one kind of number. A truth value is none."""
    return float if type(value) is int else type(value)
