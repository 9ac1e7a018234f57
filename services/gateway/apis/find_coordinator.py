"""FindCoordinator (10), versions 0 to 6: which broker a consumer group's members turn to.

- 0: one group. 1: a key type, throttle time, an error message. 2: same on the wire. 3: flexible.
- 4: several keys. 5: same on the wire. 6: key type 2, share groups.

The answer is a live gateway, as Metadata tells them, spread by the group's name; each gateway gives the same answer,
and each serves every group. Only groups (key type 0) have coordinators here. There are no transactions (key type 1):
they are refused with CLUSTER_AUTHORIZATION_FAILED and a message, which the Java client and librdkafka show, and every
client takes as final; librdkafka asks again after nearly any other error. Other types get INVALID_REQUEST.
"""

from dataclasses import dataclass

import structlog
from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
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
    """One key's; before version 4 it is the whole reply."""

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
        message = "only consumer groups have coordinators: there are no transactions and no share groups"
        error = ErrorCode.invalid_request
        if key_type == _TRANSACTION:
            error = ErrorCode.cluster_authorization_failed
            _log.warning("a client asks for transactions, which are not supported", client=call.client.host)
        _answer(call, [_refused(key, error, message) for key in _keys(call, request)])
        return None
    brokers = call.environment.brokers.at(call.client.listener)
    _answer(call, [_found(key, brokers.coordinator(key)) for key in _keys(call, request)])
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


API = Api(KEY, "FindCoordinator", range(7), handle, fail, order=Order.READS)
