"""AlterUserScramCredentials (51), versions 0 to 0: sets and deletes SCRAM credentials of users.

- 0: deletions, and credentials to set. Flexible.

The client sends a salted password, never the password. A user exists as long as it has a credential of any mechanism.
Each user has one result. As in Kafka, a request may change one credential of a user; otherwise the result is
DUPLICATE_RESOURCE, and nothing is changed for that user.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.metadata.users import Credentials
from kafscale.security.asks import ALTER_CLUSTER
from kafscale.security.scram import Credential, Mechanism
from services.gateway.api import Api, Call, Environment, Work
from services.gateway.new_credentials import new_credential
from services.gateway.owners.errors import RefusedPart
from services.gateway.store_changes import stored

KEY = 51

_NOT_THERE = "Attempt to delete a user credential that does not exist"
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


_Change = tuple[Mechanism, Credential | None]
"""The new credential; None: it is to be deleted."""


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    environment = call.environment
    results: dict[str, _Result] = {}
    changes: dict[str, _Change] = {}
    parts: list[tuple[Any, Callable[[Any], _Change]]] = [
        *((deletion, partial(_deletion, environment)) for deletion in request.deletions),
        *((upsertion, _upsertion) for upsertion in request.upsertions),
    ]
    for each, change_of in parts:
        result = results.setdefault(each.name, _Result(each.name))
        try:
            if not result.error_code:
                change = change_of(each)
                if each.name in changes:
                    message = "A user credential cannot be altered twice in the same request"
                    raise RefusedPart(ErrorCode.duplicate_resource, message)
                changes[each.name] = change
        except RefusedPart as refused:
            result.error_code, result.error_message = refused.code, str(refused)
    return _change_all(call, [*results.values()], changes)


def _mechanism(each: Any) -> Mechanism:
    if not each.name:
        raise RefusedPart(ErrorCode.unacceptable_credential, "Username must not be empty")
    mechanism = _MECHANISMS.get(each.mechanism)
    if mechanism is None:
        raise RefusedPart(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    return mechanism


def _deletion(environment: Environment, deletion: Any) -> _Change:
    mechanism = _mechanism(deletion)
    user = environment.users.users.get(deletion.name)
    if user is None or mechanism not in user.credentials:
        raise RefusedPart(ErrorCode.resource_not_found, _NOT_THERE)
    return mechanism, None


def _upsertion(upsertion: Any) -> _Change:
    mechanism = _mechanism(upsertion)
    salted, salt = bytes(upsertion.salted_password), bytes(upsertion.salt)
    return mechanism, new_credential(mechanism, salted, salt, upsertion.iterations)


async def _change_all(call: Call, results: list[_Result], changes: dict[str, _Change]) -> None:
    async with trio.open_nursery() as nursery:
        for result in results:
            if not result.error_code:
                nursery.start_soon(_change, call, result, changes[result.user])
    call.answer(_Reply(results))


async def _change(call: Call, result: _Result, change: _Change) -> None:
    mechanism, new = change

    def changed(before: Credentials) -> Credentials:
        others = {each: known for each, known in before.items() if each is not mechanism}
        return others if new is None else {**others, mechanism: new}

    try:
        await stored(call.environment, API.name, call.environment.users.change(result.user, changed))
    except RefusedPart as refused:
        result.error_code, result.error_message = refused.code, str(refused)


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    call.answer(_Reply([_Result(user, error) for user in users]))


API = Api(KEY, "AlterUserScramCredentials", range(1), handle, fail, needs=ALTER_CLUSTER)
