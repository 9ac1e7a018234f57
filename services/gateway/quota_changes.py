"""Changes of client quotas."""

from collections.abc import Callable

import trio
from kio.schema.errors import ErrorCode

from kafscale.metadata.outage import STORE_FAILURES
from kafscale.security.quotas import Entity, Limits
from services.gateway.api import Environment
from services.gateway.owners.errors import RefusedPart

_SECONDS = 10.0


async def change_quotas(environment: Environment, api: str, entity: Entity, change: Callable[[Limits], Limits]) -> None:
    """Change the quotas of an entity. Raises RefusedPart."""
    try:
        with trio.fail_after(_SECONDS), environment.logging_refusals(api):
            await environment.quota_catalog.change(entity, change)
    except (*STORE_FAILURES, trio.TooSlowError):
        raise RefusedPart(
            ErrorCode.request_timed_out, "The metadata store did not answer in time, so the outcome is unknown."
        ) from None
