"""DescribeUserScramCredentials (50), versions 0 to 0: the SCRAM credentials of users.

- 0: users; null or an empty list requests all. Flexible.

The response has mechanisms and iterations only. A user that does not exist is answered with RESOURCE_NOT_FOUND, and a
user that is requested twice with DUPLICATE_RESOURCE.
"""

from collections import Counter
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import DESCRIBE_CLUSTER
from services.gateway.api import Api, Call, Environment, Work

KEY = 50


@dataclass(frozen=True, slots=True)
class _Credential:
    mechanism: int
    iterations: int


@dataclass(frozen=True, slots=True)
class _User:
    user: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    credential_infos: tuple[_Credential, ...] = ()


@dataclass(frozen=True, slots=True)
class _Reply:
    results: list[_User]
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    environment = call.environment
    times = Counter(user.name for user in request.users or ()) or Counter(sorted(environment.users.users))
    call.answer(_Reply([_found(environment, name, times[name]) for name in times]))
    return None


def _found(environment: Environment, name: str, times: int) -> _User:
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return _User(name, ErrorCode.duplicate_resource, message)
    user = environment.users.users.get(name)
    if user is None:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return _User(name, ErrorCode.resource_not_found, message)
    credentials = sorted(user.credentials.items(), key=lambda item: item[0].code)
    return _User(
        name, credential_infos=tuple(_Credential(mechanism.code, known.iterations) for mechanism, known in credentials)
    )


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply([_User("", error)], error))


API = Api(KEY, "DescribeUserScramCredentials", range(1), handle, fail, needs=DESCRIBE_CLUSTER)
