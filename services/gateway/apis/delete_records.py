"""DeleteRecords (21), versions 0 to 2: raises the log start offset of partitions.

- 0: offsets, or -1 for all durable records. The response contains the log start offset.
- 2: flexible.
- 1: no changes.

The response is sent when the new log start offset is durable. The objects below it are deleted after that. In Kafka,
the request's timeout limits the wait for other replicas. Here there are none, so a request with timeout 0 still gets a
result. If a storage instance does not answer, the wait ends after KAFSCALE_STORAGE_TIMEOUT_MS, or after the request's
timeout if that is longer.

If a topic's `cleanup.policy`, or the cluster's default, does not include `delete`, nothing is deleted and the error is
POLICY_VIOLATION, as in Kafka.
"""

from collections import Counter
from dataclasses import dataclass

import trio
from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import DELETE_TOPIC
from kafscale.v1 import common_pb2
from kafscale.v1.storage_pb2 import PartitionTruncated, PartitionTruncation
from services.gateway.api import Api, Call, Work
from services.gateway.owners.errors import NEVER_KEPT, code_of
from services.gateway.owners.link import StorageLink
from services.gateway.owners.questions import Question, ask_owners

KEY = 21


@dataclass(slots=True)
class _Partition:
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    low_watermark: int = -1


@dataclass(slots=True)
class _Topic:
    name: str
    partitions: list[_Partition]


@dataclass(slots=True)
class _Reply:
    topics: list[_Topic]
    throttle_time: int = 0


_Asked = tuple[Question[PartitionTruncation, PartitionTruncated], _Partition]


def _answer(call: Call, topics: list[_Topic]) -> None:
    call.answer(_Reply(topics))


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    times = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    topics: list[_Topic] = []
    questions: list[_Asked] = []
    for topic in request.topics:
        known = call.environment.topics.by_name(topic.name)
        allowed = call.client.authorization.allows(DELETE_TOPIC, topic.name)
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
            elif not known.config.deletes:
                answer.error_code = ErrorCode.policy_violation
            else:
                ref = known.partitions[asked.partition_index]
                truncation = PartitionTruncation(partition=ref, offset=asked.offset)
                questions.append((Question((known.info.id, asked.partition_index), [truncation]), answer))
    return _ask(call, topics, questions, max(request.timeout.total_seconds(), call.environment.router.storage_timeout))


async def _ask(call: Call, topics: list[_Topic], questions: list[_Asked], seconds: float) -> None:
    with trio.move_on_after(seconds) as waiting:
        await ask_owners(call.environment.router, [question for question, _ in questions], StorageLink.delete_records)
    for question, answer in questions:
        if not question.results:
            answer.error_code = ErrorCode.request_timed_out if waiting.cancelled_caught else NEVER_KEPT
            continue
        (result,) = question.results
        answer.error_code = code_of(result.status)
        if result.status == common_pb2.OK:
            answer.low_watermark = result.log_start
    _answer(call, topics)


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    topics = [
        _Topic(topic.name, [_Partition(asked.partition_index, error) for asked in topic.partitions])
        for topic in request.topics
    ]
    _answer(call, topics)


API = Api(KEY, "DeleteRecords", range(3), handle, fail, asks=(DELETE_TOPIC,))
