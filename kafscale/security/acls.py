"""Kafka's access control lists: what an ACL matches, and whether a principal may do something.

The rules are those of Apache Kafka's ``StandardAuthorizer``: https://kafka.apache.org/documentation/#security_authz
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from copy import copy
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from kafscale.security.principals import EVERYBODY, Principal

ANY_HOST = "*"
ANY_NAME = "*"
"""The name of the literal pattern that matches all resources of its type."""
CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class Operation(IntEnum):
    """Kafka's ``AclOperation`` with its codes."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """Kafka's ``ResourceType`` with its codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name in an ACL matches the name of a resource; Kafka's codes."""

    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Kafka's ``AclPermissionType`` with its codes."""

    DENY = 2
    ALLOW = 3


class Resource(NamedTuple):
    type: ResourceType
    name: str


CLUSTER = Resource(ResourceType.CLUSTER, CLUSTER_NAME)

_T = ResourceType
OPERATIONS: dict[ResourceType, frozenset[Operation]] = {
    _T.TOPIC: frozenset(
        (
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DESCRIBE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        )
    ),
    _T.GROUP: frozenset(
        (
            Operation.READ,
            Operation.DESCRIBE,
            Operation.DELETE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        )
    ),
    _T.CLUSTER: frozenset(
        (
            Operation.CREATE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
            Operation.ALTER,
            Operation.DESCRIBE,
        )
    ),
    _T.TRANSACTIONAL_ID: frozenset((Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT)),
    _T.DELEGATION_TOKEN: frozenset((Operation.DESCRIBE,)),
    _T.USER: frozenset((Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS)),
}
"""The operations that exist on resources of each type, as in Kafka's ``AclEntry.supportedOperations``."""

