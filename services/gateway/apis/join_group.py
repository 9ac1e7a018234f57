"""JoinGroup (11), versions 0 to 9: joins a consumer group or stays a member of it, and waits for the other members.

- 0: one timeout for everything.
- 1: adds a rebalance timeout.
- 2: adds the throttle time.
- 4: a new member first gets its id (MEMBER_ID_REQUIRED) and joins with it.
- 5: adds group.instance.id for static members.
- 6: flexible.
- 7: adds the protocol type to the response. If there is no protocol, its name is null.
- 8: the client can give a reason.
- 9: the response can say that the leader has nothing to assign.
- 3: no changes.

The gateway sets no timeout. The coordinator ends the wait when the group's rebalance timeout expires.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import READ_GROUP
from kafscale.v1 import coordinator_pb2 as pb
from services.gateway.api import Api, Call, Work
from services.gateway.coordinators.errors import NO_COORDINATOR, group_code

KEY = 11

_ID_REQUIRED_FROM = 4
_NO_PROTOCOL_IS_NULL_FROM = 7
_SKIPS_ASSIGNMENT_FROM = 9
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class _Member:
    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[_Member] = ()
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    call.client.authorization.check(READ_GROUP, request.group_id)
    return _join(call, _to_proto(call, request))


def _to_proto(call: Call, request: Any) -> pb.JoinGroupRequest:
    return pb.JoinGroupRequest(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        protocol_type=request.protocol_type,
        protocols=[pb.GroupProtocol(name=each.name, metadata=bytes(each.metadata)) for each in request.protocols],
        session_timeout_ms=request.session_timeout // _MILLISECOND,
        rebalance_timeout_ms=getattr(request, "rebalance_timeout", timedelta()) // _MILLISECOND,
        client_id=call.request.client_id or "",
        client_host=call.client.host,
        reason=getattr(request, "reason", None) or "",
        member_id_required=call.version >= _ID_REQUIRED_FROM,
        skips_assignment=call.version >= _SKIPS_ASSIGNMENT_FROM,
    )


async def _join(call: Call, request: pb.JoinGroupRequest) -> None:
    reply = await call.environment.coordinators.ask(
        request.group, lambda link, timeout: link.client.join_group(request, timeout=timeout), waits=True
    )
    if reply is None:
        _answer(call, _Reply(NO_COORDINATOR, request.member_id))
        return
    joined = reply.error == pb.GroupError.NONE
    _answer(
        call,
        _Reply(
            group_code(reply.error),
            reply.member_id,
            reply.generation if joined else -1,
            reply.protocol_type if joined else None,
            reply.protocol if joined else None,
            reply.leader,
            reply.skip_assignment,
            [
                _Member(each.member_id, each.instance_id if each.HasField("instance_id") else None, each.metadata)
                for each in reply.members
            ],
        ),
    )


def _answer(call: Call, reply: _Reply) -> None:
    if reply.protocol_name is None and call.version < _NO_PROTOCOL_IS_NULL_FROM:
        reply = replace(reply, protocol_name="")
    call.answer(reply)


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    _answer(call, _Reply(error, request.member_id))


API = Api(
    KEY,
    "JoinGroup",
    range(10),
    handle,
    fail,
    largest=lambda settings: settings.max_group_request_bytes,
    asks=(READ_GROUP,),
)
