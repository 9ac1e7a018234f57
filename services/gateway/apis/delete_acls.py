"""DeleteAcls (31), versions 1 to 3: deletes the access control lists that match filters.

- 1: filters with a pattern type.
- 2: flexible.
- 3: no changes.

There is no authorization. Each filter is refused with SECURITY_DISABLED, as by a Kafka broker without an authorizer.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from services.gateway.api import Api, Call, Work

KEY = 31


@dataclass(frozen=True, slots=True)
class _Result:
    error_code: ErrorCode
    error_message: str | None = None
    matching_acls: tuple[()] = ()


@dataclass(frozen=True, slots=True)
class _Reply:
    filter_results: list[_Result]
    throttle_time: int = 0


def _answer(call: Call, result: _Result) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    call.answer(_Reply([result] * len(request.filters)))


def handle(call: Call) -> Work | None:
    _answer(call, _Result(ErrorCode.security_disabled, "No Authorizer is configured."))
    return None


def fail(call: Call, error: ErrorCode) -> None:
    _answer(call, _Result(error))


API = Api(KEY, "DeleteAcls", range(1, 4), handle, fail)
