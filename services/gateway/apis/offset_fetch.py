"""OffsetFetch (9), versions 1 to 10: the committed offsets of groups.

- 1: partitions of one group. An error of the group is reported for each partition.
- 2: null topics request all committed offsets. An error of the group is reported once.
- 3: adds the throttle time.
- 5: adds leader epochs.
- 6: flexible.
- 7: the client can request stable offsets only. All offsets are stable, because there are no transactions.
- 8: several groups.
- 9: adds the member id and epoch of Kafka 4's group protocol, which have no effect.
- 10: identifies topics by id.
- 4: no changes.

If nothing is committed, or the group does not exist, the offset is -1 without an error. Offsets of a topic that has
been deleted since are ignored, whether or not a new topic has its name. Before an offset is ignored, the metadata store
is asked whether the topic was deleted, because a gateway that is behind would send readers back to the beginning.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.security.asks import DESCRIBE_GROUP, DESCRIBE_TOPIC
from kafscale.v1 import coordinator_pb2 as pb
from services.gateway.api import Api, Call, Order, Work
from services.gateway.coordinators.errors import NO_COORDINATOR_FOR_FETCH, group_code
from services.gateway.coordinators.requests import fetch_offsets
from services.gateway.topics.deleted import deleted_topics

KEY = 9

_GROUP_ERROR_FROM = 2
_SEVERAL_FROM = 8
_BY_ID_FROM = 10


@dataclass(frozen=True, slots=True)
class _Partition:
    partition_index: int
    committed_offset: int = -1
    committed_leader_epoch: int = -1
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True)
class _Topic:
    name: str
    topic_id: bytes
    partitions: list[_Partition]


@dataclass(frozen=True, slots=True)
class _Group:
    """The result of one group. Before version 8, it is the whole response."""

    group_id: str
    topics: Sequence[_Topic] = ()
    error_code: ErrorCode = ErrorCode.none
    throttle_time: int = 0


@dataclass(frozen=True, slots=True)
class _Reply:
    groups: list[_Group]
    throttle_time: int = 0


@dataclass(frozen=True, slots=True)
class _RequestedTopic:
    """A requested topic. ``name`` is None for an id that no topic has."""

    name: str | None
    topic_id: bytes
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _AskedGroup:
    """A requested group. ``denied``: the client may not see it. ``hidden``: the topics that it may not see."""

    group_id: str
    topics: list[_RequestedTopic] | None
    hidden: frozenset[str] = frozenset()
    denied: bool = False


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    return _fetch(call, request)


def _groups(call: Call, request: Any) -> Sequence[Any]:
    """The requested groups, each once: a small request must not make a huge response."""
    if call.version < _SEVERAL_FROM:
        return (request,)
    return tuple({group.group_id: group for group in request.groups}.values())


def _requested_topics(call: Call, group: Any) -> list[_RequestedTopic] | None:
    """The requested topics of a group, or None for all."""
    if group.topics is None:
        return None
    if call.version < _BY_ID_FROM:
        return [_RequestedTopic(topic.name, b"", topic.partition_indexes) for topic in group.topics]
    requested = []
    for topic in group.topics:
        topic_id = codec.NO_TOPIC_ID if topic.topic_id is None else topic.topic_id.bytes
        known = call.environment.topics.by_id(topic_id)
        requested.append(_RequestedTopic(None if known is None else known.info.name, topic_id, topic.partition_indexes))
    return requested


def _asked(call: Call, group: Any) -> _AskedGroup:
    """Decide what the client may see. Answers are paired by this later, when ACLs may have changed."""
    authorization, topics = call.client.authorization, _requested_topics(call, group)
    if not authorization.allows(DESCRIBE_GROUP, group.group_id):
        return _AskedGroup(group.group_id, topics, denied=True)
    names = dict.fromkeys(topic.name for topic in topics or () if topic.name is not None)
    hidden = frozenset(name for name in names if not authorization.allows(DESCRIBE_TOPIC, name))
    return _AskedGroup(group.group_id, topics, hidden)


def _query(asked: _AskedGroup) -> pb.GroupOffsetsQuery:
    query = pb.GroupOffsetsQuery(group=asked.group_id, all=asked.topics is None)
    for topic in asked.topics or ():
        if topic.name is not None and topic.name not in asked.hidden:
            query.partitions.extend(pb.TopicPartition(topic=topic.name, partition=index) for index in topic.partitions)
    return query


async def _fetch(call: Call, request: Any) -> None:
    stable = getattr(request, "require_stable", False)
    groups = [_asked(call, group) for group in _groups(call, request)]
    queries = [_query(asked) for asked in groups if not asked.denied]
    questions = await fetch_offsets(call.environment.coordinators, queries, stable=stable)
    try:
        found = [question.result for question in questions if question.result is not None]
        gone = await deleted_topics(call.environment, API.name, found)
    except STORE_FAILURES:
        unknown = [_refused(call, each.group_id, each.topics, NO_COORDINATOR_FOR_FETCH) for each in groups]
        _answer(call, unknown)
        return
    remaining = iter(questions)
    _answer(
        call,
        [
            _refused(call, asked.group_id, asked.topics, ErrorCode.group_authorization_failed)
            if asked.denied
            else _answered(call, asked, next(remaining).result, gone)
            for asked in groups
        ],
    )


def _answered(call: Call, asked: _AskedGroup, result: pb.GroupOffsets | None, gone: set[bytes]) -> _Group:
    if result is None:
        return _refused(call, asked.group_id, asked.topics, NO_COORDINATOR_FOR_FETCH)
    if result.error != pb.GroupError.NONE:
        return _refused(call, asked.group_id, asked.topics, _code(result.error))
    if asked.topics is None:
        return _Group(asked.group_id, _all(call, result.offsets, gone))
    return _Group(asked.group_id, _named(asked.topics, asked.hidden, result.offsets, gone))


def _code(error: pb.GroupError.Code) -> ErrorCode:
    # The Java consumer treats COORDINATOR_NOT_AVAILABLE as fatal here.
    return NO_COORDINATOR_FOR_FETCH if error == pb.GroupError.COORDINATOR_NOT_AVAILABLE else group_code(error)


def _named(
    topics: list[_RequestedTopic], hidden: frozenset[str], offsets: Sequence[pb.FetchedOffset], gone: set[bytes]
) -> list[_Topic]:
    remaining = iter(offsets)
    answers = []
    for topic in topics:
        if topic.name is None:
            partitions = [_Partition(index, error_code=ErrorCode.unknown_topic_id) for index in topic.partitions]
        elif topic.name in hidden:
            denied = ErrorCode.topic_authorization_failed
            partitions = [_Partition(index, error_code=denied) for index in topic.partitions]
        else:
            partitions = [_partition(next(remaining), gone) for _ in topic.partitions]
        answers.append(_Topic(topic.name or "", topic.topic_id, partitions))
    return answers


def _all(call: Call, offsets: Sequence[pb.FetchedOffset], gone: set[bytes]) -> list[_Topic]:
    answers: dict[str, _Topic] = {}
    for offset in offsets:
        if offset.topic_id not in gone and call.client.authorization.shows(DESCRIBE_TOPIC, offset.topic):
            topic = answers.setdefault(offset.topic, _Topic(offset.topic, offset.topic_id, []))
            topic.partitions.append(_partition(offset, gone))
    return list(answers.values())


def _partition(offset: pb.FetchedOffset, gone: set[bytes]) -> _Partition:
    if offset.topic_id in gone:
        return _Partition(offset.partition)
    return _Partition(offset.partition, offset.offset, offset.leader_epoch, offset.metadata)


def _refused(call: Call, group_id: str, topics: list[_RequestedTopic] | None, error: ErrorCode) -> _Group:
    if call.version >= _GROUP_ERROR_FROM:
        return _Group(group_id, error_code=error)
    return _Group(
        group_id,
        [
            _Topic(topic.name or "", b"", [_Partition(index, error_code=error) for index in topic.partitions])
            for topic in topics or ()
        ],
    )


def _answer(call: Call, groups: list[_Group]) -> None:
    reply = _Reply(groups) if call.version >= _SEVERAL_FROM else groups[0]
    call.answer(reply)


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    _answer(
        call,
        [_refused(call, group.group_id, _requested_topics(call, group), error) for group in _groups(call, request)],
    )


API = Api(KEY, "OffsetFetch", range(1, 11), handle, fail, order=Order.READS, asks=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
