"""ACLs as requests give them, and their changes, for the Kafka APIs and for the Admin service."""

from collections.abc import Iterable, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.metadata.acls import AclCatalog
from kafscale.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kafscale.security.principals import Principal
from services.gateway.api import Environment
from services.gateway.owners.errors import RefusedPart
from services.gateway.store_changes import stored

_ANY, _MATCH = 1, 2
"""Kafka's codes in filters: any value, and, as the pattern type, all patterns that match the name."""
_LONGEST = 32_767


def acl_of(resource_type: int, pattern_type: int, name: str, entry: Any) -> Acl:
    """Return the ACL that a Kafka request gives. ``entry`` has its principal, host, operation and permission_type.

    Raises RefusedPart if it is not one or cannot exist.
    """
    try:
        acl = Acl(
            ResourceType(resource_type),
            PatternType(pattern_type),
            name,
            entry.principal,
            entry.host,
            Operation(entry.operation),
            Permission(entry.permission_type),
        )
    except ValueError:
        raise _invalid("The ACL has a type, operation or permission that does not exist") from None
    return checked(acl)


def checked(acl: Acl) -> Acl:
    """Return the ACL. Raises RefusedPart, as Kafka does, if it cannot exist."""
    type_, name, operation = acl.resource_type, acl.name, acl.operation
    if type_ is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise _invalid("The resource name is empty")
    if operation is not Operation.ALL and operation not in OPERATIONS[type_]:
        raise _invalid(f"Operation {operation.name} does not exist on resources of type {type_.name}")
    try:
        Principal.parse(acl.principal)
    except ValueError as error:
        raise RefusedPart(ErrorCode.invalid_principal_type, f"Could not parse principal: {error}") from None
    if not acl.host:
        raise _invalid("The host is empty")
    for text in (name, acl.principal, acl.host):
        if len(text.encode()) > _LONGEST:
            raise _invalid(f"A name of more than {_LONGEST} bytes")
    return acl


def filter_of(resource_type: int, pattern_type: int, name: str | None, entry: Any) -> AclFilter:
    """Return the filter that a request gives; fields as in `acl_of`. Raises RefusedPart if it is not one."""
    try:
        return AclFilter(
            None if resource_type == _ANY else ResourceType(resource_type),
            None if pattern_type in (_ANY, _MATCH) else PatternType(pattern_type),
            name,
            entry.principal_filter,
            entry.host_filter,
            None if entry.operation == _ANY else Operation(entry.operation),
            None if entry.permission_type == _ANY else Permission(entry.permission_type),
            matching=pattern_type == _MATCH,
        )
    except ValueError:
        raise _invalid("The filter has a type, operation or permission that does not exist") from None


def selected(catalog: AclCatalog, wanted: AclFilter) -> list[Acl]:
    """Return the ACLs that a filter selects, in order."""
    return sorted(acl for acl in catalog.current.acls if wanted.selects(acl))


def required_catalog(environment: Environment, refusal: str = "") -> AclCatalog:
    """Return the ACLs. Raises RefusedPart, with ``refusal`` as its message, if they are not enforced."""
    if environment.acls is None:
        message = refusal or "ACLs are not enforced. Set KAFSCALE_ACLS=true."
        raise RefusedPart(ErrorCode.security_disabled, message)
    return environment.acls


async def create_acls(environment: Environment, api: str, new: Sequence[Acl]) -> None:
    """Create ACLs. Raises RefusedPart; some may be created then."""
    catalog, most = required_catalog(environment), environment.settings.max_acls
    if len(catalog.current.acls | set(new)) > most:
        raise _invalid(f"There would be more than {most} ACLs (KAFSCALE_MAX_ACLS)")
    await stored(environment, api, catalog.create(new))


async def delete_acls(environment: Environment, api: str, gone: Iterable[Acl]) -> None:
    """Delete ACLs. Raises RefusedPart; some may be deleted then."""
    await stored(environment, api, required_catalog(environment).delete(sorted(gone)))


def _invalid(message: str) -> RefusedPart:
    return RefusedPart(ErrorCode.invalid_request, message)
