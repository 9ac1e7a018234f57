"""DescribeProducers (61), versions 0 to 0: the active producers of partitions.

- 0: partitions by topic. Flexible.

A partition's owner reports the idempotent producers that it knows from appended batches. There are no transactions, so
the coordinator epoch and the start offset of the transaction are -1, as in Kafka for producers without one. The last
timestamp is the time of the last append, not that of its records.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.paths import is_topic_name
from kafscale.security.asks import READ_TOPIC
from kafscale.v1 import common_pb2
from kafscale.v1.storage_pb2 import KnownProducer, PartitionProducers, ProducersQuery
from services.gateway.api import Api, Call, Work
from services.gateway.owners.errors import NEVER_KEPT, code_of
from services.gateway.owners.link import StorageLink
from services.gateway.owners.questions import Question, ask_owners
from services.gateway.topic_cache import KnownTopic

KEY = 61


@dataclass(frozen=True, slots=True)
class _Producer:
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int = -1
    current_txn_start_offset: int = -1


@dataclass(slots=True)
class _Partition:
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    active_producers: tuple[_Producer, ...] = ()


@dataclass(frozen=True, slots=True)
class _Topic:
    name: str
    partitions: list[_Partition]


@dataclass(frozen=True, slots=True)
class _Reply:
    topics: list[_Topic]
    throttle_time: int = 0


_Asked = tuple[Question[ProducersQuery, PartitionProducers], _Partition]


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    topics: list[_Topic] = []
    questions: list[_Asked] = []
    # What is listed several times is described once: a small request must not make a huge response.
    requested: dict[str, dict[int, None]] = {}
    for asked in request.topics:
        requested.setdefault(asked.name, {}).update(dict.fromkeys(asked.partition_indexes))
    for name, indexes in requested.items():
        known = call.environment.topics.by_name(name)
        allowed = call.client.authorization.allows(READ_TOPIC, name)
        topic = _Topic(name, [_placed(known, name, index, allowed=allowed) for index in indexes])
        topics.append(topic)
        if known is not None:
            questions += _questions(known, topic.partitions)
    return _ask(call, topics, questions)


def _placed(known: KnownTopic | None, name: str, index: int, *, allowed: bool) -> _Partition:
    if not allowed:
        return _Partition(index, ErrorCode.topic_authorization_failed)
    if not is_topic_name(name):
        return _Partition(index, ErrorCode.invalid_topic_exception, f"Topic name {name!r} is not a legal one.")
    if known is None:
        return _Partition(index, ErrorCode.unknown_topic_or_partition, f"The topic {name} does not exist.")
    if not 0 <= index < len(known.partitions):
        return _Partition(index, ErrorCode.unknown_topic_or_partition)
    return _Partition(index)


def _questions(known: KnownTopic, partitions: Iterable[_Partition]) -> Iterable[_Asked]:
    for partition in partitions:
        if not partition.error_code:
            index = partition.partition_index
            query = ProducersQuery(partition=known.partitions[index])
            yield Question((known.info.id, index), [query]), partition


async def _ask(call: Call, topics: list[_Topic], questions: list[_Asked]) -> None:
    await ask_owners(call.environment.router, [question for question, _ in questions], StorageLink.producers)
    for question, partition in questions:
        if not question.results:
            partition.error_code = NEVER_KEPT
            continue
        (found,) = question.results
        partition.error_code = code_of(found.status)
        if found.status == common_pb2.OK:
            partition.active_producers = tuple(map(_shown, found.producers))
    call.answer(_Reply(topics))


def _shown(known: KnownProducer) -> _Producer:
    return _Producer(known.producer_id, known.epoch, known.last_sequence, known.used_ms)


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    topics = [
        _Topic(asked.name, [_Partition(index, error) for index in asked.partition_indexes]) for asked in request.topics
    ]
    call.answer(_Reply(topics))


API = Api(KEY, "DescribeProducers", range(1), handle, fail, asks=(READ_TOPIC,))