_IMPLIED_BY: dict[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset((Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.ALTER_CONFIGS,)),
}
"""The operations that include another one if they are allowed. None does if it is denied."""


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One ACL: ``principal`` may or may not do ``operation`` on the matching resources, from ``host``."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        where = f"{self.pattern_type.name}:{self.resource_type.name}:{self.name}"
        return f"{self.permission.name} {self.principal} {self.operation.name} on {where} from host {self.host}"

    def covers(self, operation: Operation) -> bool:
        """Return whether this ACL is about ``operation``, also as part of another one."""
        if self.operation in (operation, Operation.ALL):
            return True
        return self.permission is Permission.ALLOW and self.operation in _IMPLIED_BY.get(operation, ())


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects ACLs, as DescribeAcls and DeleteAcls do. None selects all values of a field.

    ``matching``: instead of ACLs with exactly this name, those that match the resource of this name, of any pattern.
    """

    resource_type: ResourceType | None = None
    pattern_type: PatternType | None = None
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None
    matching: bool = False

    def selects(self, acl: Acl) -> bool:
        fields = (
            (self.resource_type, acl.resource_type),
            (self.pattern_type, acl.pattern_type),
            (self.principal, acl.principal),
            (self.host, acl.host),
            (self.operation, acl.operation),
            (self.permission, acl.permission),
        )
        if any(wanted is not None and wanted != found for wanted, found in fields):
            return False
        if self.name is None:
            return True
        if not self.matching:
            return acl.name == self.name
        if acl.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in (self.name, ANY_NAME)


class Decision(NamedTuple):
    """``rule`` says why: the ACL, "super user", "no ACL allows it" or "no ACL is about the resource"."""

    allowed: bool
    rule: str


class AclSet:
    """All ACLs of a cluster. Immutable: a change makes a new one.

    ``super_users`` may do everything. ``allow_without_acl``: what no ACL is about is allowed; Kafka's
    ``allow.everyone.if.no.acl.found``.
    """

    def __init__(
        self, acls: Iterable[Acl] = (), *, super_users: Set[Principal] = frozenset(), allow_without_acl: bool = False
    ) -> None:
        self._super_users = super_users
        self._allow_without_acl = allow_without_acl
        self.acls: frozenset[Acl] = frozenset()
        # By resource, each in order.
        self._literal: dict[Resource, tuple[Acl, ...]] = {}
        self._prefixed: dict[Resource, tuple[Acl, ...]] = {}
        # The lengths of the prefixes by type, in order: all prefixes of a name are found by looking up each length.
        self._prefix_lengths: dict[ResourceType, tuple[int, ...]] = {}
        self._change(frozenset(acls), frozenset())

    def changed(self, added: Iterable[Acl], removed: Iterable[Acl]) -> "AclSet":
        """Return the set with these ACLs added and removed."""
        other = copy(self)
        other._literal, other._prefixed = self._literal.copy(), self._prefixed.copy()
        other._change(frozenset(added) - self.acls, frozenset(removed) & self.acls)
        return other

    def _change(self, added: frozenset[Acl], removed: frozenset[Acl]) -> None:
        self.acls = (self.acls - removed) | added
        by_resource = defaultdict[Resource, list[Acl]](list)
        for acl in added | removed:
            by_resource[Resource(acl.resource_type, acl.name)].append(acl)
        for resource, acls in by_resource.items():
            for pattern, found in ((PatternType.LITERAL, self._literal), (PatternType.PREFIXED, self._prefixed)):
                of_pattern = {acl for acl in acls if acl.pattern_type is pattern}
                after = sorted((set(found.get(resource, ())) | of_pattern) - removed)
                if after:
                    found[resource] = tuple(after)
                else:
                    found.pop(resource, None)
        lengths = defaultdict[ResourceType, set[int]](set)
        for type_, name in self._prefixed:
            lengths[type_].add(len(name))
        self._prefix_lengths = {type_: tuple(sorted(found)) for type_, found in lengths.items()}

    def decide(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> Decision:
        """Return whether ``principal`` may do ``operation`` on ``resource`` from the address ``host``."""
        if principal in self._super_users:
            return Decision(allowed=True, rule="super user")
        allowing: Acl | None = None
        any_acl = False
        for acl in self._about(resource):
            any_acl = True
            if not acl.covers(operation) or not _is_for(acl, principal, host):
                continue
            if acl.permission is Permission.DENY:
                return Decision(allowed=False, rule=str(acl))
            allowing = allowing or acl
        if allowing is not None:
            return Decision(allowed=True, rule=str(allowing))
        if any_acl:
            return Decision(allowed=False, rule="no ACL allows it")
        return Decision(self._allow_without_acl, "no ACL is about the resource")

    def decide_for_any(self, principal: Principal, host: str, operation: Operation, type_: ResourceType) -> Decision:
        """Return whether ``principal`` may do ``operation`` on at least one resource of a type.

        As in Kafka's ``Authorizer.authorizeByResourceType``, an operation is not part of another one here.
        """
        # Kafka asks for a resource of this name, which decides for super users and without ACLs.
        decision = self.decide(principal, host, operation, Resource(type_, "hardcode"))
        if decision.allowed:
            return decision
        allows, denies = list[Acl](), list[Acl]()
        for acl in self.acls:
            if acl.resource_type is not type_ or acl.operation not in (operation, Operation.ALL):
                continue
            if _is_for(acl, principal, host):
                (denies if acl.permission is Permission.DENY else allows).append(acl)
        for acl in sorted(allows):
            denied = any(_includes(deny, acl) for deny in denies)
            if not denied:
                return Decision(allowed=True, rule=str(acl))
        return Decision(allowed=False, rule="no ACL allows it on any resource")

    def _about(self, resource: Resource) -> Iterator[Acl]:
        yield from self._literal.get(resource, ())
        if resource.name != ANY_NAME:
            yield from self._literal.get(Resource(resource.type, ANY_NAME), ())
        lengths = self._prefix_lengths.get(resource.type, ())
        for length in lengths[: bisect_right(lengths, len(resource.name))]:
            yield from self._prefixed.get(Resource(resource.type, resource.name[:length]), ())


def _is_for(acl: Acl, principal: Principal, host: str) -> bool:
    return acl.principal in (str(principal), str(EVERYBODY)) and acl.host in (host, ANY_HOST)


def _includes(deny: Acl, allow: Acl) -> bool:
    """Return whether ``deny`` matches every resource that ``allow`` matches."""
    if deny.pattern_type is PatternType.PREFIXED:
        return not (allow.pattern_type is PatternType.LITERAL and allow.name == ANY_NAME) and allow.name.startswith(
            deny.name
        )
    return deny.name == ANY_NAME or (allow.pattern_type is PatternType.LITERAL and allow.name == deny.name)
