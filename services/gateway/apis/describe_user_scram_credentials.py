"""DescribeUserScramCredentials (50), versions 0 to 0: the SCRAM credentials of users.

- 0: users; null or an empty list requests all. Flexible.

Clients are not authenticated, so no user has credentials. As in Kafka, each requested user is answered with
RESOURCE_NOT_FOUND, and a user that is requested twice with DUPLICATE_RESOURCE.
"""

from collections import Counter
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from services.gateway.api import Api, Call, Work

KEY = 50


@dataclass(frozen=True, slots=True)
class _User:
    user: str
    error_code: ErrorCode
    error_message: str | None = None
    credential_infos: tuple[()] = ()


@dataclass(frozen=True, slots=True)
class _Reply:
    results: list[_User]
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    times = Counter(user.name for user in request.users or ())
    call.answer(_Reply([_found(name, times[name]) for name in times]))
    return None


def _found(name: str, times: int) -> _User:
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return _User(name, ErrorCode.duplicate_resource, message)
    message = f"Attempt to describe a user credential that does not exist: {name}"
    return _User(name, ErrorCode.resource_not_found, message)


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply([], error))


API = Api(KEY, "DescribeUserScramCredentials", range(1), handle, fail)
