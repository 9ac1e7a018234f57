"""Principals: who a client is, in Kafka's form ``User:name``, and the rules that derive names from certificates."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """``kind`` is ``User`` for every authenticated client; ACLs may name other kinds, which match nobody."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Principal":
        """Parse ``Kind:name``. Raises ValueError if a part is missing."""
        kind, separator, name = text.partition(":")
        if not separator or not kind or not name:
            raise ValueError(f"{text!r} is not a principal; its form is User:name")
        return cls(kind, name)


def user(name: str) -> Principal:
    return Principal(USER, name)


ANONYMOUS = user("ANONYMOUS")
"""A client that is not authenticated."""
EVERYBODY = user("*")
"""In an ACL: every principal."""


class NoRuleApplies(ValueError):
    """No rule maps the name in a certificate to a principal."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """``pattern`` must match the whole name; None: the name is used as it is. ``case``: "L", "U" or empty."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if not self.pattern.fullmatch(name):
            return None
        mapped = self.pattern.sub(self.replacement, name, count=1)
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped


class NameRules:
    """Kafka's ``ssl.principal.mapping.rules``: ``DEFAULT`` or ``RULE:pattern/replacement/[LU]``, in order, by commas.

    The first rule whose pattern matches the whole distinguished name gives the user's name. In a
    replacement, ``$1`` is the first group. A slash in a pattern or a replacement is written as ``\\/``.
    """

    def __init__(self, rules: str = "DEFAULT") -> None:
        """Parse the rules. Raises ValueError, which names the faulty one."""
        self._text = rules
        self._rules = tuple(_parsed(rules))

    def user_of(self, distinguished_name: str) -> Principal:
        """Return the user with this name in its certificate. Raises NoRuleApplies."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name:
                return user(name)
        raise NoRuleApplies(f"no rule of {self._text} applies to {distinguished_name}")


_ONE_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*"
)
_REFERENCE = re.compile(r"\\(.)|\$(\d)")


def _parsed(text: str) -> Iterable[_Rule]:
    position = 0
    while True:
        found = _ONE_RULE.match(text, position)
        if found is None or text[found.end() : found.end() + 1] not in ("", ","):
            raise ValueError(f"{text[position:]!r} does not begin with DEFAULT or RULE:pattern/replacement/[LU]")
        if found["default"]:
            yield _Rule(None)
        else:
            yield _rule(found["pattern"], found["replacement"], found["case"])
        if found.end() == len(text):
            return
        position = found.end() + 1


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = re.compile(pattern.replace("\\/", "/"))
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error

    def in_python(found: re.Match[str]) -> str:
        literal, group = found[1], found[2]
        if literal is not None:
            return "\\\\" if literal == "\\" else str(literal)
        if int(group) > compiled.groups:
            raise ValueError(f"{replacement!r} refers to ${group}, but {pattern!r} has {compiled.groups} groups")
        return f"\\g<{group}>"

    return _Rule(compiled, _REFERENCE.sub(in_python, replacement), case)
