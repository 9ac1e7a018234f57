"""What callers of the Admin service need if ACLs are enforced."""

from collections.abc import Iterable
from typing import Any

from kafscale.rpc.access import Need, Needs
from kafscale.security.asks import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    CREATE_IN_CLUSTER,
    CREATE_TOPIC,
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    READ_GROUP,
    READ_TOPIC,
)


def _name(request: Any) -> Iterable[str]:
    return (request.name,)


def _topic(request: Any) -> Iterable[str]:
    return (request.topic,)


def _topics(request: Any) -> Iterable[str]:
    names: Iterable[str] = request.topics
    return names


def _group(request: Any) -> Iterable[str]:
    return (request.group,)


def _reset(request: Any) -> Iterable[str]:
    return {each.topic for each in request.topics}


_DESCRIBE, _ALTER = (Need(DESCRIBE_CLUSTER),), (Need(ALTER_CLUSTER),)

NEEDS: Needs = {
    "ClusterStatus": _DESCRIBE,
    "ClusterTotals": _DESCRIBE,
    "WatchCluster": _DESCRIBE,
    "ListTopics": _DESCRIBE,
    "CreateTopic": (Need(CREATE_IN_CLUSTER), Need(CREATE_TOPIC, _name)),
    # The reply contains the topic's configs.
    "DescribeTopic": (Need(DESCRIBE_TOPIC, _name, also=(Need(DESCRIBE_TOPIC_CONFIGS, _name),)),),
    "GrowTopic": (Need(ALTER_TOPIC, _name),),
    "DeleteTopic": (Need(DELETE_TOPIC, _name),),
    "ListPartitions": (*_DESCRIBE, Need(DESCRIBE_TOPIC, _topics)),
    "ListSegments": (*_DESCRIBE, Need(DESCRIBE_TOPIC, _topic)),
    "DescribeSegment": (*_DESCRIBE, Need(DESCRIBE_TOPIC, _topic)),
    "RebuildIndexes": (*_ALTER, Need(ALTER_TOPIC, _topic)),
    "FlushTopics": (*_ALTER, Need(ALTER_TOPIC, _topics)),
    "DescribeConfigs": (Need(DESCRIBE_TOPIC_CONFIGS, _topic),),
    "AlterConfigs": (Need(ALTER_TOPIC_CONFIGS, _topic),),
    "ListConsumerGroups": _DESCRIBE,
    # The reply contains offsets of topics that the request does not name.
    "DescribeConsumerGroup": (Need(DESCRIBE_GROUP, _group, also=_DESCRIBE),),
    # Without topics, the offsets of all topics of the group are reset.
    "ResetOffsets": (*_ALTER, Need(READ_GROUP, _group, also=(Need(READ_TOPIC, _reset),))),
    "DeleteConsumerGroup": (Need(DELETE_GROUP, _group),),
    "ListUsers": _DESCRIBE,
    "SetUserCredentials": _ALTER,
    "DeleteUserCredentials": _ALTER,
    "ListAcls": _DESCRIBE,
    "CreateAcls": _ALTER,
    "DeleteAcls": _ALTER,
    "ListQuotas": (Need(DESCRIBE_CLUSTER_CONFIGS),),
    "SetQuotas": (Need(ALTER_CLUSTER_CONFIGS),),
    "ListSinks": _DESCRIBE,
    "DrainInstance": _ALTER,
    "CancelDrain": _ALTER,
    "FinalizeUpgrade": _ALTER,
}
"""The table of the methods. Every method is in it, because none is for other services."""
