"""OffsetForLeaderEpoch (23), versions 0 to 4: the end offsets of leader epochs, for clients that check positions.

- 0: returns the end offset of the largest epoch up to the requested one.
- 1: adds that epoch to the response.
- 2: adds the throttle time, and the client's current leader epoch, which is checked.
- 3: adds the replica id.
- 4: flexible.

An epoch that has not begun is answered with epoch -1 and offset -1. Epochs begin at 1, in Kafka at 0. Some clients send
0 if they do not know an epoch. A current epoch of 0 is therefore not checked, and the end of epoch 0 is the end of the
log, so a client that seeks to it keeps its position. Only logs imported from KafScale 1 contain records with epoch 0.

With ACLs, a client needs DESCRIBE on each topic, or CLUSTER_ACTION on the cluster for all.
"""

from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec, legacy
from kafscale.security.acls import CLUSTER_NAME
from kafscale.security.asks import CLUSTER_ACTION, DESCRIBE_TOPIC
from kafscale.v1 import common_pb2
from kafscale.v1.storage_pb2 import EpochEnd, EpochQuery
from services.gateway.api import Api, Call, Order, Work
from services.gateway.owners.errors import NEVER_KEPT, checked_epoch, code_of
from services.gateway.owners.link import StorageLink
from services.gateway.owners.questions import Question, ask_owners

KEY = 23


@dataclass(slots=True)
class _Partition:
    partition: int
    error_code: ErrorCode = ErrorCode.none
    leader_epoch: int = -1
    end_offset: int = -1


@dataclass(slots=True)
class _Topic:
    topic: str
    partitions: list[_Partition]


@dataclass(slots=True)
class _Reply:
    topics: list[_Topic]
    throttle_time: int = 0


_Asked = tuple[Question[EpochQuery, EpochEnd], _Partition]


def _decode(call: Call) -> Any:
    if call.version <= 1:
        return legacy.decode_offset_for_leader_epoch(call.request.body, call.version)
    return codec.decode_request(KEY, call.version, call.request.body)


def _answer(call: Call, topics: list[_Topic]) -> None:
    if call.version <= 1:
        call.count_errors(*topics)
        call.reply(legacy.encode_offset_for_leader_epoch(topics, call.version))
    else:
        call.answer(_Reply(topics))


def handle(call: Call) -> Work | None:
    topics: list[_Topic] = []
    questions: list[_Asked] = []
    authorization = call.client.authorization
    for topic in _decode(call).topics:
        known = call.environment.topics.by_name(topic.topic)
        allowed = authorization.allows_one((DESCRIBE_TOPIC, topic.topic), (CLUSTER_ACTION, CLUSTER_NAME))
        answers: list[_Partition] = []
        topics.append(_Topic(topic.topic, answers))
        for asked in topic.partitions:
            answer = _Partition(asked.partition)
            answers.append(answer)
            if not allowed:
                answer.error_code = ErrorCode.topic_authorization_failed
                continue
            if known is None or not 0 <= asked.partition < len(known.partitions):
                answer.error_code = ErrorCode.unknown_topic_or_partition
                continue
            query = EpochQuery(
                partition=known.partitions[asked.partition],
                epoch=asked.leader_epoch,
                leader_epoch=checked_epoch(asked.current_leader_epoch),
            )
            questions.append((Question((known.info.id, asked.partition), [query]), answer))
    return _ask(call, topics, questions)


async def _ask(call: Call, topics: list[_Topic], questions: list[_Asked]) -> None:
    await ask_owners(call.environment.router, [question for question, _ in questions], StorageLink.epoch_ends)
    for question, answer in questions:
        if not question.results:
            answer.error_code = NEVER_KEPT
            continue
        (end,) = question.results
        answer.error_code = code_of(end.status)
        if end.status == common_pb2.OK:
            answer.leader_epoch, answer.end_offset = end.epoch, end.end_offset
    _answer(call, topics)


def fail(call: Call, error: ErrorCode) -> None:
    topics = [
        _Topic(topic.topic, [_Partition(asked.partition, error) for asked in topic.partitions])
        for topic in _decode(call).topics
    ]
    _answer(call, topics)


API = Api(KEY, "OffsetForLeaderEpoch", range(5), handle, fail, order=Order.READS, asks=(CLUSTER_ACTION, DESCRIBE_TOPIC))
