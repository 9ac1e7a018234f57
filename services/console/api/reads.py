"""What pages read: one call of the Admin service for each path.

Replies are JSON by the rules of protobuf, with the names of the fields in ``admin.proto``. 64-bit numbers are strings,
because a number of JavaScript has only 53 bits.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from google.protobuf.message import Message

from kafscale.rpc.admin import (
    CLUSTER_STATUS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUP,
    DESCRIBE_SEGMENT,
    DESCRIBE_TOPIC,
    LIST_ACLS,
    LIST_GROUPS,
    LIST_PARTITIONS,
    LIST_QUOTAS,
    LIST_SEGMENTS,
    LIST_SINKS,
    LIST_TOPICS,
    LIST_USERS,
)
from kafscale.rpc.methods import Method
from kafscale.v1 import admin_pb2 as pb
from services.console.requests import name, number

_NAME = r"([^/]+)"
_GROUP = r"([^/]*)"
"""The name of a group may be empty."""
_SEGMENTS_OF_A_PAGE = 500
_MOST_SEGMENTS = 1000
_BATCHES_OF_A_PAGE = 200


@dataclass(frozen=True, slots=True)
class Read:
    """``request`` makes the message from the names in the path and the parameters of the query."""

    path: re.Pattern[str]
    method: Method[Any, Any]
    request: Callable[[list[str], dict[str, str]], Message]


def _read(path: str, method: Method[Any, Any], request: Callable[[list[str], dict[str, str]], Message]) -> Read:
    return Read(re.compile(path), method, request)


def _segments(names: list[str], query: dict[str, str]) -> Message:
    return pb.ListSegmentsRequest(
        topic=names[0],
        partition=number("partition", names[1], most=2**31 - 1),
        start_offset=number("start", query.get("start", "0")),
        limit=number("limit", query.get("limit", str(_SEGMENTS_OF_A_PAGE)), least=1, most=_MOST_SEGMENTS),
        verify=query.get("verify") == "true",
    )


def _segment(names: list[str], query: dict[str, str]) -> Message:
    return pb.DescribeStoredSegmentRequest(
        topic=names[0],
        partition=number("partition", names[1], most=2**31 - 1),
        offset=number("offset", names[2]),
        first_batch=number("batch", query.get("batch", "0"), most=2**31 - 1),
        limit=_BATCHES_OF_A_PAGE,
    )


READS = (
    _read("/api/cluster", CLUSTER_STATUS, lambda _, __: pb.ClusterStatusRequest()),
    _read("/api/topics", LIST_TOPICS, lambda _, __: pb.ListTopicsRequest()),
    _read(f"/api/topics/{_NAME}", DESCRIBE_TOPIC, lambda names, _: pb.DescribeTopicRequest(name=names[0])),
    _read(
        f"/api/topics/{_NAME}/partitions", LIST_PARTITIONS, lambda names, _: pb.ListPartitionsRequest(topics=[names[0]])
    ),
    _read(f"/api/topics/{_NAME}/configs", DESCRIBE_CONFIGS, lambda names, _: pb.DescribeConfigsRequest(topic=names[0])),
    _read(f"/api/topics/{_NAME}/partitions/{_NAME}/segments", LIST_SEGMENTS, _segments),
    _read(f"/api/topics/{_NAME}/partitions/{_NAME}/segments/{_NAME}", DESCRIBE_SEGMENT, _segment),
    _read("/api/groups", LIST_GROUPS, lambda _, __: pb.ListConsumerGroupsRequest()),
    _read(f"/api/groups/{_GROUP}", DESCRIBE_GROUP, lambda names, _: pb.DescribeConsumerGroupRequest(group=names[0])),
    _read("/api/users", LIST_USERS, lambda _, __: pb.ListUsersRequest()),
    _read("/api/sinks", LIST_SINKS, lambda _, __: pb.ListSinksRequest()),
    _read("/api/quotas", LIST_QUOTAS, lambda _, __: pb.ListQuotasRequest()),
    _read("/api/acls", LIST_ACLS, lambda _, __: pb.ListAclsRequest()),
)


def found(path: str, query: str) -> tuple[Method[Any, Any], Message] | None:
    """Return the call for an address, or None if there is none. Raises WrongRequest."""
    for read in READS:
        match = read.path.fullmatch(path)
        if match is not None:
            return read.method, read.request(list(map(name, match.groups())), dict(parse_qsl(query)))
    return None
