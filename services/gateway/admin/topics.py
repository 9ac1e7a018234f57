"""Lists, creates, describes, grows and deletes topics. All functions raise RefusedPart."""

import base64
from collections.abc import Mapping

import trio

from kafscale.metadata.topic_values import TopicInfo
from kafscale.topics.definitions import CLEANUP_POLICY
from kafscale.v1 import admin_pb2 as pb
from services.gateway.api import Environment
from services.gateway.topics import changes as topic_changes
from services.gateway.topics.resources import topic_of

API = "Admin"
"""The name under which the log reports requests that the metadata store refused."""

_CHANGE_SECONDS = 30.0
"""The timeout of a change. The caller can shorten it by the deadline of the call."""


def change_deadline() -> float:
    """Return the deadline of a change that begins now, in Trio's time."""
    return trio.current_time() + _CHANGE_SECONDS


def list_topics(environment: Environment) -> pb.ListTopicsReply:
    """List all topics, including those that are being deleted."""
    topics = environment.catalog.view.by_name
    return pb.ListTopicsReply(topics=[_status(environment, topics[name]) for name in sorted(topics)])


def describe_topic(environment: Environment, request: pb.DescribeTopicRequest) -> pb.DescribeTopicReply:
    return pb.DescribeTopicReply(topic=_status(environment, topic_of(environment, request.name)))


async def create_topic(environment: Environment, request: pb.CreateTopicRequest) -> pb.CreateTopicReply:
    topic_changes.check_name(environment, request.name)
    requested = request.partitions or topic_changes.DEFAULT_PARTITIONS
    planned = topic_changes.NewTopic(
        request.name,
        topic_changes.partitions_of_new(environment, requested),
        topic_changes.configs_of_new(dict(request.configs)),
    )
    if request.validate_only:
        return pb.CreateTopicReply(
            topic=pb.TopicStatus(
                name=planned.name,
                partitions=planned.partitions,
                configs=planned.configs,
                cleanup_policy=cleanup_policy(environment, planned.configs),
            )
        )
    created = await topic_changes.create_topic(environment, API, planned, change_deadline())
    return pb.CreateTopicReply(topic=_status(environment, created))


async def grow_topic(environment: Environment, request: pb.GrowTopicRequest) -> pb.GrowTopicReply:
    topic_of(environment, request.name)
    topic = topic_changes.check_growth(environment, request.name, request.partitions)
    if request.validate_only:
        return pb.GrowTopicReply(topic=_status(environment, topic.grown(request.partitions)))
    grown = await topic_changes.grow_topic(environment, API, topic, request.partitions, change_deadline())
    return pb.GrowTopicReply(topic=_status(environment, grown))


async def delete_topic(environment: Environment, request: pb.DeleteTopicRequest) -> pb.DeleteTopicReply:
    topic = topic_of(environment, request.name)
    await topic_changes.delete_topic(environment, API, topic, change_deadline())
    return pb.DeleteTopicReply()


def cleanup_policy(environment: Environment, configs: Mapping[str, str]) -> str:
    """The cleanup policy that applies to a topic with ``configs``."""
    return configs.get(CLEANUP_POLICY, environment.settings.cleanup_policy)


def _status(environment: Environment, topic: TopicInfo) -> pb.TopicStatus:
    return pb.TopicStatus(
        name=topic.name,
        id=base64.urlsafe_b64encode(topic.id).decode().rstrip("="),
        partitions=topic.partitions,
        configs=topic.configs,
        created_ms=topic.created_ms,
        deleting=not topic.live,
        cleanup_policy=cleanup_policy(environment, topic.configs),
    )
