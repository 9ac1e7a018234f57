"""AlterClientQuotas (49), versions 0 to 1: sets and removes quotas of users, client ids and addresses.

- 0: quotas by entity, and validate_only.
- 1: flexible.

There are no quotas. An attempt to set one is refused with UNSUPPORTED_VERSION and a message, even with validate_only.
Removing a quota succeeds and changes nothing, as in Kafka if none was set. Entity types that Kafka does not know are
refused as in Kafka. Addresses are not resolved.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import ALTER_CLUSTER_CONFIGS
from services.gateway.api import Api, Call, Work
from services.gateway.owners.errors import RefusedPart

KEY = 49

_ENTITY_TYPES = ("user", "client-id", "ip")


@dataclass(frozen=True, slots=True)
class _Result:
    entity: Sequence[Any]
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class _Reply:
    entries: list[_Result]
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    call.answer(_Reply([_result(entry) for entry in request.entries]))
    return None


def _result(entry: Any) -> _Result:
    try:
        _check(entry)
    except RefusedPart as refused:
        return _Result(entry.entity, refused.code, str(refused))
    return _Result(entry.entity)


def _check(entry: Any) -> None:
    """Raises RefusedPart."""
    if not entry.entity:
        raise RefusedPart(ErrorCode.invalid_request, "Invalid empty client quota entity")
    for part in entry.entity:
        if part.entity_type not in _ENTITY_TYPES:
            message = f"Unhandled client quota entity type: {part.entity_type}"
            raise RefusedPart(ErrorCode.invalid_request, message)
        if part.entity_name == "":
            raise RefusedPart(ErrorCode.invalid_request, f"Empty {part.entity_type} not supported")
    types = {part.entity_type for part in entry.entity}
    if "ip" in types and len(types) > 1:
        message = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        raise RefusedPart(ErrorCode.invalid_request, message)
    if any(not operation.remove for operation in entry.ops):
        message = "Client quotas are not supported."
        raise RefusedPart(ErrorCode.unsupported_version, message)


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    call.answer(_Reply([_Result(entry.entity, error) for entry in request.entries]))


API = Api(KEY, "AlterClientQuotas", range(2), handle, fail, needs=ALTER_CLUSTER_CONFIGS)
