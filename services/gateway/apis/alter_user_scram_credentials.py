"""AlterUserScramCredentials (51), versions 0 to 0: sets and deletes SCRAM credentials of users.

- 0: deletions, and credentials to set. Flexible.

Clients are not authenticated, so credentials are refused with UNSUPPORTED_SASL_MECHANISM and a message. Deletions are
answered with RESOURCE_NOT_FOUND, as in Kafka for a user that does not exist. Each user has one result; a deletion takes
precedence over credentials to set.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from services.gateway.api import Api, Call, Work

KEY = 51

_MECHANISMS = (1, 2)  # SCRAM-SHA-256, SCRAM-SHA-512
_NOT_THERE = (ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist")
_NO_USERS = (
    ErrorCode.unsupported_sasl_mechanism,
    "SCRAM credentials are not supported because clients are not authenticated.",
)


@dataclass(frozen=True, slots=True)
class _Result:
    user: str
    error_code: ErrorCode
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class _Reply:
    results: list[_Result]
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    results: dict[str, _Result] = {}
    for each, refusal in (
        *((deletion, _NOT_THERE) for deletion in request.deletions),
        *((upsertion, _NO_USERS) for upsertion in request.upsertions),
    ):
        results.setdefault(each.name, _refused(each.name, each.mechanism, *refusal))
    call.answer(_Reply([*results.values()]))
    return None


def _refused(user: str, mechanism: int, code: ErrorCode, message: str) -> _Result:
    """Return a result with this error, or with Kafka's error for an invalid name or mechanism."""
    if not user:
        return _Result(user, ErrorCode.unacceptable_credential, "Username must not be empty")
    if mechanism not in _MECHANISMS:
        return _Result(user, ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    return _Result(user, code, message)


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    call.answer(_Reply([_Result(user, error) for user in users]))


API = Api(KEY, "AlterUserScramCredentials", range(1), handle, fail)
