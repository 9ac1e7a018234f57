"""CreateAcls (30), versions 1 to 3: adds access control lists.

- 1: ACLs with a pattern type.
- 2: flexible.
- 3: no changes.

Without KAFSCALE_ACLS, each ACL is refused with SECURITY_DISABLED, as by a Kafka broker without an authorizer. An ACL
that exists is created again without an effect. ACLs about delegation tokens, and about users, which Kafka uses for
tokens, can be created, but no request asks for them.
"""

from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.acls import Acl
from kafscale.security.asks import ALTER_CLUSTER
from services.gateway.acl_changes import acl_of, create_acls, required_catalog
from services.gateway.api import Api, Call, Work
from services.gateway.owners.errors import RefusedPart

KEY = 30

_NOT_ENFORCED = "No Authorizer is configured."
"""As a Kafka broker without an authorizer says it."""


@dataclass(slots=True)
class _Result:
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None

    def refuse(self, refused: RefusedPart) -> None:
        self.error_code, self.error_message = refused.code, str(refused)


@dataclass(frozen=True, slots=True)
class _Reply:
    results: list[_Result]
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    results: list[_Result] = []
    new: list[tuple[Acl, _Result]] = []
    for creation in request.creations:
        result = _Result()
        results.append(result)
        try:
            required_catalog(call.environment, _NOT_ENFORCED)
            new.append((_acl(creation), result))
        except RefusedPart as refused:
            result.refuse(refused)
    return _create(call, new, results)


def _acl(creation: Any) -> Acl:
    return acl_of(creation.resource_type, creation.resource_pattern_type, creation.resource_name, creation)


async def _create(call: Call, new: list[tuple[Acl, _Result]], results: list[_Result]) -> None:
    if new:
        try:
            await create_acls(call.environment, API.name, [acl for acl, _ in new])
        except RefusedPart as refused:
            for _, result in new:
                result.refuse(refused)
    call.answer(_Reply(results))


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    call.answer(_Reply([_Result(error)] * len(request.creations)))


API = Api(KEY, "CreateAcls", range(1, 4), handle, fail, needs=ALTER_CLUSTER)
