"""DescribeClientQuotas (48), versions 0 to 1: the quotas of users, client ids and addresses.

- 0: filters by entity type.
- 1: flexible.

A filter requires a name, the default or any name of a type. A strict filter selects only entities without other types.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import DESCRIBE_CLUSTER_CONFIGS
from kafscale.security.quotas import ENTITY_TYPES, IP, Entity, Filter, Limits
from services.gateway.api import Api, Call, Work
from services.gateway.owners.errors import RefusedPart

KEY = 48

_EXACT, _DEFAULT, _ANY = range(3)


@dataclass(frozen=True, slots=True)
class _Part:
    entity_type: str
    entity_name: str | None


@dataclass(frozen=True, slots=True)
class _Value:
    key: str
    value: float


@dataclass(frozen=True, slots=True)
class _Entry:
    entity: tuple[_Part, ...]
    values: tuple[_Value, ...]


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    entries: tuple[_Entry, ...] | None = ()
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    try:
        wanted = _filter(request.components, strict=request.strict)
    except RefusedPart as refused:
        call.answer(_Reply(refused.code, str(refused), None))
        return None
    found = call.environment.quota_catalog.quotas.items()
    call.answer(_Reply(entries=tuple(_entry(entity, limits) for entity, limits in found if wanted.matches(entity))))
    return None


def _entry(entity: Entity, limits: Limits) -> _Entry:
    parts = tuple(_Part(kind, name) for kind, name in entity.parts)
    return _Entry(parts, tuple(_Value(key, value) for key, value in sorted(limits.items())))


def _filter(components: Sequence[Any], *, strict: bool) -> Filter:
    """Raises RefusedPart."""
    names: dict[str, str | None] = {}
    kinds: set[str] = set()
    for component in components:
        entity_type = component.entity_type
        if not entity_type:
            raise RefusedPart(ErrorCode.invalid_request, "Invalid empty entity type.")
        if entity_type in names or entity_type in kinds:
            message = f"Entity type {entity_type} cannot appear more than once in the filter."
            raise RefusedPart(ErrorCode.invalid_request, message)
        if entity_type not in ENTITY_TYPES:
            raise RefusedPart(ErrorCode.unsupported_version, f"Unsupported entity type {entity_type}")
        _check_match(component.match_type, component.match)
        if component.match_type == _ANY:
            kinds.add(entity_type)
        else:
            names[entity_type] = component.match
    if len(components) > 1 and (IP in names or IP in kinds):
        raise RefusedPart(
            ErrorCode.invalid_request,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        )
    return Filter(names, frozenset(kinds), strict)


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
