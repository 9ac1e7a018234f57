"""LeaveGroup (13), versions 0 to 5: removes members from a group, so others need not wait for their sessions to expire.

- 0: one member.
- 1: adds the throttle time.
- 3: several members, each with its own error. A member can be identified by its group.instance.id alone.
- 4: flexible.
- 5: the client can give a reason.
- 2: no changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import READ_GROUP
from kafscale.v1 import coordinator_pb2 as pb
from services.gateway.api import Api, Call, Work
from services.gateway.coordinators.errors import NO_COORDINATOR, group_code

KEY = 13

_SEVERAL_FROM = 3


@dataclass(frozen=True, slots=True)
class _Member:
    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode
    members: Sequence[_Member] = ()
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    call.client.authorization.check(READ_GROUP, request.group_id)
    return _leave(call, _to_proto(call, request))


def _to_proto(call: Call, request: Any) -> pb.LeaveGroupRequest:
    if call.version < _SEVERAL_FROM:
        return pb.LeaveGroupRequest(group=request.group_id, members=[pb.LeavingMember(member_id=request.member_id)])
    return pb.LeaveGroupRequest(
        group=request.group_id,
        members=[
            pb.LeavingMember(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                reason=getattr(each, "reason", None) or "",
            )
            for each in request.members
        ],
    )


async def _leave(call: Call, request: pb.LeaveGroupRequest) -> None:
    reply = await call.environment.coordinators.ask(
        request.group, lambda link, timeout: link.client.leave_group(request, timeout=timeout)
    )
    if reply is None:
        _answer(call, NO_COORDINATOR)
        return
    members = [
        _Member(each.member_id, each.instance_id if each.HasField("instance_id") else None, group_code(each.error))
        for each in reply.members
    ]
    error = group_code(reply.error)
    if call.version < _SEVERAL_FROM and not error and members:
        error = members[0].error_code
    _answer(call, error, members)


def _answer(call: Call, error: ErrorCode, members: Sequence[_Member] = ()) -> None:
    call.answer(_Reply(error, members))


API = Api(KEY, "LeaveGroup", range(6), handle, _answer, asks=(READ_GROUP,))
