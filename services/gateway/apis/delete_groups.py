"""DeleteGroups (42), versions 0 to 2: deletes groups without members, including their offsets.

- 0: names.
- 2: flexible.
- 1: no changes.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import DELETE_GROUP
from services.gateway.api import Api, Call, Work
from services.gateway.coordinators.errors import NO_COORDINATOR, group_code
from services.gateway.coordinators.requests import delete_groups

KEY = 42


@dataclass(frozen=True, slots=True)
class _Result:
    group_id: str
    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class _Reply:
    results: list[_Result]
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    # A group that is named twice is deleted and reported once.
    return _delete(call, list(dict.fromkeys(request.groups_names)))


async def _delete(call: Call, names: list[str]) -> None:
    allowed = [name for name in names if call.client.authorization.allows(DELETE_GROUP, name)]
    questions = await delete_groups(call.environment.coordinators, allowed)
    errors = {each.key: NO_COORDINATOR if each.result is None else group_code(each.result.error) for each in questions}
    _answer(call, [_Result(name, errors.get(name, ErrorCode.group_authorization_failed)) for name in names])


def _answer(call: Call, results: list[_Result]) -> None:
    call.answer(_Reply(results))


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    _answer(call, [_Result(name, error) for name in dict.fromkeys(request.groups_names)])


API = Api(KEY, "DeleteGroups", range(3), handle, fail, asks=(DELETE_GROUP,))
