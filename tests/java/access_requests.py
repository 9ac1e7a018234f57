"""Requests of each API, by which access to it is compared with Apache Kafka."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from kafscale.clock import wall_clock_ms
from tests.java.answer_cases import ANY_ACL, SECONDS_5
from tests.support.gateway.harness import batch

BY_ID = {"t": UUID(int=1), "hidden": UUID(int=2), "gone": UUID(int=3)}
"""Stand for the ids of topics in requests and replies, because each broker has its own."""


def metadata(*names: str) -> dict[str, Any]:
    return {
        "topics": [{"topic_id": None, "name": name} for name in names],
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }


def _topic(name: str, **of_partition: Any) -> list[dict[str, Any]]:
    partitions = [{"partition_index": 0, "partition": 0, **of_partition}]
    return [{"name": name, "topic": name, "topic_id": BY_ID[name], "partitions": partitions}]


def _topics(**of_partition: Any) -> list[dict[str, Any]]:
    return [each for name in ("t", "gone", "hidden") for each in _topic(name, **of_partition)]


MEMBER = {"group_id": "g", "member_id": "m", "generation_id": 1, "group_instance_id": None}
PRODUCE = {
    "transactional_id": None,
    "acks": -1,
    "timeout": SECONDS_5,
    "topic_data": [
        {
            "name": name,
            "topic_id": BY_ID[name],
            "partition_data": [{"index": 0, "records": batch(b"a", timestamp=wall_clock_ms())}],
        }
        for name in ("t", "gone", "hidden")
    ],
}
FETCH = {
    "replica_id": -1,
    "max_wait": timedelta(),
    "min_bytes": 1,
    "max_bytes": 1 << 20,
    "topics": _topics(fetch_offset=0, partition_max_bytes=1 << 20),
    "forgotten_topics_data": [],
}
INIT_PRODUCER_ID = {
    "transactional_id": None,
    "transaction_timeout": SECONDS_5,
    "producer_id": -1,
    "producer_epoch": -1,
}
RESOURCES = ((2, "t"), (2, "gone"), (4, "1"), (16, "m"), (32, "g"))


@dataclass(frozen=True)
class Request:
    """A request in the given versions, by default the newest. It changes nothing that later requests depend on."""

    name: str
    api_key: int
    values: Mapping[str, Any]
    versions: tuple[int, ...] = ()


def _configs(operation: bool) -> dict[str, Any]:
    config = {"name": "retention.ms", "value": "1000000", **({"config_operation": 0} if operation else {})}
    resources = [
        {"resource_type": kind, "resource_name": name, "configs": [config] if kind == 2 else []}
        for kind, name in RESOURCES[:3]
    ]
    return {"resources": resources, "validate_only": True}


def _new_topics(*names: str) -> dict[str, Any]:
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []} for name in names
    ]
    return {"topics": topics, "timeout": SECONDS_5, "validate_only": True}


REQUESTS = (
    Request("produce", 0, PRODUCE, (9, 12, 13)),
    Request("fetch", 1, FETCH, (12, 13, 16)),
    Request("list-offsets", 2, {"replica_id": -1, "isolation_level": 0, "topics": _topics(timestamp=-1)}, (5,)),
    Request("metadata", 3, metadata("t", "gone", "hidden"), (9, 12)),
    Request(
        "metadata-by-id",
        3,
        {**metadata(), "topics": [{"topic_id": each, "name": None} for each in BY_ID.values()]},
        (12,),
    ),
    Request("metadata-of-all", 3, {**metadata(), "topics": None}, (9, 12)),
    Request(
        "offset-commit",
        8,
        {
            **MEMBER,
            "generation_id_or_member_epoch": 1,
            "topics": _topics(committed_offset=0, committed_leader_epoch=-1, committed_metadata=""),
        },
        (8,),
    ),
    Request(
        "offset-fetch",
        9,
        {
            "groups": [
                {
                    "group_id": group,
                    "member_id": None,
                    "topics": [
                        {"name": name, "topic_id": BY_ID[name], "partition_indexes": [0]}
                        for name in ("t", "gone", "hidden")
                    ],
                }
                for group in ("g", "other")
            ],
            "require_stable": False,
        },
        (8,),
    ),
    Request(
        "offset-fetch-of-all",
        9,
        {"groups": [{"group_id": "g", "member_id": None, "topics": None}], "require_stable": False},
        (8,),
    ),
    Request("find-coordinator", 10, {"key_type": 0, "coordinator_keys": ["g", "other"]}, (4,)),
    Request("find-one-coordinator", 10, {"key_type": 0, "key": "g"}, (3,)),
    Request(
        "join-group",
        11,
        {
            **MEMBER,
            "session_timeout": timedelta(seconds=10),
            "rebalance_timeout": timedelta(seconds=10),
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            "reason": None,
        },
    ),
    Request("heartbeat", 12, MEMBER),
    Request(
        "leave-group", 13, {"group_id": "g", "members": [{"member_id": "m", "group_instance_id": None, "reason": None}]}
    ),
    Request("sync-group", 14, {**MEMBER, "protocol_type": "consumer", "protocol_name": "range", "assignments": []}),
    Request("describe-groups", 15, {"groups": ["g", "other"], "include_authorized_operations": True}, (5,)),
    Request("list-groups", 16, {"states_filter": [], "types_filter": []}),
    Request("create-topics", 19, _new_topics("gone", "other"), (4, 7)),
    Request("delete-topics", 20, {"topic_names": ["gone", "other"], "timeout": SECONDS_5}, (5,)),
    Request(
        "delete-topics-by-name",
        20,
        {"topics": [{"name": "gone", "topic_id": None}, {"name": "other", "topic_id": None}], "timeout": SECONDS_5},
    ),
    Request(
        "delete-topics-by-id",
        20,
        {"topics": [{"name": None, "topic_id": UUID(int=77)}], "timeout": SECONDS_5},
    ),
    Request("delete-records", 21, {"topics": _topics(offset=0), "timeout": SECONDS_5}),
    Request(
        "init-producer-id",
        22,
        INIT_PRODUCER_ID,
    ),
    Request("epoch-ends", 23, {"replica_id": -1, "topics": _topics(current_leader_epoch=-1, leader_epoch=0)}, (3, 4)),
    Request("describe-acls", 29, ANY_ACL),
    Request("create-no-acls", 30, {"creations": []}),
    Request("delete-no-acls", 31, {"filters": [{**ANY_ACL, "principal_filter": "User:unknown"}]}),
    Request(
        "describe-configs",
        32,
        {
            "resources": [
                {"resource_type": kind, "resource_name": name, "configuration_keys": ["retention.ms"]}
                for kind, name in RESOURCES
            ],
            "include_synonyms": False,
            "include_documentation": False,
        },
    ),
    Request("alter-configs", 33, _configs(operation=False)),
    # Kafka closes the connection if a client may not send version 5.
    Request("log-dirs", 35, {"topics": [{"topic": "t", "partitions": [0]}]}, (1, 2, 3, 4)),
    Request(
        "create-partitions",
        37,
        {
            "topics": [{"name": name, "count": 2, "assignments": None} for name in ("t", "gone", "hidden")],
            "timeout": SECONDS_5,
            "validate_only": True,
        },
    ),
    Request("delete-groups", 42, {"groups_names": ["g", "other"]}),
    Request("elect-leaders", 43, {"election_type": 0, "topic_partitions": [], "timeout": SECONDS_5}),
    Request("incremental-alter-configs", 44, _configs(operation=True)),
    Request("reassign", 45, {"topics": [], "timeout": SECONDS_5, "allow_replication_factor_change": True}),
    Request("reassignments", 46, {"topics": None, "timeout": SECONDS_5}),
    Request("offset-delete", 47, {"group_id": "g", "topics": _topics()}),
    Request("quotas", 48, {"components": [], "strict": False}),
    Request("new-quotas", 49, {"entries": [], "validate_only": True}),
    Request("scram", 50, {"users": [{"name": "unknown"}]}),
    Request("new-scram", 51, {"deletions": [{"name": "unknown", "mechanism": 1}], "upsertions": []}),
    Request("cluster", 60, {"include_cluster_authorized_operations": True, "endpoint_type": 1}, (1,)),
    Request(
        "producers",
        61,
        {"topics": [{"name": name, "partition_indexes": [0]} for name in ("t", "gone", "hidden")]},
    ),
    Request("transactions-of", 65, {"transactional_ids": ["x", "y"]}),
    Request("transactions", 66, {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}, (0,)),
    Request("config-resources", 74, {"resource_types": [16]}, (1,)),
    Request(
        "topic-partitions",
        75,
        {
            "topics": [{"name": name} for name in ("t", "gone", "hidden")],
            "response_partition_limit": 10,
            "cursor": None,
        },
    ),
)
