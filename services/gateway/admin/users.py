"""Lists users, and changes their SCRAM credentials. All functions raise RefusedPart."""

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from kafscale.metadata.users import Credentials
from kafscale.security.scram import Mechanism
from kafscale.v1 import admin_pb2 as pb
from services.gateway.admin.topics import API
from services.gateway.api import Environment
from services.gateway.new_credentials import new_credential
from services.gateway.owners.errors import RefusedPart
from services.gateway.store_changes import stored

_MECHANISMS = {mechanism.value: mechanism for mechanism in Mechanism}


def list_users(environment: Environment, request: pb.ListUsersRequest) -> pb.ListUsersReply:
    reply = pb.ListUsersReply()
    users = environment.users.users
    wanted = {request.name} & users.keys() if request.name else users.keys()
    for name in sorted(wanted):
        known = sorted(users[name].credentials.items(), key=lambda item: item[0].value)
        credentials = [
            pb.UserStatus.Credential(mechanism=mechanism.value, iterations=each.iterations, salt=each.salt)
            for mechanism, each in known
        ]
        reply.users.append(pb.UserStatus(name=name, credentials=credentials))
    return reply


async def set_credentials(
    environment: Environment, request: pb.SetUserCredentialsRequest
) -> pb.SetUserCredentialsReply:
    _check_name(request.name)
    new = {
        mechanism: new_credential(mechanism, each.salted_password, each.salt, each.iterations)
        for each, mechanism in zip(
            request.credentials, _mechanisms(each.mechanism for each in request.credentials), strict=True
        )
    }
    if not new:
        raise RefusedPart(ErrorCode.unacceptable_credential, "The request has no credential")
    await stored(environment, API, environment.users.change(request.name, lambda before: {**before, **new}))
    return pb.SetUserCredentialsReply()


async def delete_credentials(
    environment: Environment, request: pb.DeleteUserCredentialsRequest
) -> pb.DeleteUserCredentialsReply:
    _check_name(request.name)
    gone = set(_mechanisms(request.mechanisms))

    def without(before: Credentials) -> Credentials:
        missing = gone - set(before)
        if missing or not before:
            what = " or ".join(sorted(mechanism.value for mechanism in missing)) or "credential"
            raise RefusedPart(ErrorCode.resource_not_found, f"User {request.name!r} has no {what}")
        return {mechanism: known for mechanism, known in before.items() if gone and mechanism not in gone}

    await stored(environment, API, environment.users.change(request.name, without))
    return pb.DeleteUserCredentialsReply()


def _check_name(name: str) -> None:
    if not name:
        raise RefusedPart(ErrorCode.unacceptable_credential, "The name of the user is empty")


def _mechanisms(names: Iterable[str]) -> list[Mechanism]:
    found = []
    for name in names:
        if name not in _MECHANISMS:
            raise RefusedPart(ErrorCode.unsupported_sasl_mechanism, f"{name!r} is not one of {', '.join(_MECHANISMS)}")
        found.append(_MECHANISMS[name])
    if len(set(found)) < len(found):
        raise RefusedPart(ErrorCode.unacceptable_credential, "A mechanism is named twice")
    return found
