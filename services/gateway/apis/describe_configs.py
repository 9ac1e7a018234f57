"""DescribeConfigs (32), versions 1 to 4: the configs of topics and of this gateway.

- 1: the source of each config and, on request, its synonyms.
- 3: adds types and, on request, documentation.
- 4: flexible.
- 2: no changes.

A broker describes only itself, so clients send the request to the gateway with that id. All broker configs are
read-only. The broker config that provides a topic config's default is a synonym of the topic config, under Kafka's
name, and the documentation names the variable that sets it. The cluster-wide broker (an empty name), broker loggers,
groups and client metrics subscriptions have no configs; the response contains an empty list for them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from services.gateway.api import Api, Call, Environment, Order, Work
from services.gateway.owners.errors import RefusedPart
from services.gateway.topics.configs import ConfigSource, ShownConfig, Synonym, broker_configs, topic_configs
from services.gateway.topics.resources import (
    DESCRIBING,
    ResourceType,
    check_broker,
    check_may_describe,
    topic_of,
    unsupported,
)

KEY = 32


@dataclass(frozen=True, slots=True)
class _Config:
    name: str
    value: str
    read_only: bool
    config_source: ConfigSource
    synonyms: tuple[Synonym, ...]
    config_type: int
    documentation: str | None
    is_sensitive: bool = False


@dataclass(slots=True)
class _Result:
    resource_type: int
    resource_name: str
    configs: tuple[_Config, ...] = ()
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@dataclass(slots=True)
class _Reply:
    results: list[_Result]
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    documented = getattr(request, "include_documentation", False)
    results = []
    # What is listed several times is described once: a small request must not make a huge response.
    for resource in dict.fromkeys(request.resources):
        result = _Result(resource.resource_type, resource.resource_name)
        results.append(result)
        try:
            check_may_describe(call.client.authorization, resource)
            configs = _configs(call.environment, resource)
        except RefusedPart as refused:
            result.error_code, result.error_message = refused.code, str(refused) or None
            continue
        # An empty list requests all configs, as null does.
        names = set(resource.configuration_keys or ())
        selected = (config for config in configs if not names or config.name in names)
        result.configs = tuple(_reported(selected, synonyms=request.include_synonyms, documented=documented))
    call.answer(_Reply(results))
    return None


def _configs(environment: Environment, resource: Any) -> list[ShownConfig]:
    if resource.resource_type == ResourceType.TOPIC:
        return topic_configs(environment.settings, topic_of(environment, resource.resource_name).configs)
    match resource.resource_type:
        case ResourceType.CLIENT_METRICS | ResourceType.GROUP:
            return []
        case ResourceType.BROKER if not resource.resource_name:
            return []
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            check_broker(environment, resource.resource_name)
        case unknown:
            raise unsupported(unknown)
    own = environment.brokers.own_id
    return broker_configs(environment, own) if resource.resource_type == ResourceType.BROKER else []


def _reported(configs: Iterable[ShownConfig], *, synonyms: bool, documented: bool) -> Iterable[_Config]:
    for config in configs:
        yield _Config(
            config.name,
            config.value,
            config.read_only,
            config.config_source,
            config.synonyms if synonyms else (),
            config.config_type,
            config.documentation if documented else None,
        )


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    results = [_Result(resource.resource_type, resource.resource_name, (), error) for resource in request.resources]
    call.answer(_Reply(results))


API = Api(KEY, "DescribeConfigs", range(1, 5), handle, fail, order=Order.READS, asks=DESCRIBING)
