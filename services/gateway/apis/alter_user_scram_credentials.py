"""AlterUserScramCredentials (51), versions 0 to 0: sets and deletes SCRAM credentials of users.

- 0: deletions, and credentials to set. Flexible.

The client sends a salted password, never the password. A user exists as long as it has a credential of any mechanism.
Each user has one result. If a part for a user is invalid, nothing is changed for that user.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.metadata.users import Credentials
from kafscale.security.scram import LEAST_ITERATIONS, MOST_ITERATIONS, Credential, Mechanism, credential
from services.gateway.api import Api, Call, Work

KEY = 51

_SECONDS = 10.0
_MECHANISMS = {mechanism.code: mechanism for mechanism in Mechanism}


@dataclass(slots=True)
class _Result:
    user: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class _Reply:
    results: list[_Result]
    throttle_time: int = 0


class _Refused(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


_Changes = dict[Mechanism, Credential | None]
"""New credentials; None: to be deleted."""


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    results = {each.name: _Result(each.name) for each in (*request.deletions, *request.upsertions)}
    changes: dict[str, _Changes] = {name: {} for name in results}
    for each, credential_of in (
        *((deletion, _deletion) for deletion in request.deletions),
        *((upsertion, _credential) for upsertion in request.upsertions),
    ):
        result = results[each.name]
        try:
            if not result.error_code:
                _add(changes[each.name], each, credential_of)
        except _Refused as refused:
            result.error_code, result.error_message = refused.code, str(refused)
    return _change_all(call, [*results.values()], changes)


def _add(changes: _Changes, each: Any, credential_of: Callable[[Mechanism, Any], Credential | None]) -> None:
    if not each.name:
        raise _Refused(ErrorCode.unacceptable_credential, "Username must not be empty")
    mechanism = _MECHANISMS.get(each.mechanism)
    if mechanism is None:
        raise _Refused(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    new = credential_of(mechanism, each)
    if mechanism in changes:
        raise _Refused(ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request")
    changes[mechanism] = new


def _deletion(_: Mechanism, __: Any) -> None:
    return None


def _credential(mechanism: Mechanism, upsertion: Any) -> Credential:
    if upsertion.iterations < LEAST_ITERATIONS:
        raise _Refused(ErrorCode.unacceptable_credential, "Too few iterations")
    if upsertion.iterations > MOST_ITERATIONS:
        raise _Refused(ErrorCode.unacceptable_credential, "Too many iterations")
    return credential(mechanism, bytes(upsertion.salted_password), bytes(upsertion.salt), upsertion.iterations)


async def _change_all(call: Call, results: list[_Result], changes: dict[str, _Changes]) -> None:
    async with trio.open_nursery() as nursery:
        for result in results:
            if not result.error_code:
                nursery.start_soon(_change, call, result, changes[result.user])
    call.answer(_Reply(results))


async def _change(call: Call, result: _Result, changes: _Changes) -> None:
    def changed(before: Credentials) -> Credentials:
        if any(new is None and mechanism not in before for mechanism, new in changes.items()):
            raise _Refused(ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist")
        merged = {**before, **changes}
        return {mechanism: new for mechanism, new in merged.items() if new is not None}

    try:
        with trio.fail_after(_SECONDS), call.environment.logging_refusals(API.name):
            await call.environment.users.change(result.user, changed)
    except _Refused as refused:
        result.error_code, result.error_message = refused.code, str(refused)
    except (*STORE_FAILURES, trio.TooSlowError):
        result.error_code = ErrorCode.request_timed_out
        result.error_message = "The metadata store did not answer in time, so the outcome is unknown."


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    call.answer(_Reply([_Result(user, error) for user in users]))


API = Api(KEY, "AlterUserScramCredentials", range(1), handle, fail)
