"""DeleteAcls (31), versions 1 to 3: deletes the access control lists that match filters.

- 1: filters with a pattern type.
- 2: flexible.
- 3: no changes.

Without KAFSCALE_ACLS, each filter is refused with SECURITY_DISABLED, as by a Kafka broker without an authorizer.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.acls import Acl
from kafscale.security.asks import ALTER_CLUSTER
from services.gateway.acl_changes import delete_acls, filter_of, required_catalog, selected
from services.gateway.api import Api, Call, Work
from services.gateway.owners.errors import RefusedPart

KEY = 31

_NOT_ENFORCED = "No Authorizer is configured."
"""As a Kafka broker without an authorizer says it."""


@dataclass(frozen=True, slots=True)
class _Deleted:
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None

    @classmethod
    def of(cls, acl: Acl) -> "_Deleted":
        resource = (acl.resource_type, acl.name, acl.pattern_type)
        return cls(*resource, acl.principal, acl.host, acl.operation, acl.permission)


@dataclass(slots=True)
class _Result:
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    matching_acls: tuple[_Deleted, ...] = ()

    def refuse(self, refused: RefusedPart) -> None:
        self.error_code, self.error_message, self.matching_acls = refused.code, str(refused), ()


@dataclass(frozen=True, slots=True)
class _Reply:
    filter_results: list[_Result]
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    results: list[_Result] = []
    gone: set[Acl] = set()
    for each in request.filters:
        result = _Result()
        results.append(result)
        try:
            catalog = required_catalog(call.environment, _NOT_ENFORCED)
            wanted = filter_of(each.resource_type_filter, each.pattern_type_filter, each.resource_name_filter, each)
        except RefusedPart as refused:
            result.refuse(refused)
            continue
        # As in Kafka, an ACL that several filters match is reported for the first one.
        found = [acl for acl in selected(catalog, wanted) if acl not in gone]
        result.matching_acls = tuple(map(_Deleted.of, found))
        gone.update(found)
    return _delete(call, gone, results)


async def _delete(call: Call, gone: set[Acl], results: list[_Result]) -> None:
    if gone:
        try:
            await delete_acls(call.environment, API.name, gone)
        except RefusedPart as refused:
            for result in results:
                if not result.error_code:
                    result.refuse(refused)
    call.answer(_Reply(results))


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    call.answer(_Reply([_Result(error)] * len(request.filters)))


API = Api(KEY, "DeleteAcls", range(1, 4), handle, fail, needs=ALTER_CLUSTER)
