"""SyncGroup (14), versions 0 to 5: the leader sends all assignments, and each member receives its own.

- 0: assignments.
- 1: adds the throttle time.
- 3: adds group.instance.id.
- 4: flexible.
- 5: adds the protocol type and name to request and response. Both are required and checked.
- 2: no changes.

A group that is being loaded has lost its current rebalance. As in Kafka, the request is answered with
REBALANCE_IN_PROGRESS, and the member joins again. The coordinator decides how long the request waits.
"""

from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import READ_GROUP
from kafscale.v1 import coordinator_pb2 as pb
from services.gateway.api import Api, Call, Work
from services.gateway.coordinators.errors import NO_COORDINATOR, group_code

KEY = 14

_NAMES_PROTOCOL_FROM = 5


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    protocol = (getattr(request, "protocol_type", None), getattr(request, "protocol_name", None))
    if call.version >= _NAMES_PROTOCOL_FROM and None in protocol:
        _answer(call, _Reply(ErrorCode.inconsistent_group_protocol))
        return None
    call.client.authorization.check(READ_GROUP, request.group_id)
    return _sync(call, _to_proto(request, *protocol))


def _to_proto(request: Any, protocol_type: str | None, protocol: str | None) -> pb.SyncGroupRequest:
    return pb.SyncGroupRequest(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        protocol_type=protocol_type,
        protocol=protocol,
        assignments=[
            pb.MemberAssignment(member_id=each.member_id, assignment=bytes(each.assignment))
            for each in request.assignments
        ],
    )


async def _sync(call: Call, request: pb.SyncGroupRequest) -> None:
    reply = await call.environment.coordinators.ask(
        request.group, lambda link, timeout: link.client.sync_group(request, timeout=timeout), waits=True
    )
    if reply is None:
        _answer(call, _Reply(NO_COORDINATOR))
    elif reply.error == pb.GroupError.NONE:
        _answer(call, _Reply(ErrorCode.none, reply.protocol_type, reply.protocol, reply.assignment))
    elif reply.error == pb.GroupError.COORDINATOR_LOAD_IN_PROGRESS:
        _answer(call, _Reply(ErrorCode.rebalance_in_progress))
    else:
        _answer(call, _Reply(group_code(reply.error)))


def _answer(call: Call, reply: _Reply) -> None:
    call.answer(reply)


def fail(call: Call, error: ErrorCode) -> None:
    _answer(call, _Reply(error))


API = Api(
    KEY,
    "SyncGroup",
    range(6),
    handle,
    fail,
    largest=lambda settings: settings.max_group_request_bytes,
    asks=(READ_GROUP,),
)
