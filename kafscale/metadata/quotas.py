"""Client quotas in the metadata store: a watched view for reads, and changes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import trio

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.metadata.interface import KeyValue, MetadataStore
from kafscale.metadata.watched import WatchedValues
from kafscale.security.quotas import NO_QUOTAS, Entity, Limits, QuotaTable
from kafscale.v1.metadata_pb2 import Quotas as StoredQuotas

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class EntityQuotas:
    """The quotas of an entity. ``limits`` is never empty."""

    entity: Entity
    limits: Limits

    def value(self) -> bytes:
        """Return the value in the store."""
        parts = [StoredQuotas.Part(type=kind, name=name) for kind, name in self.entity.parts]
        return StoredQuotas(format=_FORMAT, entity=parts, limits=self.limits).SerializeToString(deterministic=True)

    @classmethod
    def read(cls, item: KeyValue) -> "EntityQuotas":
        """Read a value of the store. Raises CorruptData for a format of a later release."""
        stored = StoredQuotas.FromString(item.value)
        if stored.format != _FORMAT:
            raise CorruptData(f"{item.key} has format {stored.format}, which this release does not know")
        parts = tuple((part.type, part.name if part.HasField("name") else None) for part in stored.entity)
        return cls(Entity(parts), dict(stored.limits))


class QuotaCatalog:
    """All quotas of a namespace. `run` must be running, because a change returns only when it is in the view."""

    def __init__(self, store: MetadataStore, namespace: str) -> None:
        self._namespace = namespace
        self._quotas: Mapping[Entity, Limits] = {}
        self._values = WatchedValues(
            store, paths.quotas_prefix(namespace), decode=EntityQuotas.read, encode=EntityQuotas.value, show=self._show
        )
        self.table: QuotaTable = NO_QUOTAS
        """The quotas, for lookups."""

    @property
    def quotas(self) -> Mapping[Entity, Limits]:
        """The quotas of each entity that has any."""
        return self._quotas

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the quotas current until cancelled. Started after the first read; raises Refused only before that."""
        await self._values.run(task_status=task_status)

    async def change(self, entity: Entity, change: Callable[[Limits], Limits]) -> None:
        """Change the quotas of an entity, which may have none yet.

        ``change`` may be called several times. Raises its errors, Unavailable and Refused.
        """

        def changed(found: EntityQuotas | None) -> EntityQuotas | None:
            limits = change(found.limits if found else {})
            return EntityQuotas(entity, limits) if limits else None

        await self._values.change(paths.quota_key(self._namespace, entity.parts), changed)

    def _show(self, values: Mapping[str, EntityQuotas]) -> None:
        self._quotas = {each.entity: each.limits for each in values.values()}
        self.table = QuotaTable(self._quotas)
