"""ElectLeaders (43), versions 0 to 2: elects the preferred leaders of partitions, or unclean leaders.

- 0: partitions, or null for all.
- 1: adds the type of election, and an error for the whole response.
- 2: flexible.

A partition's only replica is its leader, so an election is never needed. As in Kafka, each requested partition is
answered with ELECTION_NOT_NEEDED. The response to a request for all partitions lists topics without partitions.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import ALTER_CLUSTER
from services.gateway.api import Api, Call, Environment, Work

KEY = 43

_PREFERRED, _UNCLEAN = 0, 1


@dataclass(frozen=True, slots=True)
class _Partition:
    partition_id: int
    error_code: ErrorCode
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class _Topic:
    topic: str
    partition_result: list[_Partition]


@dataclass(frozen=True, slots=True)
class _Reply:
    replica_election_results: list[_Topic]
    error_code: ErrorCode = ErrorCode.none
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    kind = getattr(request, "election_type", _PREFERRED)
    if kind not in (_PREFERRED, _UNCLEAN):
        _refuse(call, ErrorCode.invalid_request, f"Unknown election type {kind}")
        return None
    if request.topic_partitions is None:
        topics = [_Topic(name, []) for name in call.environment.catalog.view.live_names]
    else:
        topics = [
            _Topic(
                requested.topic, [_result(call.environment, requested.topic, index) for index in requested.partitions]
            )
            for requested in request.topic_partitions
        ]
    call.answer(_Reply(topics))
    return None


def _result(environment: Environment, name: str, index: int) -> _Partition:
    topic = environment.catalog.view.live(name)
    if topic is None:
        return _Partition(index, ErrorCode.unknown_topic_or_partition, f"No such topic as {name}")
    if not 0 <= index < topic.partitions:
        return _Partition(index, ErrorCode.unknown_topic_or_partition, f"No such partition as {name}-{index}")
    return _Partition(index, ErrorCode.election_not_needed, "Leader election not needed for topic partition.")


def _refuse(call: Call, error: ErrorCode, message: str | None = None) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    topics = [
        _Topic(requested.topic, [_Partition(index, error, message) for index in requested.partitions])
        for requested in request.topic_partitions or ()
    ]
    call.answer(_Reply(topics, error))


fail = _refuse

API = Api(KEY, "ElectLeaders", range(3), handle, fail, needs=ALTER_CLUSTER)
