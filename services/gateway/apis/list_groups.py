"""ListGroups (16), versions 0 to 5: the groups that clients find at this broker.

- 0: names and protocol types. 1: throttle time. 2: same on the wire. 3: flexible.
- 4: states, and only groups in the states that the client names. 5: the same for types; all groups here are classic.

As in Kafka each broker lists the groups that FindCoordinator sends to it, and clients ask all brokers: every gateway
asks all coordinators, at the same time, and leaves out what clients find at another gateway. Unless each of the parts
that groups are divided into is answered for, and by one coordinator, nothing is listed, and the answer is
COORDINATOR_NOT_AVAILABLE, which clients retry: a list without some groups would be taken for complete.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
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
    wanted = pb.ListGroupsRequest(
        states=getattr(request, "states_filter", ()), types=getattr(request, "types_filter", ())
    )
    return _list(call, wanted)


async def _list(call: Call, wanted: pb.ListGroupsRequest) -> None:
    found = await call.environment.coordinators.list_groups(wanted)
    if found is None:
        _answer(call, _Reply(NO_COORDINATOR))
        return
    brokers = call.environment.brokers
    listed, own = brokers.at(call.client.listener), brokers.own_id
    groups = [
        _Group(each.group, each.protocol_type, each.state, each.type)
        for each in sorted(found, key=lambda each: each.group)
        if listed.coordinator(each.group).node_id == own
    ]
    _answer(call, _Reply(ErrorCode.none, groups))


def _answer(call: Call, reply: _Reply) -> None:
    call.answer(reply)


def fail(call: Call, error: ErrorCode) -> None:
    _answer(call, _Reply(error))


API = Api(KEY, "ListGroups", range(6), handle, fail, order=Order.READS)
