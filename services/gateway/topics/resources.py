"""The resources that have configs (topics and this broker), and changes of their configs."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale.metadata.outage import STORE_FAILURES
from kafscale.metadata.topic_values import TopicInfo, UnknownTopic
from kafscale.paths import is_topic_name
from kafscale.security import acls
from kafscale.security.acls import CLUSTER_NAME
from kafscale.security.asks import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    Ask,
)
from kafscale.topics.configs import InvalidConfig, validate
from services.gateway.access.authorization import DENIED, Authorization
from services.gateway.api import Environment
from services.gateway.owners.errors import RefusedPart

_CHANGE_SECONDS = 10.0
"""These requests have no timeout of their own."""
DELETE = 1
"""Kafka's number for the operation that deletes a config."""


class ResourceType(IntEnum):
    """Kafka's numbers. Only topics and brokers have configs here."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


Change = Callable[[Mapping[str, str]], Mapping[str, str | None]]
"""Returns the new configs, not validated yet, for a topic's current configs. Raises RefusedPart."""


@dataclass(slots=True)
class ChangedResource:
    """The result of a change of one resource."""

    resource_type: int
    resource_name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None

    def refuse(self, code: ErrorCode, message: str) -> None:
        self.error_code, self.error_message = code, message or None


_ALTER = {
    ResourceType.TOPIC: ALTER_TOPIC_CONFIGS,
    ResourceType.BROKER: ALTER_CLUSTER_CONFIGS,
    ResourceType.BROKER_LOGGER: ALTER_CLUSTER_CONFIGS,
    ResourceType.CLIENT_METRICS: ALTER_CLUSTER_CONFIGS,
    ResourceType.GROUP: ALTER_GROUP_CONFIGS,
}
_DESCRIBE = {
    ResourceType.TOPIC: DESCRIBE_TOPIC_CONFIGS,
    ResourceType.BROKER: DESCRIBE_CLUSTER_CONFIGS,
    ResourceType.BROKER_LOGGER: DESCRIBE_CLUSTER_CONFIGS,
    ResourceType.CLIENT_METRICS: DESCRIBE_CLUSTER_CONFIGS,
    ResourceType.GROUP: DESCRIBE_GROUP_CONFIGS,
}
ALTERING = tuple(dict.fromkeys(_ALTER.values()))
DESCRIBING = tuple(dict.fromkeys(_DESCRIBE.values()))
"""What changes and descriptions of configs ask for, by the type of the resource."""


def check_may_alter(authorization: Authorization, resource: Any) -> None:
    """Raise RefusedPart unless the client may change the configs of the resource."""
    _check_allowed(authorization, _ALTER, resource)


def check_may_describe(authorization: Authorization, resource: Any) -> None:
    """Raise RefusedPart unless the client may see the configs of the resource."""
    _check_allowed(authorization, _DESCRIBE, resource)


def _check_allowed(authorization: Authorization, asks: Mapping[ResourceType, Ask], resource: Any) -> None:
    if resource.resource_type not in asks:
        raise unsupported(resource.resource_type)
    ask = asks[ResourceType(resource.resource_type)]
    name = CLUSTER_NAME if ask.type is acls.ResourceType.CLUSTER else resource.resource_name
    if not authorization.allows(ask, name):
        raise RefusedPart(DENIED[ask.type], "")


def topic_of(environment: Environment, name: str) -> TopicInfo:
    """Return the live topic. Raises RefusedPart if there is none."""
    topic = environment.catalog.view.live(name)
    if topic is not None:
        return topic
    if not is_topic_name(name):
        raise RefusedPart(ErrorCode.invalid_topic_exception, f"Topic name {name!r} is not a legal one.")
    raise RefusedPart(ErrorCode.unknown_topic_or_partition, f"The topic {name} does not exist.")


def check_broker(environment: Environment, name: str) -> None:
    """Raise RefusedPart unless ``name`` is this gateway's node id. A gateway describes only itself."""
    own = str(environment.brokers.own_id)
    if name != own:
        raise RefusedPart(ErrorCode.invalid_request, f"Unexpected broker id, expected {own}, but received {name}.")


def unsupported(resource_type: int) -> RefusedPart:
    return RefusedPart(ErrorCode.invalid_request, f"Resources of type {resource_type} have no configs.")


async def change_all(
    environment: Environment,
    api: str,
    resources: Sequence[Any],
    change_of: Callable[[Any], Change],
    *,
    check: Callable[[Any], None] = lambda _: None,
    dry: bool,
) -> list[ChangedResource]:
    """Apply ``change_of`` to each resource and return the results in order. ``dry``: only validate.

    ``check`` raises RefusedPart for resources that may not be changed.
    A resource has the fields resource_type, resource_name and configs, and each config has a name.
    """
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    answers = [ChangedResource(resource.resource_type, resource.resource_name) for resource in resources]
    async with trio.open_nursery() as nursery:
        for resource, answer in zip(resources, answers, strict=True):
            try:
                if times[resource.resource_type, resource.resource_name] > 1:
                    raise RefusedPart(ErrorCode.invalid_request, "Each resource must appear at most once.")
                check(resource)
                topic, change = _plan(environment, resource, change_of)
                if topic is not None and dry:
                    _validated(change, topic.configs)
                elif topic is not None:
                    nursery.start_soon(_change, environment, api, topic, change, answer)
            except RefusedPart as refused:
                answer.refuse(refused.code, str(refused))
    return answers


def _plan(
    environment: Environment, resource: Any, change_of: Callable[[Any], Change]
) -> tuple[TopicInfo | None, Change]:
    names = [config.name for config in resource.configs]
    if len(set(names)) != len(names):
        raise RefusedPart(ErrorCode.invalid_request, "Error due to duplicate config keys.")
    if resource.resource_type == ResourceType.TOPIC:
        return topic_of(environment, resource.resource_name), change_of(resource)
    if resource.resource_type != ResourceType.BROKER:
        raise unsupported(resource.resource_type)
    if resource.resource_name:
        check_broker(environment, resource.resource_name)
    # Brokers have no dynamic configs, but tools that remove throttles delete configs that are not set.
    updated = [config.name for config in resource.configs if getattr(config, "config_operation", None) != DELETE]
    if updated:
        raise RefusedPart(
            ErrorCode.invalid_request,
            f"Cannot update these configs dynamically: {', '.join(sorted(updated))}. Brokers read their configs "
            "from KAFSCALE_ variables when they start.",
        )
    return None, dict


def _validated(change: Change, configs: Mapping[str, str]) -> Mapping[str, str]:
    try:
        return validate(change(configs))
    except InvalidConfig as error:
        raise RefusedPart(ErrorCode.invalid_config, str(error)) from error


async def _change(
    environment: Environment, api: str, topic: TopicInfo, change: Change, answer: ChangedResource
) -> None:
    answer.refuse(ErrorCode.request_timed_out, "The change of the configs was not confirmed in time.")
    with trio.move_on_after(_CHANGE_SECONDS):
        try:
            with environment.logging_refusals(api):
                await environment.catalog.configure(topic.id, lambda configs: _validated(change, configs))
            answer.error_code, answer.error_message = ErrorCode.none, None
        except RefusedPart as refused:
            answer.refuse(refused.code, str(refused))
        except UnknownTopic:
            answer.refuse(ErrorCode.unknown_topic_or_partition, f"The topic {topic.name} does not exist.")
        except STORE_FAILURES as error:
            answer.error_message = str(error)
