"""Lists and changes client quotas. All functions raise RefusedPart."""

from kio.schema.errors import ErrorCode

from kafscale.security.quotas import Entity, InvalidQuota, Limits
from kafscale.v1 import admin_pb2 as pb
from services.gateway.admin.topics import API
from services.gateway.api import Environment
from services.gateway.owners.errors import RefusedPart
from services.gateway.store_changes import stored


def list_quotas(environment: Environment) -> pb.ListQuotasReply:
    found = sorted(environment.quota_catalog.quotas.items(), key=lambda item: str(item[0]))
    return pb.ListQuotasReply(
        quotas=[
            pb.EntityQuotas(entity=[pb.QuotaPart(type=kind, name=name) for kind, name in entity.parts], limits=limits)
            for entity, limits in found
        ]
    )


async def set_quotas(environment: Environment, request: pb.SetQuotasRequest) -> pb.SetQuotasReply:
    try:
        entity = _entity(request)
        for key, value in request.set.items():
            entity.check(key, value)
    except InvalidQuota as invalid:
        raise RefusedPart(ErrorCode.invalid_request, str(invalid)) from None
    gone = set(request.remove)
    if not request.set and not gone:
        raise RefusedPart(ErrorCode.invalid_request, "The request neither sets nor removes a quota")
    if gone & set(request.set):
        raise RefusedPart(ErrorCode.invalid_request, "The request sets and removes the same quota")

    def changed(before: Limits) -> Limits:
        return {key: value for key, value in {**before, **request.set}.items() if key not in gone}

    if not request.validate_only:
        await stored(environment, API, environment.quota_catalog.change(entity, changed))
    return pb.SetQuotasReply()


def _entity(request: pb.SetQuotasRequest) -> Entity:
    """Raises InvalidQuota."""
    names = {part.type: part.name if part.HasField("name") else None for part in request.entity}
    if len(names) < len(request.entity):
        raise InvalidQuota("A type of entity is named twice")
    return Entity.of(names)
