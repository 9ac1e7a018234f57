"""ListConfigResources (74), versions 0 to 1: the names of resources that have configs.

- 0: client metrics subscriptions. Flexible.
- 1: resources of the requested types, or of all types.

Topics and brokers have configs. Client metrics subscriptions and group configs do not exist, and the levels of broker
loggers cannot be set, so none of these are listed. As in Kafka, other types are refused with UNSUPPORTED_VERSION.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import DESCRIBE_CLUSTER_CONFIGS
from services.gateway.api import Api, Call, Work
from services.gateway.topics.resources import ResourceType

KEY = 74


@dataclass(frozen=True, slots=True)
class _Resource:
    resource_name: str
    resource_type: int


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode = ErrorCode.none
    config_resources: tuple[_Resource, ...] = ()
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    known: set[int] = set(ResourceType)
    requested = set(getattr(request, "resource_types", (ResourceType.CLIENT_METRICS,))) or known
    if not requested <= known:
        call.answer(_Reply(ErrorCode.unsupported_version))
        return None
    resources: list[_Resource] = []
    if ResourceType.BROKER in requested:
        brokers = call.environment.brokers.at(call.client.listener).brokers
        resources += (_Resource(str(broker.node_id), ResourceType.BROKER) for broker in brokers)
    if ResourceType.TOPIC in requested:
        resources += (_Resource(name, ResourceType.TOPIC) for name in call.environment.catalog.view.live_names)
    call.answer(_Reply(config_resources=tuple(resources)))
    return None


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply(error))


API = Api(KEY, "ListConfigResources", range(2), handle, fail, needs=DESCRIBE_CLUSTER_CONFIGS)
