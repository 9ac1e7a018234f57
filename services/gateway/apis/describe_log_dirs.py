"""DescribeLogDirs (35), versions 1 to 5: the size of partitions in the object store.

- 1: topics and partitions, or null for all. The response contains sizes.
- 2: flexible.
- 3: adds an error for the whole response.
- 4: adds the size of the volume, which is unknown.
- 5: adds whether the directory accepts no more partitions, which is never the case.

The only directory has the name of the namespace. A gateway reports the partitions that it leads, so the responses of
all brokers add up. A partition's size is the size of all segment objects with records at or above the log start offset,
as listed by the owner. Indexes and records that are not in segments yet are not included. All owners are asked at the
same time and report the sizes that they know in time. Other sizes are -1: Kafka's response has no error for a single
partition, and an error for the directory would hide the other sizes. Partitions that do not exist are omitted.
"""

from dataclasses import dataclass
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import DESCRIBE_CLUSTER
from kafscale.v1 import common_pb2
from kafscale.v1.storage_pb2 import LogSize, SizeQuery
from services.gateway.api import Api, Call, Order, Work
from services.gateway.owners.link import StorageLink
from services.gateway.owners.questions import Question, ask_owners
from services.gateway.topic_cache import KnownTopic

KEY = 35

_UNKNOWN = -1
_MOST_OF_THE_TIMEOUT = 0.8
"""The Java admin client waits only as long as the default of the whole timeout."""


@dataclass(slots=True)
class _Partition:
    partition_index: int
    partition_size: int = _UNKNOWN
    offset_lag: int = 0
    is_future_key: bool = False


@dataclass(slots=True)
class _Topic:
    name: str
    partitions: list[_Partition]


@dataclass(slots=True)
class _Directory:
    log_dir: str
    topics: list[_Topic]
    error_code: ErrorCode = ErrorCode.none


@dataclass(slots=True)
class _Reply:
    results: list[_Directory]
    error_code: ErrorCode = ErrorCode.none
    throttle_time: int = 0


_Asked = tuple[Question[SizeQuery, LogSize], _Partition]


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    brokers = call.environment.brokers.at(call.client.listener)
    own = call.environment.brokers.own_id
    topics: list[_Topic] = []
    questions: list[_Asked] = []
    for known, indexes in _asked(call, request):
        answers = []
        for index in sorted(indexes):
            if 0 <= index < len(known.partitions) and brokers.leader(known.info.id, index) == own:
                answers.append(answer := _Partition(index))
                query = SizeQuery(partition=known.partitions[index])
                questions.append((Question((known.info.id, index), [query]), answer))
        if answers:
            topics.append(_Topic(known.info.name, answers))
    return _ask(call, topics, questions)


def _asked(call: Call, request: Any) -> list[tuple[KnownTopic, set[int]]]:
    """The requested topics that exist, without duplicates, and the requested partitions of each."""
    requested: dict[str, set[int]] = {}
    if request.topics is None:
        live = (topic for topic in call.environment.catalog.view.by_name.values() if topic.live)
        requested = {topic.name: set(range(topic.partitions)) for topic in live}
    for topic in request.topics or ():
        requested.setdefault(topic.topic, set()).update(topic.partitions)
    found = ((call.environment.topics.by_name(name), indexes) for name, indexes in sorted(requested.items()))
    return [(known, indexes) for known, indexes in found if known is not None]


async def _ask(call: Call, topics: list[_Topic], questions: list[_Asked]) -> None:
    asked = [question for question, _ in questions]
    most_ms = round(call.environment.settings.storage_timeout_ms * _MOST_OF_THE_TIMEOUT)
    # Listing a long log takes time, and no client is blocked meanwhile, so the usual grace period does not apply.
    with trio.move_on_after(most_ms / 1000):
        await ask_owners(call.environment.router, asked, StorageLink.log_sizes, grace_ms=most_ms)
    for question, answer in questions:
        for result in question.results:
            if result.status == common_pb2.OK:
                answer.partition_size = result.bytes
    directory = _Directory(call.environment.namespace, topics)
    call.answer(_Reply([directory]))


def fail(call: Call, error: ErrorCode) -> None:
    # As in Kafka, a client that may not describe the cluster gets no directory.
    denied = error == ErrorCode.cluster_authorization_failed
    directories = [] if denied else [_Directory(call.environment.namespace, [], error)]
    call.answer(_Reply(directories, error))


API = Api(KEY, "DescribeLogDirs", range(1, 6), handle, fail, order=Order.READS, needs=DESCRIBE_CLUSTER)
