"""CreateAcls (30), versions 1 to 3: adds access control lists.

- 1: ACLs with a pattern type.
- 2: flexible.
- 3: no changes.

There is no authorization. Each ACL is refused with SECURITY_DISABLED, as by a Kafka broker without an authorizer.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from services.gateway.api import Api, Call, Work

KEY = 30


@dataclass(frozen=True, slots=True)
class _Result:
    error_code: ErrorCode
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class _Reply:
    results: list[_Result]
    throttle_time: int = 0


def _answer(call: Call, result: _Result) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    call.answer(_Reply([result] * len(request.creations)))


def handle(call: Call) -> Work | None:
    _answer(call, _Result(ErrorCode.security_disabled, "No Authorizer is configured."))
    return None


def fail(call: Call, error: ErrorCode) -> None:
    _answer(call, _Result(error))


API = Api(KEY, "CreateAcls", range(1, 4), handle, fail)
