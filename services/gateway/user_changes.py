"""Changes of users, for the Kafka API and for the Admin service."""

from collections.abc import Callable

import trio
from kio.schema.errors import ErrorCode

from kafscale.metadata.outage import STORE_FAILURES
from kafscale.metadata.users import Credentials
from kafscale.security.scram import LEAST_ITERATIONS, MOST_ITERATIONS, Credential, Mechanism, credential
from services.gateway.api import Environment
from services.gateway.owners.errors import RefusedPart

_SECONDS = 10.0


def new_credential(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Return the credential for a salted password. Raises RefusedPart."""
    if iterations < LEAST_ITERATIONS:
        raise RefusedPart(ErrorCode.unacceptable_credential, "Too few iterations")
    if iterations > MOST_ITERATIONS:
        raise RefusedPart(ErrorCode.unacceptable_credential, "Too many iterations")
    return credential(mechanism, salted, salt, iterations)


async def change_user(
    environment: Environment, api: str, name: str, change: Callable[[Credentials], Credentials]
) -> None:
    """Change the credentials of a user. ``change`` may raise RefusedPart. Raises RefusedPart."""
    try:
        with trio.fail_after(_SECONDS), environment.logging_refusals(api):
            await environment.users.change(name, change)
    except (*STORE_FAILURES, trio.TooSlowError):
        raise RefusedPart(
            ErrorCode.request_timed_out, "The metadata store did not answer in time, so the outcome is unknown."
        ) from None
