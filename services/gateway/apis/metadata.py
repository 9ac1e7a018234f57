"""Metadata (3), versions 0 to 13: brokers, topics, partitions and their leaders.

- 0: an empty topic list requests all topics.
- 1: null requests all topics, an empty list none. Adds the controller, racks, and which topics are internal.
- 2: adds the cluster id.
- 3: adds the throttle time.
- 4: the client says whether topics may be created.
- 5: adds offline replicas.
- 7: adds leader epochs.
- 8: adds authorized operations.
- 9: flexible.
- 10: adds topic ids to the response.
- 11: removes the authorized operations of the cluster.
- 12: topics can be requested by id.
- 13: adds an error for the whole response.
- 6: no changes.

The brokers are the live gateways that have a listener with the same name as the one that the client connected to, at
the address of that listener. The broker with the lowest id is the controller. Every gateway serves every partition, so
leaders only spread the clients, and the leader is the only replica. The leader epoch is that of the partition's owner
in storage.

If the client and the settings allow it, topics that do not exist are created with the default configs. Kafka's internal
topics (`__consumer_offsets`, `__transaction_state`, `__share_group_state`) are not created, because KafScale does not
keep such state in topics. They are answered with UNKNOWN_TOPIC_OR_PARTITION.

One request creates at most 1,000 topics. The others are answered with LEADER_NOT_AVAILABLE, so that the client requests
them again. The partitions are charged to the quota controller_mutation_rate, as those of CreateTopics. While the quota
is exceeded, a topic is not created, and is answered with UNKNOWN_TOPIC_OR_PARTITION, which clients retry.

With ACLs, a list of all topics contains those that the client may describe. To create a topic, it needs CREATE on the
cluster or on the topic. The operations on the cluster are reported to a client that may describe it, else as 0.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale.errors import CorruptData
from kafscale.kafka import codec
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.metadata.topic_values import InvalidTopicName, TopicDeleting, TopicExists, TopicInfo
from kafscale.paths import is_topic_name
from kafscale.security.acls import CLUSTER_NAME
from kafscale.security.asks import CREATE_IN_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER, DESCRIBE_TOPIC, Ask
from services.gateway.api import Api, Call, Environment, Order, Work
from services.gateway.brokers import Broker
from services.gateway.owners.errors import RefusedPart
from services.gateway.topics.changes import charge_partitions, new_topic_id
from services.gateway.topics.views import NOT_REQUESTED, ShownPartition, operations_on_topic, shown_partition

KEY = 3

_CREATE_SECONDS = 10.0
_MOST_CREATED = 1_000
"""The maximum number of topics that one request creates."""
_STRICT_FROM = 0
_NEVER_CREATED = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
"""Kafka's internal topics. Tools look for them, but KafScale would not use their records."""


@dataclass(frozen=True, slots=True)
class _Topic:
    error_code: ErrorCode
    name: str | None
    topic_id: bytes = codec.NO_TOPIC_ID
    partitions: tuple[ShownPartition, ...] = ()
    is_internal: bool = False
    topic_authorized_operations: int = NOT_REQUESTED


@dataclass(frozen=True, slots=True)
class _Reply:
    brokers: tuple[Broker, ...]
    cluster_id: str
    controller_id: int
    topics: tuple[_Topic, ...]
    cluster_authorized_operations: int = NOT_REQUESTED
    error_code: ErrorCode = ErrorCode.none
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    environment = call.environment
    view = environment.catalog.view
    if request.topics is None or (call.version == 0 and not request.topics):
        names = [name for name in view.live_names if call.client.authorization.shows(DESCRIBE_TOPIC, name)]
        _reply(call, request, [_described(call, request, view.by_name[name]) for name in names])
        return None
    missing = _missing_topics(call, request)
    allowed = [name for name in missing if call.client.authorization.allows_one(*_creation(name))]
    errors = dict.fromkeys(missing, ErrorCode.topic_authorization_failed)
    errors |= dict.fromkeys(allowed, ErrorCode.leader_not_available)
    if allowed:
        return _create_and_reply(call, request, allowed[:_MOST_CREATED], errors)
    _reply(call, request, _found(call, request, errors))
    return None


def _changes(call: Call) -> bool:
    """Whether the request creates topics."""
    if not call.environment.settings.auto_create_topics:
        return False
    request = codec.decode_request(KEY, call.version, call.request.body)
    authorization = call.client.authorization
    return any(authorization.shows_one(*_creation(name)) for name in _missing_topics(call, request))


def _creation(name: str) -> tuple[tuple[Ask, str], ...]:
    """What a client needs to create a topic: one of these."""
    return (CREATE_IN_CLUSTER, CLUSTER_NAME), (CREATE_TOPIC, name)


