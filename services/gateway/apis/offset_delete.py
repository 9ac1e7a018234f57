"""OffsetDelete (47), versions 0 to 0: deletes a group's offsets of topics that it no longer reads.

- 0: partitions of one group.

Partitions that do not exist are refused with UNKNOWN_TOPIC_OR_PARTITION. The group's coordinator decides about the
others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import DELETE_GROUP, READ_TOPIC
from kafscale.v1 import coordinator_pb2 as pb
from services.gateway.api import Api, Call, Work
from services.gateway.coordinators.errors import NO_COORDINATOR, group_code

KEY = 47


@dataclass(slots=True)
class _Partition:
    partition_index: int
    error_code: ErrorCode = ErrorCode.none


@dataclass(slots=True)
class _Topic:
    name: str
    partitions: list[_Partition] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode
    topics: Sequence[_Topic] = ()
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    authorization = call.client.authorization
    authorization.check(DELETE_GROUP, request.group_id)
    delete = pb.OffsetDeleteRequest(group=request.group_id)
    topics: list[_Topic] = []
    accepted: list[_Partition] = []
    for topic in request.topics:
        answer = _Topic(topic.name)
        topics.append(answer)
        known = call.environment.topics.by_name(topic.name)
        allowed = authorization.allows(READ_TOPIC, topic.name)
        for partition in topic.partitions:
            place = _Partition(partition.partition_index)
            answer.partitions.append(place)
            if not allowed:
                place.error_code = ErrorCode.topic_authorization_failed
            elif known is None or not 0 <= partition.partition_index < len(known.partitions):
                place.error_code = ErrorCode.unknown_topic_or_partition
            else:
                accepted.append(place)
                delete.partitions.add(topic=topic.name, partition=partition.partition_index)
    return _delete(call, delete, topics, accepted)


async def _delete(call: Call, delete: pb.OffsetDeleteRequest, topics: list[_Topic], accepted: list[_Partition]) -> None:
    reply = await call.environment.coordinators.ask(
        delete.group, lambda link, timeout: link.client.offset_delete(delete, timeout=timeout)
    )
    if reply is None:
        _answer(call, _Reply(NO_COORDINATOR))
    elif reply.error != pb.GroupError.NONE:
        _answer(call, _Reply(group_code(reply.error)))
    else:
        for place, error in zip(accepted, reply.errors, strict=True):
            place.error_code = group_code(error)
        _answer(call, _Reply(ErrorCode.none, topics))


def _answer(call: Call, reply: _Reply) -> None:
    call.answer(reply)


def fail(call: Call, error: ErrorCode) -> None:
    _answer(call, _Reply(error))


API = Api(KEY, "OffsetDelete", range(1), handle, fail, asks=(DELETE_GROUP, READ_TOPIC))
