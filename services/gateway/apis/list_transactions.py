"""ListTransactions (66), versions 0 to 2: the transactions that this broker coordinates.

- 0: filters by state and by producer id. Flexible.
- 1: adds a filter by duration.
- 2: adds a pattern for transactional ids.

There are no transactions, so the list is empty. As in Kafka, the response lists states in the filter that do not exist,
and a pattern that is not a regular expression is refused with INVALID_REGULAR_EXPRESSION.
"""

import re
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from services.gateway.api import Api, Call, Work

KEY = 66

_STATES = frozenset(
    (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    )
)


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode = ErrorCode.none
    unknown_state_filters: tuple[str, ...] = ()
    transaction_states: tuple[()] = ()
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    try:
        re.compile(getattr(request, "transactional_id_pattern", None) or "")
    except re.error:
        call.answer(_Reply(ErrorCode.invalid_regular_expression))
        return None
    call.answer(_Reply(unknown_state_filters=tuple(state for state in request.state_filters if state not in _STATES)))
    return None


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply(error))


API = Api(KEY, "ListTransactions", range(3), handle, fail)