def _missing_topics(call: Call, request: Any) -> list[str]:
    """The names of topics that the request creates, if the client may: valid names that are not in use and that it may
    describe, without duplicates."""
    environment = call.environment
    if not (environment.settings.auto_create_topics and getattr(request, "allow_auto_topic_creation", True)):
        return []
    view = environment.catalog.view
    topics: Iterable[Any] = request.topics or ()
    names = {
        topic.name: None for topic in topics if topic.name is not None and getattr(topic, "topic_id", None) is None
    }
    new = [name for name in names if is_topic_name(name) and name not in _NEVER_CREATED and name not in view.by_name]
    return [name for name in new if call.client.authorization.shows(DESCRIBE_TOPIC, name)]


async def _create_and_reply(call: Call, request: Any, names: list[str], errors: dict[str, ErrorCode]) -> None:
    for name in names:
        try:
            charge_partitions(call, call.environment.settings.auto_create_partitions, strict_from=_STRICT_FROM)
        except RefusedPart:
            # Clients do not expect the error of the quota in this response.
            errors[name] = ErrorCode.unknown_topic_or_partition
        else:
            errors[name] = await _create(call.environment, name)
    _reply(call, request, _found(call, request, errors))


async def _create(environment: Environment, name: str) -> ErrorCode:
    """Create a topic with default configs. Returns a retriable error if the outcome is not known in time."""
    with trio.move_on_after(_CREATE_SECONDS):
        try:
            with environment.logging_refusals(API.name):
                await environment.catalog.create(
                    name,
                    environment.settings.auto_create_partitions,
                    {},
                    now_ms=environment.now_ms(),
                    topic_id=new_topic_id(),
                )
        except InvalidTopicName:
            return ErrorCode.invalid_topic_exception
        except TopicDeleting:
            return ErrorCode.unknown_topic_or_partition
        except TopicExists:
            pass
        except STORE_FAILURES:
            return ErrorCode.leader_not_available
        return ErrorCode.none
    return ErrorCode.leader_not_available


def _found(call: Call, request: Any, errors: dict[str, ErrorCode]) -> list[_Topic]:
    """The requested topics without duplicates, in the order of the request."""
    view = call.environment.catalog.view
    authorization = call.client.authorization
    denied = ErrorCode.topic_authorization_failed
    shown: dict[tuple[str | None, bytes], _Topic] = {}
    for requested in request.topics:
        topic_id = getattr(requested, "topic_id", None)
        key = (requested.name, topic_id.bytes if topic_id is not None else b"")
        if call.version < 12 and (topic_id is not None or requested.name is None):
            shown[key] = _Topic(ErrorCode.invalid_request, requested.name or "")
        elif topic_id is not None:
            live = view.live_by_id(topic_id.bytes)
            unknown = _Topic(ErrorCode.unknown_topic_id, None, topic_id.bytes)
            if live is None:
                shown[key] = unknown
            elif not authorization.allows(DESCRIBE_TOPIC, live.name):
                shown[key] = _Topic(denied, None, topic_id.bytes)
            else:
                shown[key] = _described(call, request, live)
        elif requested.name is None:
            raise CorruptData("a Metadata request contains a topic without a name or an id")
        elif not authorization.allows(DESCRIBE_TOPIC, requested.name):
            shown[key] = _Topic(denied, requested.name)
        else:
            live = view.live(requested.name)
            shown[key] = (
                _missing(call, request, requested.name, errors) if live is None else _described(call, request, live)
            )
    return list(shown.values())


def _missing(call: Call, request: Any, name: str, errors: dict[str, ErrorCode]) -> _Topic:
    error = errors.get(name) or ErrorCode.unknown_topic_or_partition
    if not is_topic_name(name):
        error = ErrorCode.invalid_topic_exception
    return _Topic(error, name, topic_authorized_operations=_operations(call, request, name))


def _operations(call: Call, request: Any, name: str) -> int:
    requested = getattr(request, "include_topic_authorized_operations", False)
    return operations_on_topic(call, name) if requested else NOT_REQUESTED


def _described(call: Call, request: Any, topic: TopicInfo) -> _Topic:
    brokers = call.environment.brokers.at(call.client.listener)
    return _Topic(
        ErrorCode.none,
        topic.name,
        topic.id,
        tuple(shown_partition(call.environment, brokers, topic, index) for index in range(topic.partitions)),
        topic_authorized_operations=_operations(call, request, topic.name),
    )


def _reply(call: Call, request: Any, topics: list[_Topic], error: ErrorCode = ErrorCode.none) -> None:
    environment = call.environment
    brokers = environment.brokers.at(call.client.listener)
    operations = getattr(request, "include_cluster_authorized_operations", False)
    reply = _Reply(
        brokers=brokers.brokers,
        cluster_id=environment.cluster_id,
        controller_id=brokers.controller,
        topics=tuple(topics),
        cluster_authorized_operations=call.client.authorization.cluster_operations() if operations else NOT_REQUESTED,
        error_code=error,
    )
    call.answer(reply)


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    topics = [_Topic(error, requested.name or "") for requested in request.topics or ()]
    _reply(call, request, topics, error)


API = Api(
    KEY,
    "Metadata",
    range(14),
    handle,
    fail,
    order=Order.READS,
    changes=_changes,
    asks=(DESCRIBE_TOPIC, CREATE_IN_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER),
)
