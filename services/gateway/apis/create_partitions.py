"""CreatePartitions (37), versions 0 to 3: increases the number of partitions of topics.

- 0: the new number of partitions, assignments, and validate_only.
- 2: flexible.
- 3: the client knows THROTTLING_QUOTA_EXCEEDED.
- 1: no changes.

The response is sent when the new number is stored; other gateways and storage learn it from the metadata store. There
are no replicas to place: as in Kafka, assignments to brokers that do not exist are refused, and other assignments have
no effect. As in Kafka, keys map to other partitions afterwards.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.metadata.topic_values import TopicInfo
from kafscale.security.asks import ALTER_TOPIC
from services.gateway.api import Api, Call, Environment, Work
from services.gateway.owners.errors import RefusedPart
from services.gateway.topics.assignments import check_replicas
from services.gateway.topics.changes import charge_partitions, check_growth, grow_topic

KEY = 37

_STRICT_FROM = 3


@dataclass(slots=True)
class _Topic:
    name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None

    def refuse(self, refused: RefusedPart) -> None:
        self.error_code, self.error_message = refused.code, str(refused)


@dataclass(slots=True)
class _Reply:
    results: list[_Topic]
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    times = Counter(topic.name for topic in request.topics)
    answers: dict[str, _Topic] = {}
    plans: list[tuple[TopicInfo, int, _Topic]] = []
    for topic in request.topics:
        answer = answers[topic.name] = _Topic(topic.name)
        try:
            if not call.client.authorization.allows(ALTER_TOPIC, topic.name):
                raise RefusedPart(ErrorCode.topic_authorization_failed, "Authorization failed.")
            if times[topic.name] > 1:
                raise RefusedPart(ErrorCode.invalid_request, "Duplicate topic name.")
            found = _checked(call, topic)
            if not request.validate_only:
                charge_partitions(call, topic.count - found.partitions, strict_from=_STRICT_FROM)
            plans.append((found, topic.count, answer))
        except RefusedPart as refused:
            answer.refuse(refused)
    deadline = trio.current_time() + max(request.timeout.total_seconds(), 0)
    return _grow_all(call, list(answers.values()), [] if request.validate_only else plans, deadline)


def _checked(call: Call, requested: Any) -> TopicInfo:
    """Validate the change and return the topic. Raises RefusedPart."""
    topic = check_growth(call.environment, requested.name, requested.count)
    if requested.assignments is not None:
        more = requested.count - topic.partitions
        if len(requested.assignments) != more:
            raise RefusedPart(
                ErrorCode.invalid_replica_assignment,
                f"Attempted to add {more} additional partition(s), but {len(requested.assignments)} assignment(s) were "
                "specified.",
            )
        brokers = call.environment.brokers.at(call.client.listener)
        check_replicas([assignment.broker_ids for assignment in requested.assignments], brokers)
    return topic


async def _grow_all(
    call: Call, answers: list[_Topic], plans: list[tuple[TopicInfo, int, _Topic]], deadline: float
) -> None:
    async with trio.open_nursery() as nursery:
        for topic, count, answer in plans:
            nursery.start_soon(_grow, call.environment, topic, count, answer, deadline)
    call.answer(_Reply(answers))


async def _grow(environment: Environment, topic: TopicInfo, count: int, answer: _Topic, deadline: float) -> None:
    try:
        await grow_topic(environment, API.name, topic, count, deadline)
    except RefusedPart as refused:
        answer.refuse(refused)


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    answers = [_Topic(topic.name, error) for topic in request.topics]
    call.answer(_Reply(answers))


API = Api(KEY, "CreatePartitions", range(4), handle, fail, asks=(ALTER_TOPIC,))
