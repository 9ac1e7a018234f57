"""InitProducerId (22), versions 0 to 5: assigns an id to an idempotent producer.

- 0: id and epoch.
- 2: flexible.
- 3: a producer can send its current id and epoch.
- 4, 5: other error codes.
- 1: no changes.

Every response contains a new id with epoch 0, as in Kafka for producers without a transactional id. There are no
transactions, so a transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client treats as
final. All known clients request the coordinator of the transactional id first and get a message (FindCoordinator).

With ACLs, a client needs IDEMPOTENT_WRITE on the cluster or WRITE on at least one topic.
"""

from dataclasses import dataclass

import structlog
from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.security.asks import IDEMPOTENT_WRITE, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from services.gateway.access.authorization import Denied
from services.gateway.api import Api, Call, Work

KEY = 22
_NONE = -1
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode
    producer_id: int = _NONE
    producer_epoch: int = _NONE
    throttle_time: int = 0


def _answer(call: Call, reply: _Reply) -> None:
    call.answer(reply)


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    authorization = call.client.authorization
    if request.transactional_id is not None:
        authorization.check(WRITE_TRANSACTIONAL_ID, request.transactional_id)
        _log.warning("client requested transactions, which are not supported", client=call.client.host)
        _answer(call, _Reply(ErrorCode.transactional_id_authorization_failed))
        return None
    if not authorization.shows(IDEMPOTENT_WRITE) and not authorization.allows_any(WRITE_TOPIC):
        raise Denied(IDEMPOTENT_WRITE)
    return _take(call)


async def _take(call: Call) -> None:
    environment = call.environment
    try:
        with environment.logging_refusals(API.name):
            producer_id = await environment.producer_ids.take()
    except STORE_FAILURES:
        # Every client retries this error with the same coordinator.
        _answer(call, _Reply(ErrorCode.coordinator_load_in_progress))
    else:
        _answer(call, _Reply(ErrorCode.none, producer_id, 0))


def fail(call: Call, error: ErrorCode) -> None:
    _answer(call, _Reply(error))


API = Api(KEY, "InitProducerId", range(6), handle, fail, asks=(WRITE_TRANSACTIONAL_ID, IDEMPOTENT_WRITE, WRITE_TOPIC))
