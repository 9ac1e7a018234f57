"""CreateTopics (19), versions 0 to 7: creates topics.

- 0: names, numbers of partitions, replication factors or assignments, and configs.
- 1: adds validate_only, and error messages.
- 2: adds the throttle time.
- 4: -1 for the number of partitions and the replication factor means the default. KafScale accepts it in all versions.
- 5: flexible. Adds partitions, replication factor and configs to the response.
- 6: the client knows THROTTLING_QUOTA_EXCEEDED.
- 7: adds topic ids to the response.
- 3: no changes.

As in Kafka, the response contains configs as they were sent, such as `compact , delete`, while DescribeConfigs returns
them normalized, such as `compact,delete`.

There are no replicas to place, so any replication factor of at least 1 is accepted and reported as 1. As in Kafka,
assignments to brokers that do not exist are refused. Other assignments only determine the number of partitions. If a
topic of the same name is still being deleted, the request waits for that within its timeout.

With ACLs, a client needs CREATE on the cluster or on each topic. It gets the configs of a new topic only if it may
describe them.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale.kafka import codec, legacy
from kafscale.security.acls import CLUSTER_NAME
from kafscale.security.asks import CREATE_IN_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS
from services.gateway.api import Api, Call, Environment, Work
from services.gateway.brokers import BrokerList
from services.gateway.owners.errors import RefusedPart
from services.gateway.topics.assignments import check_replicas
from services.gateway.topics.changes import (
    DEFAULT_PARTITIONS,
    NewTopic,
    charge_partitions,
    check_name,
    configs_of_new,
    create_topic,
    partitions_of_new,
)
from services.gateway.topics.configs import ShownConfig, topic_configs

KEY = 19

_DEFAULT_REPLICATION = -1
_STRICT_FROM = 6


@dataclass(slots=True)
class _Topic:
    name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    topic_id: bytes = codec.NO_TOPIC_ID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: tuple[ShownConfig, ...] = ()
    topic_config_error_code: ErrorCode = ErrorCode.none

    def refuse(self, refused: RefusedPart) -> None:
        self.error_code, self.error_message = refused.code, str(refused)


@dataclass(slots=True)
class _Reply:
    topics: list[_Topic]
    throttle_time: int = 0


def _decode(call: Call) -> Any:
    if call.version <= 1:
        return legacy.decode_create_topics(call.request.body, call.version)
    return codec.decode_request(KEY, call.version, call.request.body)


def _answer(call: Call, topics: list[_Topic]) -> None:
    if call.version <= 1:
        call.count_errors(*topics)
        call.reply(legacy.encode_create_topics(topics, call.version))
    else:
        call.answer(_Reply(topics))


def handle(call: Call) -> Work | None:
    request = _decode(call)
    times = Counter(topic.name for topic in request.topics)
    answers: dict[str, _Topic] = {}
    plans: list[tuple[NewTopic, _Topic]] = []
    for topic in request.topics:
        answer = answers[topic.name] = _Topic(topic.name)
        try:
            if times[topic.name] > 1:
                raise RefusedPart(ErrorCode.invalid_request, "Duplicate topic name.")
            if not _allowed(call, topic.name):
                raise RefusedPart(ErrorCode.topic_authorization_failed, "Authorization failed.")
            planned = _plan(call, topic)
            if not request.validate_only:
                charge_partitions(call, planned.partitions, strict_from=_STRICT_FROM)
        except RefusedPart as refused:
            answer.refuse(refused)
            continue
        if call.client.authorization.shows(DESCRIBE_TOPIC_CONFIGS, topic.name):
            answer.num_partitions, answer.replication_factor = planned.partitions, 1
            answer.configs = tuple(topic_configs(call.environment.settings, _configs(topic)))
        else:
            answer.topic_config_error_code = ErrorCode.topic_authorization_failed
        plans.append((planned, answer))
    deadline = trio.current_time() + max(request.timeout.total_seconds(), 0)
    return _create_all(call, list(answers.values()), [] if request.validate_only else plans, deadline)


def _allowed(call: Call, name: str) -> bool:
    return call.client.authorization.allows_one((CREATE_IN_CLUSTER, CLUSTER_NAME), (CREATE_TOPIC, name))


def _plan(call: Call, topic: Any) -> NewTopic:
    """Validate one topic without changing anything. Raises RefusedPart."""
    check_name(call.environment, topic.name)
    partitions = _partitions(call, topic)
    return NewTopic(topic.name, partitions, configs_of_new(_configs(topic)))


def _configs(topic: Any) -> dict[str, Any]:
    """The topic's configs in the request."""
    return {config.name: config.value for config in topic.configs}


def _partitions(call: Call, topic: Any) -> int:
    environment = call.environment
    if topic.assignments:
        if topic.num_partitions != DEFAULT_PARTITIONS or topic.replication_factor != _DEFAULT_REPLICATION:
            raise RefusedPart(
                ErrorCode.invalid_request,
                "Partitions and replication factor must be -1 if replicas are assigned manually.",
            )
        brokers = environment.brokers.at(call.client.listener)
        return partitions_of_new(environment, _assigned_partitions(topic.assignments, brokers))
    partitions = partitions_of_new(environment, topic.num_partitions)
    if topic.replication_factor != _DEFAULT_REPLICATION and topic.replication_factor < 1:
        raise RefusedPart(ErrorCode.invalid_replication_factor, "Replication factor must be larger than 0.")
    return partitions


def _assigned_partitions(assignments: Any, brokers: BrokerList) -> int:
    indexes = sorted(assignment.partition_index for assignment in assignments)
    if indexes != list(range(len(indexes))):
        raise RefusedPart(
            ErrorCode.invalid_replica_assignment, "Assigned partitions must be consecutive integers that begin at 0."
        )
    check_replicas([assignment.broker_ids for assignment in assignments], brokers)
    return len(indexes)


async def _create_all(call: Call, answers: list[_Topic], plans: list[tuple[NewTopic, _Topic]], deadline: float) -> None:
    # Concurrently, because a topic that waits for its name must not use up the timeout of the others.
    async with trio.open_nursery() as nursery:
        for planned, answer in plans:
            nursery.start_soon(_create, call.environment, planned, answer, deadline)
    _answer(call, answers)


async def _create(environment: Environment, planned: NewTopic, answer: _Topic, deadline: float) -> None:
    try:
        answer.topic_id = (await create_topic(environment, API.name, planned, deadline)).id
    except RefusedPart as refused:
        answer.refuse(refused)


def fail(call: Call, error: ErrorCode) -> None:
    _answer(call, [_Topic(topic.name, error) for topic in _decode(call).topics])


API = Api(KEY, "CreateTopics", range(8), handle, fail, asks=(CREATE_IN_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS))
