"""DescribeTopicPartitions (75), versions 0 to 0: topics ordered by name, in pages of partitions.

- 0: names (none requests all topics), a limit, and the cursor from an earlier response. Flexible.

A response contains at most 2000 partitions, or fewer if the client says so, and the cursor for the next request.
Topics are never created by this request.
"""

from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.metadata.topic_values import TopicsView
from kafscale.paths import is_topic_name
from kafscale.security.asks import DESCRIBE_TOPIC
from services.gateway.api import Api, Call, Order, Work
from services.gateway.topics.views import NOT_REQUESTED, ShownPartition, operations_on_topic, shown_partition

KEY = 75

_MOST_PARTITIONS = 2000


@dataclass(frozen=True, slots=True)
class _Topic:
    error_code: ErrorCode
    name: str
    topic_id: bytes = codec.NO_TOPIC_ID
    partitions: tuple[ShownPartition, ...] = ()
    topic_authorized_operations: int = NOT_REQUESTED
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class _Cursor:
    topic_name: str
    partition_index: int


@dataclass(slots=True)
class _Reply:
    topics: list[_Topic]
    next_cursor: _Cursor | None = None
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    named = {topic.name for topic in request.topics}
    cursor = request.cursor
    if cursor is not None and (cursor.partition_index < 0 or (named and cursor.topic_name not in named)):
        fail(call, ErrorCode.invalid_request)
        return None
    view = call.environment.catalog.view
    authorization = call.client.authorization
    names = sorted(named) or [name for name in view.live_names if authorization.shows(DESCRIBE_TOPIC, name)]
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    call.answer(_described(call, view, names, request))
    return None


def _described(call: Call, view: TopicsView, names: list[str], request: Any) -> _Reply:
    brokers = call.environment.brokers.at(call.client.listener)
    remaining = max(1, min(request.response_partition_limit, _MOST_PARTITIONS))
    cursor, reply = request.cursor, _Reply([])
    for name in names:
        start = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        if remaining == 0:
            reply.next_cursor = _Cursor(name, start)
            break
        if not call.client.authorization.allows(DESCRIBE_TOPIC, name):
            reply.topics.append(_Topic(ErrorCode.topic_authorization_failed, name))
            continue
        topic = view.live(name)
        if topic is None:
            operations = operations_on_topic(call, name)
            reply.topics.append(_Topic(_error(name), name, topic_authorized_operations=operations))
            continue
        end = min(topic.partitions, start + remaining)
        shown = tuple(shown_partition(call.environment, brokers, topic, index) for index in range(start, end))
        reply.topics.append(_Topic(ErrorCode.none, name, topic.id, shown, operations_on_topic(call, name)))
        remaining -= len(shown)
        if end < topic.partitions:
            reply.next_cursor = _Cursor(name, end)
            break
    return reply


def _error(name: str) -> ErrorCode:
    return ErrorCode.unknown_topic_or_partition if is_topic_name(name) else ErrorCode.invalid_topic_exception


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    topics = [_Topic(error, topic.name) for topic in request.topics]
    call.answer(_Reply(topics))


API = Api(KEY, "DescribeTopicPartitions", range(1), handle, fail, order=Order.READS, asks=(DESCRIBE_TOPIC,))
