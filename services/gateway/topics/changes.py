"""Creates, grows and deletes topics, for the Kafka APIs and for the Admin service.

Checks do not wait. A change waits until its deadline, in Trio's time. All functions raise RefusedPart.
"""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

import trio
from kio.schema.errors import ErrorCode

from kafscale.metadata.outage import STORE_FAILURES
from kafscale.metadata.topic_values import (
    InvalidTopicName,
    NotMorePartitions,
    TopicDeleting,
    TopicExists,
    TopicInfo,
    UnknownTopic,
)
from kafscale.paths import is_topic_name
from kafscale.topics.configs import InvalidConfig, validate
from services.gateway.api import Call, Environment
from services.gateway.owners.errors import RefusedPart

DEFAULT_PARTITIONS = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create that passed all checks, with validated configs."""

    name: str
    partitions: int
    configs: Mapping[str, str]


def new_topic_id() -> bytes:
    """A random UUID as 16 bytes, as Kafka uses for topic ids."""
    return uuid.uuid4().bytes


def check_name(environment: Environment, name: str) -> None:
    """Raise RefusedPart if, as far as this gateway knows, no topic ``name`` can be created."""
    view = environment.catalog.view
    if not is_topic_name(name):
        raise RefusedPart(ErrorCode.invalid_topic_exception, f"Topic name {name!r} is not a legal one.")
    if view.live(name) is not None:
        raise RefusedPart(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    collision = view.collision(name)
    if collision is not None:
        raise RefusedPart(
            ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {collision}"
        )


def partitions_of_new(environment: Environment, requested: int) -> int:
    """Return ``requested`` if it is valid. DEFAULT_PARTITIONS stands for the configured default."""
    partitions = environment.settings.auto_create_partitions if requested == DEFAULT_PARTITIONS else requested
    if partitions < 1:
        raise RefusedPart(ErrorCode.invalid_partitions, "Number of partitions must be larger than 0.")
    _check_limit(environment, partitions)
    return partitions


def configs_of_new(configs: Mapping[str, str | None]) -> Mapping[str, str]:
    try:
        return validate(configs)
    except InvalidConfig as error:
        raise RefusedPart(ErrorCode.invalid_config, str(error)) from error


async def create_topic(environment: Environment, api: str, topic: NewTopic, deadline: float) -> TopicInfo:
    """Create the topic on behalf of ``api``. Waits if a topic of the same name is still being deleted."""
    return await _stored(
        environment, api, deadline, "The creation of the topic was not confirmed", partial(_create, environment, topic)
    )


async def _create(environment: Environment, topic: NewTopic) -> TopicInfo:
    while True:
        try:
            return await environment.catalog.create(
                topic.name,
                topic.partitions,
                topic.configs,
                now_ms=environment.now_ms(),
                topic_id=new_topic_id(),
            )
        except TopicDeleting:
            await environment.catalog.wait_free(topic.name)


def charge_partitions(call: Call, partitions: int, *, strict_from: int) -> None:
    """Charge partitions that ``call`` creates or deletes to the quota of its client.

    Raises RefusedPart if the quota was exceeded before, from version ``strict_from`` on. In earlier versions, the
    client is only throttled.
    """
    strict = call.version >= strict_from
    if call.charge is not None and not call.charge.changed(partitions, strict=strict):
        raise RefusedPart(ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded.")


def check_growth(environment: Environment, name: str, partitions: int) -> TopicInfo:
    """Return the topic if, as far as this gateway knows, it can be grown to ``partitions`` partitions."""
    topic = environment.catalog.view.live(name)
    if topic is None:
        raise RefusedPart(ErrorCode.unknown_topic_or_partition, f"The topic {name} does not exist.")
    try:
        topic.grown(partitions)
    except NotMorePartitions as error:
        raise RefusedPart(ErrorCode.invalid_partitions, str(error)) from error
    _check_limit(environment, partitions)
    return topic


async def grow_topic(
    environment: Environment, api: str, topic: TopicInfo, partitions: int, deadline: float
) -> TopicInfo:
    step = partial(environment.catalog.grow, topic.id, partitions)
    return await _stored(environment, api, deadline, "The new number of partitions was not confirmed", step)


async def delete_topic(environment: Environment, api: str, topic: TopicInfo, deadline: float) -> None:
    """Return when the topic is hidden from clients. Its objects are deleted after that, and then the name is free."""
    step = partial(environment.catalog.mark_deleting, topic.id)
    await _stored(environment, api, deadline, "The deletion of the topic was not confirmed", step)


async def _stored(
    environment: Environment, api: str, deadline: float, late: str, step: Callable[[], Awaitable[TopicInfo]]
) -> TopicInfo:
    try:
        with trio.move_on_at(deadline), environment.logging_refusals(api):
            return await step()
    except TopicExists as error:
        raise RefusedPart(ErrorCode.topic_already_exists, f"Topic '{error}' already exists.") from error
    except InvalidTopicName as error:
        raise RefusedPart(ErrorCode.invalid_topic_exception, str(error)) from error
    except NotMorePartitions as error:
        raise RefusedPart(ErrorCode.invalid_partitions, str(error)) from error
    except UnknownTopic as error:
        raise RefusedPart(ErrorCode.unknown_topic_or_partition, f"The topic {error} does not exist.") from error
    except STORE_FAILURES as error:
        raise RefusedPart(ErrorCode.request_timed_out, str(error)) from error
    raise RefusedPart(ErrorCode.request_timed_out, f"{late} within the request's timeout.")


def _check_limit(environment: Environment, partitions: int) -> None:
    limit = environment.settings.max_partitions_per_topic
    if partitions > limit:
        message = f"{partitions} partitions exceed the limit of {limit} (KAFSCALE_MAX_PARTITIONS_PER_TOPIC)."
        raise RefusedPart(ErrorCode.invalid_partitions, message)
