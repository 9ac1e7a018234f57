"""CreateTopics (19), versions 0 to 7.

- 0: names, partitions, replication factor or assignments, configs. 1: validate_only; messages in the reply.
- 2: throttle time. 3: as 2. 4: -1 for partitions and replication means the defaults (taken in any version here).
- 5: flexible; the reply shows partitions, replication factor and configs. 6: as 5. 7: topic ids in the reply.

There are no replicas to place: any replication factor of at least 1 is taken and shown as 1, assignments are checked
for their shape and count as a number of partitions. A name whose topic is still being deleted is waited for within the
timeout.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale.kafka import codec, legacy
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.metadata.topic_values import InvalidTopicName, TopicDeleting, TopicExists
from kafscale.paths import is_topic_name
from kafscale.topics.configs import InvalidConfig, validate
from services.gateway.api import Api, Call, Environment, Work
from services.gateway.assignments import check_replicas
from services.gateway.configs import ShownConfig, topic_configs
from services.gateway.ids import new_topic_id
from services.gateway.kafka_errors import RefusedPart

KEY = 19

_DEFAULT = -1


@dataclass(slots=True)
class _Topic:
    name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    topic_id: bytes = codec.NO_TOPIC_ID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: tuple[ShownConfig, ...] = ()


@dataclass(slots=True)
class _Reply:
    topics: list[_Topic]
    throttle_time: int = 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """A topic that passed all checks."""

    answer: _Topic
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


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
    plans: list[_Plan] = []
    for topic in request.topics:
        answer = answers[topic.name] = _Topic(topic.name)
        try:
            if times[topic.name] > 1:
                raise RefusedPart(ErrorCode.invalid_request, "Duplicate topic name.")
            plans.append(_plan(call.environment, topic, answer))
        except RefusedPart as refused:
            answer.error_code, answer.error_message = refused.code, str(refused)
    deadline = trio.current_time() + max(request.timeout.total_seconds(), 0)
    return _create_all(call, list(answers.values()), [] if request.validate_only else plans, deadline)


def _plan(environment: Environment, topic: Any, answer: _Topic) -> _Plan:
    """Check one topic as far as that is possible without changing anything. Raises RefusedPart."""
    view = environment.catalog.view
    if not is_topic_name(topic.name):
        raise RefusedPart(ErrorCode.invalid_topic_exception, f"Topic name {topic.name!r} is not a legal one.")
    if view.live(topic.name) is not None:
        raise RefusedPart(ErrorCode.topic_already_exists, f"Topic '{topic.name}' already exists.")
    collision = view.collision(topic.name)
    if collision is not None:
        raise RefusedPart(
            ErrorCode.invalid_topic_exception, f"Topic '{topic.name}' collides with existing topic: {collision}"
        )
    partitions = _partitions(environment, topic)
    try:
        configs = validate({config.name: config.value for config in topic.configs})
    except InvalidConfig as error:
        raise RefusedPart(ErrorCode.invalid_config, str(error)) from error
    answer.num_partitions, answer.replication_factor = partitions, 1
    answer.configs = tuple(topic_configs(environment.settings, configs))
    return _Plan(answer, partitions, configs)


def _partitions(environment: Environment, topic: Any) -> int:
    if topic.assignments:
        if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
            raise RefusedPart(
                ErrorCode.invalid_request,
                "Partitions and replication factor must be -1 beside a manual assignment.",
            )
        partitions = _assigned_partitions(topic.assignments)
    else:
        partitions = topic.num_partitions
        if partitions == _DEFAULT:
            partitions = environment.settings.auto_create_partitions
        if partitions < 1:
            raise RefusedPart(ErrorCode.invalid_partitions, "Number of partitions must be larger than 0.")
        if topic.replication_factor != _DEFAULT and topic.replication_factor < 1:
            raise RefusedPart(ErrorCode.invalid_replication_factor, "Replication factor must be larger than 0.")
    most = environment.settings.max_partitions_per_topic
    if partitions > most:
        raise RefusedPart(ErrorCode.invalid_partitions, f"{partitions} partitions are more than {most}.")
    return int(partitions)


def _assigned_partitions(assignments: Any) -> int:
    indexes = sorted(assignment.partition_index for assignment in assignments)
    if indexes != list(range(len(indexes))):
        raise RefusedPart(
            ErrorCode.invalid_replica_assignment, "Assigned partitions must be consecutive numbers from 0, each once."
        )
    check_replicas([assignment.broker_ids for assignment in assignments])
    return len(indexes)


async def _create_all(call: Call, answers: list[_Topic], plans: list[_Plan], deadline: float) -> None:
    # At the same time: one that waits for its name must not use up the others' timeout.
    async with trio.open_nursery() as nursery:
        for plan in plans:
            nursery.start_soon(_create, call.environment, plan, deadline)
    _answer(call, answers)


async def _create(environment: Environment, plan: _Plan, deadline: float) -> None:
    answer = plan.answer
    answer.error_code = ErrorCode.request_timed_out
    answer.error_message = "The topic was not made within the request's timeout."
    with trio.move_on_at(deadline):
        try:
            with environment.asking_the_store(API.name):
                answer.topic_id = await _make(environment, plan)
            answer.error_code, answer.error_message = ErrorCode.none, None
        except TopicExists:
            answer.error_code = ErrorCode.topic_already_exists
            answer.error_message = f"Topic '{answer.name}' already exists."
        except InvalidTopicName as error:
            answer.error_code, answer.error_message = ErrorCode.invalid_topic_exception, str(error)
        except STORE_FAILURES as error:
            answer.error_message = str(error)


async def _make(environment: Environment, plan: _Plan) -> bytes:
    while True:
        try:
            made = await environment.catalog.create(
                plan.answer.name,
                plan.partitions,
                plan.configs,
                now_ms=environment.now_ms(),
                topic_id=new_topic_id(),
            )
        except TopicDeleting:
            await environment.catalog.wait_free(plan.answer.name)
        else:
            return made.id


def fail(call: Call, error: ErrorCode) -> None:
    _answer(call, [_Topic(topic.name, error) for topic in _decode(call).topics])


API = Api(KEY, "CreateTopics", range(8), handle, fail)
