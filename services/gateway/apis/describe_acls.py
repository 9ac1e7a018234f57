"""DescribeAcls (29), versions 1 to 3: lists access control lists.

- 1: a filter with a pattern type.
- 2: flexible.
- 3: no changes.

There is no authorization. The response is SECURITY_DISABLED, as from a Kafka broker without an authorizer.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from services.gateway.api import Api, Call, Work

KEY = 29


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode
    error_message: str | None = None
    resources: tuple[()] = ()
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    codec.decode_request(KEY, call.version, call.request.body)
    call.answer(_Reply(ErrorCode.security_disabled, "No Authorizer is configured on the broker"))
    return None


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply(error))


API = Api(KEY, "DescribeAcls", range(1, 4), handle, fail)
