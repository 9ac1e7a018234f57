"""FindCoordinator (10), versions 0 to 6: the broker that a consumer group's members connect to.

- 0: one group.
- 1: adds a key type, the throttle time and an error message.
- 3: flexible.
- 4: several keys.
- 6: adds key type 2 for share groups.
- 2, 5: no changes.

The response names one of the brokers in Metadata responses, chosen by the group's name. All gateways give the same
answer, and each of them serves every group. Only groups (key type 0) have coordinators. There are no transactions, so
key type 1 is refused with CLUSTER_AUTHORIZATION_FAILED and a message that the Java client and librdkafka show. Every
client treats this error as final, while librdkafka retries after nearly any other. Other key types are refused with
INVALID_REQUEST.
"""

from dataclasses import dataclass

import structlog
from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import DESCRIBE_GROUP
from services.gateway.api import Api, Call, Order, Work
from services.gateway.brokers import Broker

KEY = 10

_GROUP = 0
_TRANSACTION = 1
_SEVERAL_FROM = 4
_log = structlog.get_logger(__name__)
_NOBODY = Broker(-1, "", -1)


@dataclass(frozen=True, slots=True)
class _Coordinator:
    """The coordinator of one key. Before version 4, it is the whole response."""

    key: str
    error_code: ErrorCode
    node_id: int
    host: str
    port: int
    error_message: str | None = None
    throttle_time: int = 0


@dataclass(frozen=True, slots=True)
class _Reply:
    coordinators: list[_Coordinator]
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    key_type = getattr(request, "key_type", _GROUP)
    if key_type != _GROUP:
        message = "transactions and share groups are not supported; only consumer groups have coordinators"
        error = ErrorCode.invalid_request
        if key_type == _TRANSACTION:
            error = ErrorCode.cluster_authorization_failed
            _log.warning("client requested transactions, which are not supported", client=call.client.host)
        _answer(call, [_refused(key, error, message) for key in _keys(call, request)])
        return None
    brokers = call.environment.brokers.at(call.client.listener)
    _answer(
        call,
        [
            _found(key, brokers.coordinator(key))
            if call.client.authorization.allows(DESCRIBE_GROUP, key)
            else _refused(key, ErrorCode.group_authorization_failed)
            for key in _keys(call, request)
        ],
    )
    return None


def _keys(call: Call, request: object) -> tuple[str, ...]:
    keys: tuple[str, ...] = getattr(request, "coordinator_keys", ())
    return keys if call.version >= _SEVERAL_FROM else (getattr(request, "key", ""),)


def _found(key: str, broker: Broker) -> _Coordinator:
    return _Coordinator(key, ErrorCode.none, broker.node_id, broker.host, broker.port)


def _refused(key: str, error: ErrorCode, message: str | None = None) -> _Coordinator:
    return _Coordinator(key, error, _NOBODY.node_id, _NOBODY.host, _NOBODY.port, message)


def _answer(call: Call, coordinators: list[_Coordinator]) -> None:
    reply = _Reply(coordinators) if call.version >= _SEVERAL_FROM else coordinators[0]
    call.answer(reply)


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    _answer(call, [_refused(key, error) for key in _keys(call, request)])


API = Api(KEY, "FindCoordinator", range(7), handle, fail, order=Order.READS, asks=(DESCRIBE_GROUP,))
