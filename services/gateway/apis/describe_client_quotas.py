"""DescribeClientQuotas (48), versions 0 to 1: the quotas of users, client ids and addresses.

- 0: filters by entity type.
- 1: flexible.

There are no quotas, so the list is empty. Filters are checked as in Kafka.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import DESCRIBE_CLUSTER_CONFIGS
from services.gateway.api import Api, Call, Work
from services.gateway.owners.errors import RefusedPart

KEY = 48

_EXACT, _DEFAULT, _ANY = range(3)
_ENTITY_TYPES = ("user", "client-id", "ip")


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    entries: tuple[()] | None = ()
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    try:
        _check(request.components)
        call.answer(_Reply())
    except RefusedPart as refused:
        call.answer(_Reply(refused.code, str(refused), None))
    return None


def _check(components: Sequence[Any]) -> None:
    """Raises RefusedPart."""
    seen: set[str] = set()
    for component in components:
        entity_type = component.entity_type
        if not entity_type:
            raise RefusedPart(ErrorCode.invalid_request, "Invalid empty entity type.")
        if entity_type in seen:
            message = f"Entity type {entity_type} cannot appear more than once in the filter."
            raise RefusedPart(ErrorCode.invalid_request, message)
        if entity_type not in _ENTITY_TYPES:
            raise RefusedPart(ErrorCode.unsupported_version, f"Unsupported entity type {entity_type}")
        seen.add(entity_type)
        _check_match(component.match_type, component.match)
    if "ip" in seen and len(seen) > 1:
        raise RefusedPart(
            ErrorCode.invalid_request,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        )


def _check_match(kind: int, match: str | None) -> None:
    if kind not in (_EXACT, _DEFAULT, _ANY):
        raise RefusedPart(ErrorCode.invalid_request, f"Unknown match type {kind}")
    if kind == _EXACT and match is None:
        message = "Request specified MATCH_TYPE_EXACT, but set match string to null."
        raise RefusedPart(ErrorCode.invalid_request, message)
    if kind != _EXACT and match is not None:
        name = "MATCH_TYPE_DEFAULT" if kind == _DEFAULT else "MATCH_TYPE_SPECIFIED"
        raise RefusedPart(ErrorCode.invalid_request, f"Request specified {name}, but also specified a match string.")


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply(error, None, None))


API = Api(KEY, "DescribeClientQuotas", range(2), handle, fail, needs=DESCRIBE_CLUSTER_CONFIGS)
