"""DescribeGroups (15), versions 0 to 6: states, members and assignments of groups.

- 0: groups by name.
- 1: adds the throttle time.
- 3: adds authorized operations.
- 4: adds the group.instance.id of members.
- 5: flexible.
- 6: a group that does not exist is reported with GROUP_ID_NOT_FOUND and a message. Earlier versions report it as Dead.
- 2: no changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.acls import ResourceType
from kafscale.security.asks import DESCRIBE_GROUP
from kafscale.v1 import coordinator_pb2 as pb
from services.gateway.api import Api, Call, Order, Work
from services.gateway.coordinators.errors import NO_COORDINATOR, group_code
from services.gateway.coordinators.links import Question
from services.gateway.coordinators.requests import describe_groups

KEY = 15

_NOT_FOUND_FROM = 6
_NOT_REQUESTED = -(1 << 31)


@dataclass(frozen=True, slots=True)
class _Member:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


@dataclass(frozen=True, slots=True)
class _Group:
    error_code: ErrorCode
    group_id: str
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[_Member] = ()
    authorized_operations: int = _NOT_REQUESTED
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class _Reply:
    groups: list[_Group]
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    # A group that is listed several times is described once: a small request must not make a huge response.
    names = list(dict.fromkeys(request.groups))
    return _describe(call, names, operations=getattr(request, "include_authorized_operations", False))


async def _describe(call: Call, names: Sequence[str], *, operations: bool) -> None:
    authorization = call.client.authorization
    allowed = [name for name in names if authorization.allows(DESCRIBE_GROUP, name)]
    questions = await describe_groups(call.environment.coordinators, allowed)
    described = {question.key: _shown(call, question, operations=operations) for question in questions}
    _answer(call, [described.get(name) or _Group(ErrorCode.group_authorization_failed, name) for name in names])


def _shown(call: Call, question: Question[str, pb.DescribedGroup], *, operations: bool) -> _Group:
    found = question.result
    if found is None:
        return _Group(NO_COORDINATOR, question.key)
    error, message = group_code(found.error), None
    if found.error == pb.GroupError.GROUP_ID_NOT_FOUND:
        if call.version < _NOT_FOUND_FROM:
            error = ErrorCode.none
        else:
            message = f"Group {question.key} not found."
    members = [
        _Member(
            each.member_id,
            each.instance_id if each.HasField("instance_id") else None,
            each.client_id,
            each.client_host,
            each.metadata,
            each.assignment,
        )
        for each in found.members
    ]
    return _Group(
        error,
        question.key,
        found.state,
        found.protocol_type,
        found.protocol,
        members,
        call.client.authorization.operations(ResourceType.GROUP, question.key)
        if operations and not error
        else _NOT_REQUESTED,
        message,
    )


def _answer(call: Call, groups: list[_Group]) -> None:
    call.answer(_Reply(groups))


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    _answer(call, [_Group(error, name) for name in request.groups])


API = Api(KEY, "DescribeGroups", range(7), handle, fail, order=Order.READS, asks=(DESCRIBE_GROUP,))
