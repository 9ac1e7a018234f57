"""AlterConfigs (33), versions 0 to 2: replaces all configs of topics.

- 0: configs, and validate_only.
- 2: flexible.
- 1: no changes.

The response is sent when the configs are stored; gateways and storage apply them as soon as they see them. Broker
configs cannot be changed while a broker runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from services.gateway.api import Api, Call, Work
from services.gateway.owners.errors import RefusedPart
from services.gateway.topics.resources import ALTERING, Change, ChangedResource, change_all, check_may_alter

KEY = 33


@dataclass(slots=True)
class _Reply:
    responses: list[ChangedResource]
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    return _change(call, codec.decode_request(KEY, call.version, call.request.body))


async def _change(call: Call, request: Any) -> None:
    check = partial(check_may_alter, call.client.authorization)
    answers = await change_all(
        call.environment, API.name, request.resources, _replacement, check=check, dry=request.validate_only
    )
    call.answer(_Reply(answers))


def _replacement(resource: Any) -> Change:
    nulls = sorted(config.name for config in resource.configs if config.value is None)
    if nulls:
        raise RefusedPart(ErrorCode.invalid_request, f"Null value not supported for: {', '.join(nulls)}")
    configs = {config.name: config.value for config in resource.configs}

    def replace(_: Mapping[str, str]) -> Mapping[str, str | None]:
        return configs

    return replace


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    answers = [ChangedResource(resource.resource_type, resource.resource_name, error) for resource in request.resources]
    call.answer(_Reply(answers))


API = Api(KEY, "AlterConfigs", range(3), handle, fail, asks=ALTERING)
