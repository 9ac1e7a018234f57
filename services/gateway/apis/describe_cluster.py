"""DescribeCluster (60), versions 0 to 2: the cluster's id and its brokers.

- 0: brokers, controller and, on request, authorized operations. Flexible.
- 1: adds endpoint types.
- 2: adds fenced brokers.

The brokers are those in Metadata responses. There are no separate controllers to describe. Brokers that are not live
are unknown, so no broker is reported as fenced.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import DESCRIBE_CLUSTER
from services.gateway.api import Api, Call, Order, Work
from services.gateway.brokers import Broker
from services.gateway.topics.views import NOT_REQUESTED

KEY = 60

_BROKERS, _CONTROLLERS = 1, 2


@dataclass(frozen=True, slots=True)
class _Broker:
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False

    @classmethod
    def of(cls, broker: Broker) -> "_Broker":
        return cls(broker.node_id, broker.host, broker.port, broker.rack)


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode
    error_message: str | None
    cluster_id: str
    endpoint_type: int
    controller_id: int = -1
    brokers: tuple[_Broker, ...] = ()
    cluster_authorized_operations: int = NOT_REQUESTED
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    kind = getattr(request, "endpoint_type", _BROKERS)
    cluster_id = call.environment.cluster_id
    if kind == _BROKERS:
        found = call.environment.brokers.at(call.client.listener)
        reply = _Reply(
            ErrorCode.none,
            None,
            cluster_id,
            kind,
            found.controller,
            tuple(_Broker.of(broker) for broker in found.brokers),
            call.client.authorization.cluster_operations()
            if request.include_cluster_authorized_operations
            else NOT_REQUESTED,
        )
    elif kind == _CONTROLLERS:
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        reply = _Reply(ErrorCode.mismatched_endpoint_type, message, cluster_id, kind)
    else:
        reply = _Reply(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {kind}", cluster_id, kind)
    call.answer(reply)
    return None


def fail(call: Call, error: ErrorCode) -> None:
    reply = _Reply(error, None, call.environment.cluster_id, _BROKERS)
    call.answer(reply)


API = Api(KEY, "DescribeCluster", range(3), handle, fail, order=Order.READS, asks=(DESCRIBE_CLUSTER,))
