"""AlterClientQuotas (49), versions 0 to 1: sets and removes quotas of users, client ids and addresses.

- 0: quotas by entity, and validate_only.
- 1: flexible.

Each entity has one result. As in Kafka, an entity that is named twice is answered with INVALID_REQUEST, although its
first change is made. Unlike in Kafka, host names are refused, because they are not resolved, and so is a value that is
not a number.
The response is sent when the quotas are stored and this gateway enforces them. Other gateways learn them from the
metadata store.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import trio
from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import ALTER_CLUSTER_CONFIGS
from kafscale.security.quotas import CLIENT_ID, IP, USER, Entity, InvalidQuota, Limits
from services.gateway.api import Api, Call, Work
from services.gateway.owners.errors import RefusedPart
from services.gateway.store_changes import stored

KEY = 49

_SHOWN_ORDER = (CLIENT_ID, USER, IP)
"""In which order Kafka shows the parts of an entity in a message."""

_Change = Mapping[str, float | None]
"""The new quotas by key; None: the quota is to be removed."""


@dataclass(frozen=True, slots=True)
class _Part:
    entity_type: str
    entity_name: str | None


@dataclass(slots=True)
class _Result:
    entity: tuple[_Part, ...]
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None

    def refuse(self, code: ErrorCode, message: str) -> None:
        self.error_code, self.error_message = code, message


@dataclass(frozen=True, slots=True)
class _Reply:
    entries: list[_Result]
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    results: dict[frozenset[tuple[str, str | None]], _Result] = {}
    changes: list[tuple[Entity, _Change, _Result]] = []
    for entry in request.entries:
        names = {part.entity_type: part.entity_name for part in entry.entity}
        key = frozenset(names.items())
        known = results.get(key)
        result = results.setdefault(key, _result(names))
        ops = {op.key: None if op.remove else op.value for op in entry.ops}
        if known is not None or len(ops) < len(entry.ops):
            result.refuse(ErrorCode.invalid_request, f"Ignoring duplicate entity {_shown(names)}")
            continue
        try:
            changes.append((*_checked(names, ops), result))
        except InvalidQuota as invalid:
            result.refuse(ErrorCode.invalid_request, str(invalid))
    return _change_all(call, [*results.values()], [] if request.validate_only else changes)


def _result(names: Mapping[str, str | None]) -> _Result:
    return _Result(tuple(_Part(kind, name) for kind, name in names.items()))


def _shown(names: Mapping[str, str | None]) -> str:
    """Format an entity as Kafka does in messages."""
    kinds: Iterable[str] = sorted(names, key=lambda kind: _SHOWN_ORDER.index(kind) if kind in _SHOWN_ORDER else -1)
    parts = (f"{kind}={'null' if names[kind] is None else names[kind]}" for kind in kinds)
    return f"ClientQuotaEntity(entries={{{', '.join(parts)}}})"


def _checked(names: Mapping[str, str | None], ops: _Change) -> tuple[Entity, _Change]:
    """Raises InvalidQuota."""
    entity = Entity.of(names)
    for key, value in ops.items():
        if value is not None:
            entity.check(key, value)
    return entity, ops


async def _change_all(call: Call, results: list[_Result], changes: list[tuple[Entity, _Change, _Result]]) -> None:
    async with trio.open_nursery() as nursery:
        for entity, change, result in changes:
            nursery.start_soon(_change, call, entity, change, result)
    call.answer(_Reply(results))


async def _change(call: Call, entity: Entity, change: _Change, result: _Result) -> None:
    def changed(before: Limits) -> Limits:
        after = {**before, **change}
        return {key: value for key, value in after.items() if value is not None}

    try:
        await stored(call.environment, API.name, call.environment.quota_catalog.change(entity, changed))
    except RefusedPart as refused:
        result.refuse(refused.code, str(refused))


def fail(call: Call, error: ErrorCode) -> None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    answers = [_result({part.entity_type: part.entity_name for part in entry.entity}) for entry in request.entries]
    for answer in answers:
        answer.error_code = error
    call.answer(_Reply(answers))


API = Api(KEY, "AlterClientQuotas", range(2), handle, fail, needs=ALTER_CLUSTER_CONFIGS)
