"""What callers of the Admin service need if ACLs are enforced."""

from collections.abc import Iterable
from typing import Any

from kafscale.rpc.access import Need, Needs
from kafscale.security.asks import (
    ALTER_CLUSTER,
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    CREATE_IN_CLUSTER,
    CREATE_TOPIC,
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    READ_GROUP,
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


_DESCRIBE, _ALTER = (Need(DESCRIBE_CLUSTER),), (Need(ALTER_CLUSTER),)

NEEDS: Needs = {
    "ClusterStatus": _DESCRIBE,
    "WatchCluster": _DESCRIBE,
    "ListTopics": _DESCRIBE,
    "CreateTopic": (Need(CREATE_IN_CLUSTER), Need(CREATE_TOPIC, _name)),
    "DescribeTopic": (Need(DESCRIBE_TOPIC, _name),),
    "GrowTopic": (Need(ALTER_TOPIC, _name),),
    "DeleteTopic": (Need(DELETE_TOPIC, _name),),
    "ListPartitions": (*_DESCRIBE, Need(DESCRIBE_TOPIC, _topics)),
    "ListSegments": (*_DESCRIBE, Need(DESCRIBE_TOPIC, _topic)),
    "RebuildIndexes": (*_ALTER, Need(ALTER_TOPIC, _topic)),
    "FlushTopics": (*_ALTER, Need(ALTER_TOPIC, _topics)),
    "DescribeConfigs": (Need(DESCRIBE_TOPIC_CONFIGS, _topic),),
    "AlterConfigs": (Need(ALTER_TOPIC_CONFIGS, _topic),),
    "ListConsumerGroups": _DESCRIBE,
    "DescribeConsumerGroup": (Need(DESCRIBE_GROUP, _group),),
    "ResetOffsets": (Need(READ_GROUP, _group),),
    "DeleteConsumerGroup": (Need(DELETE_GROUP, _group),),
    "ListUsers": _DESCRIBE,
    "SetUserCredentials": _ALTER,
    "DeleteUserCredentials": _ALTER,
    "ListAcls": _DESCRIBE,
    "CreateAcls": _ALTER,
    "DeleteAcls": _ALTER,
    "DrainInstance": _ALTER,
    "CancelDrain": _ALTER,
    "FinalizeUpgrade": _ALTER,
}
"""The table of the methods. Every method is in it, because none is for other services."""
