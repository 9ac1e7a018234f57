"""Describes and alters configs of topics. Both functions raise RefusedPart."""

from collections.abc import Mapping
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.topics.configs import validate
from kafscale.topics.definitions import DEFINITIONS
from kafscale.v1 import admin_pb2 as pb
from services.gateway.admin.topics import API, cleanup_policy
from services.gateway.api import Environment
from services.gateway.owners.errors import RefusedPart
from services.gateway.topics.configs import ConfigSource, topic_configs
from services.gateway.topics.resources import Change, ResourceType, change_all, topic_of

_SOURCES = {ConfigSource.TOPIC: "topic", ConfigSource.STATIC_BROKER: "broker", ConfigSource.DEFAULT: "default"}


@dataclass(frozen=True, slots=True)
class _Named:
    name: str


@dataclass(frozen=True, slots=True)
class _Resource:
    """A topic in the form that `change_all` expects."""

    resource_name: str
    configs: tuple[_Named, ...]
    resource_type: int = ResourceType.TOPIC


def describe_configs(environment: Environment, request: pb.DescribeConfigsRequest) -> pb.DescribeConfigsReply:
    topic = topic_of(environment, request.topic)
    reply = pb.DescribeConfigsReply()
    for config in topic_configs(environment.settings, topic.configs):
        reply.configs.add(
            name=config.name,
            value=config.synonyms[0].value,
            source=_SOURCES[config.config_source],
            documentation=config.documentation or "",
        )
    return reply


async def alter_configs(environment: Environment, request: pb.AlterConfigsRequest) -> pb.AlterConfigsReply:
    """Set and unset configs. Refuses unknown names, and names that are both set and unset or are unset twice."""
    updated, removed = dict(request.set), list(request.unset)
    unknown = [name for name in removed if name not in DEFINITIONS]
    if unknown:
        raise RefusedPart(ErrorCode.invalid_config, f"Unknown topic config name: {unknown[0]}")

    def change(configs: Mapping[str, str]) -> Mapping[str, str | None]:
        return {name: value for name, value in {**configs, **updated}.items() if name not in removed}

    def change_of(_: _Resource) -> Change:
        return change

    topic = topic_of(environment, request.topic)
    resource = _Resource(request.topic, tuple(_Named(name) for name in (*updated, *removed)))
    (answer,) = await change_all(environment, API, [resource], change_of, dry=request.validate_only)
    if answer.error_code:
        raise RefusedPart(answer.error_code, answer.error_message or answer.error_code.name)
    return pb.AlterConfigsReply(cleanup_policy=cleanup_policy(environment, validate(change(topic.configs))))
