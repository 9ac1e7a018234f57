"""Computes the actions that bring a user to its desired state. This module does no IO.

The ACLs of the user are exactly those of the resource. So are the credentials, if the resource has authentication. If
it has none, only credentials that it has set before (``managed``) are deleted.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Rule(NamedTuple):
    """An ACL of the user, with Kafka's names of constants."""

    resource_type: str
    pattern_type: str
    name: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        what = f"{self.permission} {self.operation} on {self.pattern_type}:{self.resource_type}:{self.name}"
        return f"{what} from host {self.host}"


class Known(NamedTuple):
    """What a gateway reports of a SCRAM credential, or what the operator wants it to report."""

    iterations: int
    salt: bytes


@dataclass(frozen=True, slots=True)
class Seen:
    """A user as a gateway reports it. ``acls`` is None if the gateway does not enforce ACLs."""

    credentials: Mapping[str, Known]
    acls: frozenset[Rule] | None


@dataclass(frozen=True, slots=True)
class CreateAcls:
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class SetCredentials:
    """``credentials`` by mechanism."""

    credentials: Mapping[str, Known]


@dataclass(frozen=True, slots=True)
class DeleteCredentials:
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteAcls:
    rules: tuple[Rule, ...]


Action = CreateAcls | SetCredentials | DeleteCredentials | DeleteAcls


def plan(
    wanted: Mapping[str, Known], acls: frozenset[Rule], seen: Seen, *, kept: Collection[str], managed: Collection[str]
) -> list[Action]:
    """Return the actions in order, each safe to repeat.

    ``wanted`` are the credentials to set, of mechanisms in ``kept``. Credentials of other mechanisms are deleted, if
    they are in ``managed``. ACLs are created before others are deleted, so that the user keeps what both allow. What a
    denial forbids is never allowed in between.
    """
    actions: list[Action] = []
    if seen.acls is not None and acls - seen.acls:
        actions.append(CreateAcls(tuple(sorted(acls - seen.acls, key=_denials_first))))
    stale = {mechanism: known for mechanism, known in wanted.items() if seen.credentials.get(mechanism) != known}
    if stale:
        actions.append(SetCredentials(stale))
    gone = tuple(sorted(each for each in seen.credentials if each in managed and each not in kept))
    if gone:
        actions.append(DeleteCredentials(gone))
    if seen.acls is not None and seen.acls - acls:
        actions.append(DeleteAcls(tuple(sorted(seen.acls - acls, key=_denials_last))))
    return actions


def after(seen: Seen, action: Action) -> Seen:
    """Return the user after an action."""
    match action:
        case CreateAcls(rules):
            return Seen(seen.credentials, (seen.acls or frozenset()) | set(rules))
        case SetCredentials(credentials):
            return Seen({**seen.credentials, **credentials}, seen.acls)
        case DeleteCredentials(mechanisms):
            left = {name: known for name, known in seen.credentials.items() if name not in mechanisms}
            return Seen(left, seen.acls)
        case DeleteAcls(rules):
            return Seen(seen.credentials, (seen.acls or frozenset()) - set(rules))


def described(action: Action) -> str:
    """Return a description of a completed action."""
    match action:
        case CreateAcls(rules):
            return f"created {_listed(rules)}"
        case SetCredentials(credentials):
            return f"set the password for {' and '.join(sorted(credentials))}"
        case DeleteCredentials(mechanisms):
            return f"deleted the credentials for {' and '.join(mechanisms)}"
        case DeleteAcls(rules):
            return f"deleted {_listed(rules)}"


def _denials_first(rule: Rule) -> tuple[bool, Rule]:
    return rule.permission != "DENY", rule


def _denials_last(rule: Rule) -> tuple[bool, Rule]:
    return rule.permission == "DENY", rule


def _listed(rules: tuple[Rule, ...]) -> str:
    number = "1 ACL" if len(rules) == 1 else f"{len(rules)} ACLs"
    return f"{number}: {', '.join(map(str, rules))}"
