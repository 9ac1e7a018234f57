"""The desired state of a user, from its KafscaleUser. This module does no IO."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Self

from kafscale.security.acls import CLUSTER_NAME
from services.operator.cluster_refs import cluster_of
from services.operator.resources import Object, name_of
from services.operator.users.plan import Rule

PASSWORD_KEY = "password"  # noqa: S105 - the key in a Secret
_SUFFIX = "-credentials"


@dataclass(frozen=True, slots=True)
class PasswordSource:
    """The Secret with the password, and the key there. If it is ``generated``, the operator creates the Secret."""

    name: str
    key: str
    generated: bool


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state. ``cluster`` is empty if the resource names none and there is not exactly one.

    ``source`` None: others authenticate the user, for example by a certificate, and ``mechanisms`` is empty.
    """

    user: str
    cluster: str
    source: PasswordSource | None
    mechanisms: tuple[str, ...]
    iterations: int
    acls: frozenset[Rule]
    deletes: bool
    """Whether the credentials and ACLs are deleted with the resource."""

    @classmethod
    def of(cls, resource: Object, clusters: Collection[str]) -> Self:
        """Return the desired state in a valid resource. ``clusters`` are the names of all KafscaleClusters."""
        spec = resource["spec"]
        authentication = spec.get("authentication")
        source = None
        if authentication is not None:
            reference = authentication.get("passwordSecretRef")
            if reference is None:
                source = PasswordSource(name_of(resource) + _SUFFIX, PASSWORD_KEY, generated=True)
            else:
                source = PasswordSource(reference["name"], reference["key"], generated=False)
        return cls(
            user=_user_name(resource),
            cluster=cluster_of(resource, clusters),
            source=source,
            mechanisms=tuple(sorted(authentication["mechanisms"])) if authentication is not None else (),
            iterations=authentication["iterations"] if authentication is not None else 0,
            acls=frozenset(rule for entry in spec.get("acls", []) for rule in _rules(entry)),
            deletes=spec.get("deletionPolicy") != "Retain",
        )


def identity(resource: Object, clusters: Collection[str]) -> tuple[str, str]:
    """Return the cluster and the user that the resource describes. Only one resource can describe a user."""
    return cluster_of(resource, clusters), _user_name(resource)


def _user_name(resource: Object) -> str:
    return str(resource["spec"].get("name") or name_of(resource))


def _rules(entry: Object) -> Iterator[Rule]:
    resource = entry["resource"]
    for operation in entry["operations"]:
        yield Rule(
            kafka_name(resource["type"]),
            kafka_name(resource["patternType"]),
            resource.get("name", CLUSTER_NAME),
            entry["host"],
            kafka_name(operation),
            kafka_name(entry["permission"]),
        )


def kafka_name(name: str) -> str:
    """Return the name of a constant of Kafka, for example TRANSACTIONAL_ID for TransactionalId."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
