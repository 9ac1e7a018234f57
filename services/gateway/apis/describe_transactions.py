"""DescribeTransactions (65), versions 0 to 0: the transactions of producers, by transactional id.

- 0: transactional ids. Flexible.

There are no transactions, so each id is answered with TRANSACTIONAL_ID_NOT_FOUND, as by a Kafka coordinator that does
not know it. Most tools send FindCoordinator first and show its error.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import DESCRIBE_TRANSACTIONAL_ID
from services.gateway.api import Api, Call, Work

KEY = 65

_NEVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class _State:
    transactional_id: str
    error_code: ErrorCode
    transaction_state: str = ""
    transaction_timeout: int = 0
    transaction_start_time: datetime = _NEVER
    producer_id: int = 0
    producer_epoch: int = 0
    topics: tuple[()] = ()


@dataclass(frozen=True, slots=True)
class _Reply:
    transaction_states: list[_State]
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    call.answer(_Reply([_State(name, _error(call, name)) for name in request.transactional_ids]))
    return None


def _error(call: Call, name: str) -> ErrorCode:
    if not call.client.authorization.allows(DESCRIBE_TRANSACTIONAL_ID, name):
        return ErrorCode.transactional_id_authorization_failed
    return ErrorCode.transactional_id_not_found if name else ErrorCode.invalid_request


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    call.answer(_Reply([_State(name, error) for name in request.transactional_ids]))


API = Api(KEY, "DescribeTransactions", range(1), handle, fail, asks=(DESCRIBE_TRANSACTIONAL_ID,))
