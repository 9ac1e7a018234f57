"""AlterPartitionReassignments (45), versions 0 to 1: moves partitions to other brokers, or cancels such moves.

- 0: replicas for each partition, or null to cancel. Flexible.
- 1: adds whether the number of replicas may change.

The broker that is reported as a partition's only replica is determined by the live brokers and cannot be chosen. A
request for that replica succeeds and changes nothing. Other live brokers, or several, are refused with
INVALID_REPLICA_ASSIGNMENT and a message. Brokers that do not exist, an empty list, and duplicates are refused as in
Kafka. There are never reassignments to cancel, so a cancellation is answered with NO_REASSIGNMENT_IN_PROGRESS.
"""

from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import ALTER_CLUSTER
from services.gateway.api import Api, Call, Work
from services.gateway.owners.errors import RefusedPart
from services.gateway.topics.assignments import check_replicas

KEY = 45


@dataclass(frozen=True, slots=True)
class _Partition:
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class _Topic:
    name: str
    partitions: list[_Partition]


@dataclass(frozen=True, slots=True)
class _Reply:
    responses: list[_Topic]
    allow_replication_factor_change: bool
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    topics = [
        _Topic(topic.name, [_result(call, topic.name, partition) for partition in topic.partitions])
        for topic in request.topics
    ]
    call.answer(_Reply(topics, getattr(request, "allow_replication_factor_change", True)))
    return None


def _result(call: Call, name: str, requested: Any) -> _Partition:
    try:
        _check(call, name, requested)
    except RefusedPart as refused:
        return _Partition(requested.partition_index, refused.code, str(refused) or None)
    return _Partition(requested.partition_index)


def _check(call: Call, name: str, requested: Any) -> None:
    """Raise RefusedPart unless the partition already has the requested replica."""
    topic = call.environment.catalog.view.live(name)
    if topic is None:
        raise RefusedPart(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {name}.")
    if not 0 <= requested.partition_index < topic.partitions:
        message = f"Unable to find partition {name}:{requested.partition_index}."
        raise RefusedPart(ErrorCode.unknown_topic_or_partition, message)
    if requested.replicas is None:
        raise RefusedPart(ErrorCode.no_reassignment_in_progress, "")
    brokers = call.environment.brokers.at(call.client.listener)
    check_replicas([requested.replicas], brokers)
    own = brokers.leader(topic.id, requested.partition_index)
    if tuple(requested.replicas) != (own,):
        partition = f"{name}-{requested.partition_index}"
        message = f"Replicas cannot be reassigned; the only replica of {partition} is on broker {own}."
        raise RefusedPart(ErrorCode.invalid_replica_assignment, message)


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    topics = [
        _Topic(topic.name, [_Partition(partition.partition_index, error) for partition in topic.partitions])
        for topic in request.topics
    ]
    call.answer(_Reply(topics, getattr(request, "allow_replication_factor_change", True), error))


API = Api(KEY, "AlterPartitionReassignments", range(2), handle, fail, needs=ALTER_CLUSTER)
