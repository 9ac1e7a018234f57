"""Heartbeat (12), versions 0 to 4: keeps a member in its group, and informs it that it must rejoin.

- 0: group, generation and member id.
- 1: adds the throttle time.
- 3: adds group.instance.id.
- 4: flexible.
- 2: no changes.

Heartbeats that arrive at the same time are sent to a coordinator in one call. While the coordinator loads the group,
the response has no error, as in Kafka: the session timeouts of members start when the group is loaded, and old clients
do not handle an error. The response also has no error while the removal of the member is being stored; the next
heartbeat reports it.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import READ_GROUP
from kafscale.v1 import coordinator_pb2 as pb
from services.gateway.api import Api, Call, Order, Work
from services.gateway.coordinators.errors import NO_COORDINATOR, group_code

KEY = 12


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    call.client.authorization.check(READ_GROUP, request.group_id)
    beat = pb.MemberHeartbeat(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
    )
    return _beat(call, beat)


async def _beat(call: Call, beat: pb.MemberHeartbeat) -> None:
    result = await call.environment.coordinators.ask(beat.group, lambda link, _: link.heartbeat(beat))
    if result is None:
        _answer(call, NO_COORDINATOR)
    elif result.error == pb.GroupError.COORDINATOR_LOAD_IN_PROGRESS:
        _answer(call, ErrorCode.none)
    else:
        _answer(call, group_code(result.error))


def _answer(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply(error))


API = Api(KEY, "Heartbeat", range(5), handle, _answer, order=Order.READS, asks=(READ_GROUP,))
