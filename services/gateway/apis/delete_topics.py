"""DeleteTopics (20), versions 0 to 6: deletes topics.

- 0: names.
- 1: adds the throttle time.
- 4: flexible.
- 5: adds error messages. The client knows THROTTLING_QUOTA_EXCEEDED.
- 6: identifies topics by name or by id.
- 2, 3: no changes.

The response is sent when the topic is hidden from clients. Its objects are deleted after that, and the name can be used
again when they are gone.

With ACLs, a client needs DELETE on each topic. A topic that it may not describe is denied, whether or not it exists.
ALL on the cluster is enough for every topic.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale.kafka import codec, legacy
from kafscale.metadata.topic_values import TopicInfo
from kafscale.security.acls import CLUSTER_NAME
from kafscale.security.asks import DELETE_IN_CLUSTER, DELETE_TOPIC, DESCRIBE_TOPIC, Ask
from services.gateway.api import Api, Call, Environment, Work
from services.gateway.owners.errors import RefusedPart
from services.gateway.topics.changes import charge_partitions, delete_topic

KEY = 20

_STRICT_FROM = 5


@dataclass(slots=True)
class _Topic:
    name: str | None
    topic_id: bytes = codec.NO_TOPIC_ID
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@dataclass(slots=True)
class _Reply:
    responses: list[_Topic]
    throttle_time: int = 0


def _decode(call: Call) -> Any:
    if call.version == 0:
        return legacy.decode_delete_topics(call.request.body, 0)
    return codec.decode_request(KEY, call.version, call.request.body)


def _answer(call: Call, responses: list[_Topic]) -> None:
    if call.version == 0:
        call.count_errors(*responses)
        call.reply(legacy.encode_delete_topics(responses))
    else:
        call.answer(_Reply(responses))


def _requested(call: Call) -> tuple[list[_Topic], float]:
    """The topics to delete, and the request's timeout in seconds."""
    request = _decode(call)
    if call.version < 6:
        requested = [_Topic(name) for name in request.topic_names]
    else:
        requested = [
            _Topic(topic.name, topic.topic_id.bytes if topic.topic_id is not None else codec.NO_TOPIC_ID)
            for topic in request.topics
        ]
    return requested, max(request.timeout.total_seconds(), 0)


def handle(call: Call) -> Work | None:
    requested, seconds = _requested(call)
    view = call.environment.catalog.view
    live: list[tuple[TopicInfo, _Topic]] = []
    for topic in requested:
        by_id = topic.topic_id != codec.NO_TOPIC_ID
        if by_id == (topic.name is not None):
            topic.error_code = ErrorCode.invalid_request
            topic.error_message = "A topic must be named by its name or by its id, not by both."
            continue
        found = view.live_by_id(topic.topic_id) if by_id else view.live(topic.name or "")
        name = found.name if found else topic.name
        if name is not None and not _allowed(call, DESCRIBE_TOPIC, name):
            topic.error_code = ErrorCode.topic_authorization_failed
        elif found is None:
            topic.error_code = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
        else:
            topic.name, topic.topic_id = found.name, found.id
            if _allowed(call, DELETE_TOPIC, found.name):
                live.append((found, topic))
            else:
                topic.error_code = ErrorCode.topic_authorization_failed
    times = Counter(topic.topic_id for topic in requested if not topic.error_code)
    for topic in requested:
        if not topic.error_code and times[topic.topic_id] > 1:
            topic.error_code, topic.error_message = ErrorCode.invalid_request, "Duplicate topic."
    for info, topic in live:
        if not topic.error_code:
            try:
                charge_partitions(call, info.partitions, strict_from=_STRICT_FROM)
            except RefusedPart as refused:
                topic.error_code, topic.error_message = refused.code, str(refused)
    return _delete_all(call, requested, live, trio.current_time() + seconds)


def _allowed(call: Call, ask: Ask, name: str) -> bool:
    return call.client.authorization.allows_one((DELETE_IN_CLUSTER, CLUSTER_NAME), (ask, name))


async def _delete_all(call: Call, topics: list[_Topic], live: list[tuple[TopicInfo, _Topic]], deadline: float) -> None:
    async with trio.open_nursery() as nursery:
        for info, topic in live:
            if not topic.error_code:
                nursery.start_soon(_delete, call.environment, info, topic, deadline)
    _answer(call, topics)


async def _delete(environment: Environment, info: TopicInfo, topic: _Topic, deadline: float) -> None:
    try:
        await delete_topic(environment, API.name, info, deadline)
    except RefusedPart as refused:
        topic.error_code, topic.error_message = refused.code, str(refused)


def fail(call: Call, error: ErrorCode) -> None:
    requested, _ = _requested(call)
    _answer(call, [_Topic(topic.name, topic.topic_id, error) for topic in requested])


API = Api(KEY, "DeleteTopics", range(7), handle, fail, asks=(DELETE_IN_CLUSTER, DESCRIBE_TOPIC, DELETE_TOPIC))
