"""DescribeAcls (29), versions 1 to 3: lists access control lists.

- 1: a filter with a pattern type.
- 2: flexible.
- 3: no changes.

Without KAFSCALE_ACLS, the response is SECURITY_DISABLED, as from a Kafka broker without an authorizer.
"""

from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.acls import Acl
from kafscale.security.asks import DESCRIBE_CLUSTER
from services.gateway.acl_changes import filter_of, required_catalog, selected
from services.gateway.api import Api, Call, Work
from services.gateway.owners.errors import RefusedPart

KEY = 29

_NOT_ENFORCED = "No Authorizer is configured on the broker"
"""As a Kafka broker without an authorizer says it."""


@dataclass(frozen=True, slots=True)
class _Entry:
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class _Resource:
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: list[_Entry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    resources: tuple[_Resource, ...] = ()
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    try:
        catalog = required_catalog(call.environment, _NOT_ENFORCED)
        wanted = filter_of(
            request.resource_type_filter, request.pattern_type_filter, request.resource_name_filter, request
        )
    except RefusedPart as refused:
        call.answer(_Reply(refused.code, str(refused)))
        return None
    call.answer(_Reply(resources=_by_resource(selected(catalog, wanted))))
    return None


def _by_resource(acls: list[Acl]) -> tuple[_Resource, ...]:
    found: dict[tuple[int, str, int], _Resource] = {}
    for acl in acls:
        key = (acl.resource_type, acl.name, acl.pattern_type)
        resource = found.setdefault(key, _Resource(*key))
        resource.acls.append(_Entry(acl.principal, acl.host, acl.operation, acl.permission))
    return tuple(found.values())


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply(error))


API = Api(KEY, "DescribeAcls", range(1, 4), handle, fail, needs=DESCRIBE_CLUSTER)
