"""Lists, creates and deletes ACLs. All functions raise RefusedPart."""

from enum import IntEnum
from typing import TypeVar

from kio.schema.errors import ErrorCode

from kafscale.security.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from kafscale.v1 import admin_pb2 as pb
from services.gateway.acl_changes import checked, create_acls, delete_acls, required_catalog, selected
from services.gateway.admin.topics import API
from services.gateway.api import Environment
from services.gateway.owners.errors import RefusedPart

_MATCH = "MATCH"
E = TypeVar("E", bound=IntEnum)


def list_acls(environment: Environment, request: pb.ListAclsRequest) -> pb.ListAclsReply:
    found = selected(required_catalog(environment), _filter(request.filter))
    return pb.ListAclsReply(acls=map(_shown, found))


async def create(environment: Environment, request: pb.CreateAclsRequest) -> pb.CreateAclsReply:
    await create_acls(environment, API, [_acl(each) for each in request.acls])
    return pb.CreateAclsReply()


async def delete(environment: Environment, request: pb.DeleteAclsRequest) -> pb.DeleteAclsReply:
    found = selected(required_catalog(environment), _filter(request.filter))
    if not request.validate_only:
        await delete_acls(environment, API, found)
    return pb.DeleteAclsReply(acls=map(_shown, found))


def _acl(rule: pb.AccessRule) -> Acl:
    return checked(
        Acl(
            _named(ResourceType, rule.resource_type),
            _named(PatternType, rule.pattern_type),
            rule.name,
            rule.principal,
            rule.host,
            _named(Operation, rule.operation),
            _named(Permission, rule.permission),
        )
    )


def _filter(wanted: pb.AccessRuleFilter) -> AclFilter:
    matching = wanted.pattern_type.upper() == _MATCH
    return AclFilter(
        _named(ResourceType, wanted.resource_type) if wanted.resource_type else None,
        _named(PatternType, wanted.pattern_type) if wanted.pattern_type and not matching else None,
        wanted.name or None,
        wanted.principal or None,
        wanted.host or None,
        _named(Operation, wanted.operation) if wanted.operation else None,
        _named(Permission, wanted.permission) if wanted.permission else None,
        matching=matching,
    )


def _named(kind: type[E], name: str) -> E:
    try:
        return kind[name.upper()]
    except KeyError:
        known = ", ".join(each.name for each in kind)
        raise RefusedPart(ErrorCode.invalid_request, f"{name!r} is not one of {known}") from None


def _shown(acl: Acl) -> pb.AccessRule:
    return pb.AccessRule(
        resource_type=acl.resource_type.name,
        pattern_type=acl.pattern_type.name,
        name=acl.name,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation.name,
        permission=acl.permission.name,
    )
