"""OffsetCommit (8), versions 2 to 10: stores a group's committed offsets.

- 2: the retention time of the offsets.
- 3: adds the throttle time.
- 5: removes the retention time; the broker decides.
- 6: adds the leader epoch of the last record.
- 7: adds group.instance.id.
- 8: flexible.
- 9: adds the errors of Kafka 4's group protocol. One of them is GROUP_ID_NOT_FOUND, which earlier versions report as
  ILLEGAL_GENERATION.
- 10: identifies topics by id.
- 4: no changes.

Partitions that do not exist are refused with UNKNOWN_TOPIC_OR_PARTITION, or with UNKNOWN_TOPIC_ID if topics are
identified by id. The other partitions are committed. While the coordinator loads the group, the response is
COORDINATOR_NOT_AVAILABLE, unlike in Kafka. After COORDINATOR_LOAD_IN_PROGRESS, librdkafka soon gives up the commit and
reports the error to the application. After COORDINATOR_NOT_AVAILABLE it waits for the coordinator, as all other clients
do.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.metadata.topic_values import TopicInfo
from kafscale.security.asks import READ_GROUP, READ_TOPIC
from kafscale.tracing import Span, within
from kafscale.v1 import coordinator_pb2 as pb
from services.gateway.api import Api, Call, Environment, Work
from services.gateway.coordinators.errors import NO_COORDINATOR, group_code

KEY = 8

_GROUP_NOT_FOUND_FROM = 9
_BY_ID_FROM = 10
_MILLISECOND = timedelta(milliseconds=1)
_AS_THE_COORDINATOR_IS_SET = timedelta(milliseconds=-1)


@dataclass(slots=True)
class _Partition:
    partition_index: int
    error_code: ErrorCode = ErrorCode.none


@dataclass(slots=True)
class _Topic:
    name: str
    topic_id: bytes
    partitions: list[_Partition] = field(default_factory=list)


@dataclass(slots=True)
class _Reply:
    topics: list[_Topic]
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    authorization = call.client.authorization
    authorization.check(READ_GROUP, request.group_id)
    commit = pb.OffsetCommitRequest(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id_or_member_epoch,
        retention_ms=getattr(request, "retention_time", _AS_THE_COORDINATOR_IS_SET) // _MILLISECOND,
    )
    topics: list[_Topic] = []
    accepted: list[_Partition] = []
    for topic in request.topics:
        answer = _topic_result(call, topic)
        topics.append(answer)
        known = call.environment.topics.find(answer.name, answer.topic_id)
        unknown_id = known is None and call.version >= _BY_ID_FROM
        allowed = unknown_id or authorization.allows(READ_TOPIC, answer.name if known is None else known.info.name)
        for partition in topic.partitions:
            place = _Partition(partition.partition_index)
            answer.partitions.append(place)
            if unknown_id:
                place.error_code = ErrorCode.unknown_topic_id
            elif not allowed:
                place.error_code = ErrorCode.topic_authorization_failed
            elif known is None or not 0 <= partition.partition_index < len(known.partitions):
                place.error_code = ErrorCode.unknown_topic_or_partition
            else:
                accepted.append(place)
                commit.offsets.append(_offset(known.info, partition))
    if not accepted:
        _answer(call, topics)
        return None
    return _commit(call, commit, topics, accepted)


def _topic_result(call: Call, topic: Any) -> _Topic:
    if call.version < _BY_ID_FROM:
        return _Topic(topic.name, b"")
    return _Topic("", codec.NO_TOPIC_ID if topic.topic_id is None else topic.topic_id.bytes)


def _offset(topic: TopicInfo, partition: Any) -> pb.OffsetToCommit:
    return pb.OffsetToCommit(
        topic=topic.name,
        topic_id=topic.id,
        partition=partition.partition_index,
        offset=partition.committed_offset,
        leader_epoch=getattr(partition, "committed_leader_epoch", -1),
        metadata=partition.committed_metadata or "",
    )


async def _commit(call: Call, commit: pb.OffsetCommitRequest, topics: list[_Topic], accepted: list[_Partition]) -> None:
    with within(_span(call.environment, commit)):
        reply = await call.environment.coordinators.ask(
            commit.group, lambda link, timeout: link.client.offset_commit(commit, timeout=timeout)
        )
    errors = [NO_COORDINATOR] * len(accepted) if reply is None else _errors(call, reply, len(accepted))
    for place, error in zip(accepted, errors, strict=True):
        place.error_code = error
    _answer(call, topics)


def _span(environment: Environment, commit: pb.OffsetCommitRequest) -> Span | None:
    """A span linked to the traced batches of this gateway that this commit is the first to pass, or None."""
    if environment.tracer is None:
        return None
    passed = [
        place
        for each in commit.offsets
        for place in environment.traced.passed((each.topic_id, each.partition), each.offset)
    ]
    return environment.tracer.go_on("OffsetCommit", passed[0], links=passed[1:], group=commit.group) if passed else None


def _errors(call: Call, reply: pb.OffsetCommitReply, count: int) -> list[ErrorCode]:
    if reply.error == pb.GroupError.GROUP_ID_NOT_FOUND and call.version < _GROUP_NOT_FOUND_FROM:
        return [ErrorCode.illegal_generation] * count
    if reply.error == pb.GroupError.COORDINATOR_LOAD_IN_PROGRESS:
        return [NO_COORDINATOR] * count
    if reply.error != pb.GroupError.NONE:
        return [group_code(reply.error)] * count
    codes = [group_code(error) for error in reply.errors]
    if call.version < _BY_ID_FROM:
        return codes
    return [ErrorCode.unknown_topic_id if code == ErrorCode.unknown_topic_or_partition else code for code in codes]


def _answer(call: Call, topics: list[_Topic]) -> None:
    call.answer(_Reply(topics))


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    topics = [_topic_result(call, topic) for topic in request.topics]
    for answer, topic in zip(topics, request.topics, strict=True):
        answer.partitions += [_Partition(partition.partition_index, error) for partition in topic.partitions]
    _answer(call, topics)


API = Api(KEY, "OffsetCommit", range(2, 11), handle, fail, asks=(READ_GROUP, READ_TOPIC))
