"""Changes in the metadata store for requests that have no timeout of their own."""

from collections.abc import Awaitable

import trio
from kio.schema.errors import ErrorCode

from kafscale.metadata.outage import STORE_FAILURES
from services.gateway.api import Environment
from services.gateway.owners.errors import RefusedPart

_SECONDS = 10.0


async def stored(environment: Environment, api: str, change: Awaitable[None]) -> None:
    """Await a change on behalf of ``api``, at most 10 seconds. Raises RefusedPart if its outcome is unknown."""
    try:
        with trio.fail_after(_SECONDS), environment.logging_refusals(api):
            await change
    except (*STORE_FAILURES, trio.TooSlowError):
        raise RefusedPart(
            ErrorCode.request_timed_out, "The metadata store did not answer in time, so the outcome is unknown."
        ) from None
