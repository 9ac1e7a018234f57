"""ListOffsets (2), versions 0 to 10: where logs start and end, and offsets by timestamp.

- 0: returns a list of offsets for each partition, newest first: the record that the timestamp selects, and the log
  start offset.
- 1: returns one offset and its timestamp.
- 2: adds the throttle time, and the isolation level, which has no effect.
- 4: adds the leader epoch to request and response.
- 6: flexible.
- 7: adds timestamp -3, the record with the largest timestamp.
- 8: adds timestamp -4, the earliest local offset: the log start offset, as in Kafka without tiered storage.
- 9: adds timestamp -5, the last tiered offset, which does not exist.
- 10: adds a timeout for tiered storage, which has no effect.
- 3, 5: no changes.

As in Kafka, a negative timestamp that the request's version does not define is answered with UNSUPPORTED_VERSION.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec, legacy
from kafscale.security.asks import DESCRIBE_TOPIC
from kafscale.v1 import common_pb2
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.storage_pb2 import PartitionOffset, PartitionQuery
from services.gateway.api import Api, Call, Order, Work
from services.gateway.owners.errors import NEVER_KEPT, checked_epoch, code_of
from services.gateway.owners.link import StorageLink
from services.gateway.owners.questions import Question, ask_owners

KEY = 2

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED = -1, -2, -3, -4, -5
_NEVER = 1 << 15
_SINCE = {_LATEST: 0, _EARLIEST: 0, _MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}


@dataclass(slots=True)
class _Partition:
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1
    old_style_offsets: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Topic:
    name: str
    partitions: list[_Partition]


@dataclass(slots=True)
class _Reply:
    topics: list[_Topic]
    throttle_time: int = 0


@dataclass(slots=True)
class _Asked:
    """A requested partition, the question to its owner, and the result to fill in."""

    request: Any
    question: Question[PartitionQuery, PartitionOffset]
    answer: _Partition


def _decode(call: Call) -> Any:
    if call.version == 0:
        return legacy.decode_list_offsets(call.request.body, 0)
    return codec.decode_request(KEY, call.version, call.request.body)


def _answer(call: Call, topics: list[_Topic]) -> None:
    if call.version == 0:
        call.count_errors(*topics)
        call.reply(legacy.encode_list_offsets(topics))
    else:
        call.answer(_Reply(topics))


def handle(call: Call) -> Work | None:
    request = _decode(call)
    times = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    topics: list[_Topic] = []
    questions: list[_Asked] = []
    for topic in request.topics:
        known = call.environment.topics.by_name(topic.name)
        allowed = call.client.authorization.allows(DESCRIBE_TOPIC, topic.name)
        answers: list[_Partition] = []
        topics.append(_Topic(topic.name, answers))
        for asked in topic.partitions:
            answer = _Partition(asked.partition_index)
            answers.append(answer)
            if not allowed:
                answer.error_code = ErrorCode.topic_authorization_failed
            elif times[topic.name, asked.partition_index] > 1:
                answer.error_code = ErrorCode.invalid_request
            elif known is None or not 0 <= asked.partition_index < len(known.partitions):
                answer.error_code = ErrorCode.unknown_topic_or_partition
            elif asked.timestamp < 0 and call.version < _SINCE.get(asked.timestamp, _NEVER):
                answer.error_code = ErrorCode.unsupported_version
            elif asked.timestamp != _LATEST_TIERED:
                queries = _queries(known.partitions[asked.partition_index], asked, call.version)
                question = Question[PartitionQuery, PartitionOffset]((known.info.id, asked.partition_index), queries)
                questions.append(_Asked(asked, question, answer))
    return _ask(call, topics, questions)


def _queries(partition: PartitionRef, asked: Any, version: int) -> list[PartitionQuery]:
    timestamp = _EARLIEST if asked.timestamp == _EARLIEST_LOCAL else asked.timestamp
    # Version 0 needs both ends of the log in addition to the requested offset.
    timestamps = (timestamp, _EARLIEST, _LATEST) if version == 0 else (timestamp,)
    epoch = checked_epoch(getattr(asked, "current_leader_epoch", -1))
    return [PartitionQuery(partition=partition, timestamp=each, leader_epoch=epoch) for each in timestamps]


async def _ask(call: Call, topics: list[_Topic], questions: list[_Asked]) -> None:
    await ask_owners(call.environment.router, [asked.question for asked in questions], StorageLink.list_offsets)
    for asked in questions:
        if asked.question.results:
            _settle(asked, asked.question.results)
        else:
            asked.answer.error_code = NEVER_KEPT
    _answer(call, topics)


def _settle(asked: _Asked, results: Sequence[PartitionOffset]) -> None:
    answer = asked.answer
    refused = next((result for result in results if result.status != common_pb2.OK), None)
    if refused is not None:
        answer.error_code = code_of(refused.status)
    elif len(results) == 1:
        answer.offset, answer.timestamp = results[0].offset, results[0].timestamp
        answer.leader_epoch = results[0].leader_epoch
    else:
        found, start, end = (result.offset for result in results)
        answer.old_style_offsets = _old_style(asked.request.timestamp, found, start, end)
        del answer.old_style_offsets[max(asked.request.max_num_offsets, 0) :]


def _old_style(timestamp: int, found: int, start: int, end: int) -> list[int]:
    """Return the offsets of a version 0 response, newest first: positions from which to read records of ``timestamp``.

    Kafka returns the base offsets of segments that were closed by then. Here they are the offset of the record that the
    timestamp selects, and the log start offset.
    """
    if timestamp == _EARLIEST:
        return [start]
    newest = found if found >= 0 else end
    if newest > start:
        return [newest, start]
    return [start] if timestamp == _LATEST else []


def fail(call: Call, error: ErrorCode) -> None:
    topics = [
        _Topic(topic.name, [_Partition(asked.partition_index, error) for asked in topic.partitions])
        for topic in _decode(call).topics
    ]
    _answer(call, topics)


API = Api(KEY, "ListOffsets", range(11), handle, fail, order=Order.READS, asks=(DESCRIBE_TOPIC,))
