"""DescribeLogDirs (35), versions 1 to 5: how much partitions take in the object store.

- 1: topics and partitions, null for all; sizes. 2: flexible. 3: an error for the whole reply. 4: the volume's size,
  which is not known. 5: whether the directory takes no more partitions, which is never so.

The one directory bears the namespace's name. A gateway tells of the partitions whose leader it is, so that the brokers'
answers add up. The size is that of all segment objects that hold anything from the log start on, as their owner has
listed them, without indexes, and without what is not stored yet. Owners are asked at the same time, and tell of what
they know in time; the other sizes are -1, for a partition has no error of its own in Kafka's reply, and one of the
directory would hide the rest. Partitions that do not exist are left out.
"""

from dataclasses import dataclass
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.v1 import common_pb2
from kafscale.v1.storage_pb2 import LogSize, SizeQuery
from services.gateway.api import Api, Call, Order, Work
from services.gateway.owners.link import StorageLink
from services.gateway.owners.questions import Question, ask_owners
from services.gateway.topic_cache import KnownTopic

KEY = 35

_UNKNOWN = -1
_MOST_OF_THE_TIMEOUT = 0.8
"""Java's admin client waits no longer than the default of the whole timeout."""


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
    """The topics that there are, each once, and the partitions asked for."""
    wanted: dict[str, set[int]] = {}
    if request.topics is None:
        live = (topic for topic in call.environment.catalog.view.by_name.values() if topic.live)
        wanted = {topic.name: set(range(topic.partitions)) for topic in live}
    for topic in request.topics or ():
        wanted.setdefault(topic.topic, set()).update(topic.partitions)
    found = ((call.environment.topics.by_name(name), indexes) for name, indexes in sorted(wanted.items()))
    return [(known, indexes) for known, indexes in found if known is not None]


async def _ask(call: Call, topics: list[_Topic], questions: list[_Asked]) -> None:
    asked = [question for question, _ in questions]
    most_ms = round(call.environment.settings.storage_timeout_ms * _MOST_OF_THE_TIMEOUT)
    # A long listing is worth waiting for: an owner's grace is for clients that stand still meanwhile.
    with trio.move_on_after(most_ms / 1000):
        await ask_owners(call.environment.router, asked, StorageLink.log_sizes, grace_ms=most_ms)
    for question, answer in questions:
        for result in question.results:
            if result.status == common_pb2.OK:
                answer.partition_size = result.bytes
    directory = _Directory(call.environment.namespace, topics)
    call.answer(_Reply([directory]))


def fail(call: Call, error: ErrorCode) -> None:
    directory = _Directory(call.environment.namespace, [], error)
    call.answer(_Reply([directory], error))


API = Api(KEY, "DescribeLogDirs", range(1, 6), handle, fail, order=Order.READS)
