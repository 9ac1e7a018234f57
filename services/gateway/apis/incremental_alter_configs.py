"""IncrementalAlterConfigs (44), versions 0 to 1: sets or deletes individual configs of topics, or edits lists.

- 0: set, delete, append and subtract; validate_only.
- 1: flexible.

A deleted config has its default again. If a topic does not set a list, append and subtract start from the default. The
response is sent when the configs are stored; gateways and storage apply them as soon as they see them. Broker configs
cannot be set while a broker runs. Deleting one succeeds and changes nothing, as in Kafka if it was not set dynamically.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.topics.configs import default_values
from kafscale.topics.definitions import DEFINITIONS, ConfigType
from services.gateway.api import Api, Call, Work
from services.gateway.owners.errors import RefusedPart
from services.gateway.topics.resources import ALTERING, DELETE, Change, ChangedResource, change_all, check_may_alter

KEY = 44


class _Operation(IntEnum):
    SET = 0
    DELETE = DELETE
    APPEND = 2
    SUBTRACT = 3


@dataclass(slots=True)
class _Reply:
    responses: list[ChangedResource]
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    return _change(call, codec.decode_request(KEY, call.version, call.request.body))


async def _change(call: Call, request: Any) -> None:
    changes = partial(_changes, default_values(call.environment.settings))
    check = partial(check_may_alter, call.client.authorization)
    answers = await change_all(
        call.environment, API.name, request.resources, changes, check=check, dry=request.validate_only
    )
    call.answer(_Reply(answers))


def _changes(defaults: Mapping[str, str], resource: Any) -> Change:
    for config in resource.configs:
        _check(config)

    def change(configs: Mapping[str, str]) -> Mapping[str, str | None]:
        changed = dict(configs)
        for config in resource.configs:
            if config.config_operation == _Operation.DELETE:
                changed.pop(config.name, None)
            elif config.config_operation == _Operation.SET:
                changed[config.name] = config.value
            else:
                before = configs.get(config.name, defaults[config.name])
                changed[config.name] = _changed_list(config, before)
        return changed

    return change


def _check(config: Any) -> None:
    if config.config_operation not in set(_Operation):
        raise RefusedPart(ErrorCode.invalid_request, f"Unknown operation {config.config_operation} on {config.name}.")
    operation = _Operation(config.config_operation)
    if operation is _Operation.DELETE:
        return
    if config.value is None:
        raise RefusedPart(ErrorCode.invalid_request, f"Null value not supported for: {config.name}")
    definition = DEFINITIONS.get(config.name)
    if operation is not _Operation.SET and (definition is None or definition.type is not ConfigType.LIST):
        raise RefusedPart(
            ErrorCode.invalid_config, f"Can't {operation.name} to key {config.name} because its type is not LIST."
        )


def _changed_list(config: Any, before: str) -> str:
    """Return the list without duplicates, so that repeating a change has no effect."""
    items = [item.strip() for item in before.split(",") if item.strip()]
    changed = list(dict.fromkeys(item.strip() for item in config.value.split(",") if item.strip()))
    if config.config_operation == _Operation.APPEND:
        return ",".join([*items, *(item for item in changed if item not in items)])
    return ",".join(item for item in items if item not in changed)


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    answers = [ChangedResource(resource.resource_type, resource.resource_name, error) for resource in request.resources]
    call.answer(_Reply(answers))


API = Api(KEY, "IncrementalAlterConfigs", range(2), handle, fail, asks=ALTERING)
