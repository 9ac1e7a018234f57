"""ListGroups (16), versions 0 to 5: the groups whose coordinator is this broker.

- 0: names and protocol types.
- 1: adds the throttle time.
- 3: flexible.
- 4: adds states, and a filter by state.
- 5: adds types, and a filter by type. All groups are classic.
- 2: no changes.

As in Kafka, each broker lists the groups for which FindCoordinator names it, and clients ask all brokers. The gateway
asks all coordinators at the same time and omits the groups of other brokers. If not every group shard is reported by
exactly one coordinator, the response is COORDINATOR_NOT_AVAILABLE without groups, and clients retry. An incomplete list
would look complete to them.

With ACLs, the list contains the groups that the client may describe, or all for one that may describe the cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import DESCRIBE_CLUSTER, DESCRIBE_GROUP
from kafscale.v1 import coordinator_pb2 as pb
from services.gateway.api import Api, Call, Order, Work
from services.gateway.coordinators.errors import NO_COORDINATOR

KEY = 16


@dataclass(frozen=True, slots=True)
class _Group:
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode
    groups: Sequence[_Group] = ()
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    query = pb.ListGroupsRequest(
        states=getattr(request, "states_filter", ()), types=getattr(request, "types_filter", ())
    )
    return _list(call, query)


async def _list(call: Call, query: pb.ListGroupsRequest) -> None:
    found = await call.environment.coordinators.list_groups(query)
    if found is None:
        _answer(call, _Reply(NO_COORDINATOR))
        return
    brokers = call.environment.brokers
    listed, own = brokers.at(call.client.listener), brokers.own_id
    groups = [
        _Group(each.group, each.protocol_type, each.state, each.type)
        for each in sorted(found, key=lambda each: each.group)
        if listed.coordinator(each.group).node_id == own
        and (
            call.client.authorization.shows(DESCRIBE_CLUSTER)
            or call.client.authorization.shows(DESCRIBE_GROUP, each.group)
        )
    ]
    _answer(call, _Reply(ErrorCode.none, groups))


def _answer(call: Call, reply: _Reply) -> None:
    call.answer(reply)


def fail(call: Call, error: ErrorCode) -> None:
    _answer(call, _Reply(error))


API = Api(KEY, "ListGroups", range(6), handle, fail, order=Order.READS, asks=(DESCRIBE_CLUSTER, DESCRIBE_GROUP))
