"""What the operator stores in the resources of topics and users: their cluster, a finalizer, and the status."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from services.operator.cluster_refs import named_cluster
from services.operator.conditions import SYNCED, Condition, merged, reason_of
from services.operator.events import Events
from services.operator.kubernetes import Kubernetes
from services.operator.resources import Kind, Object, finalizers, name_of


class Records:
    """Changes resources of one kind. ``faults`` are the reasons of Synced that are recorded as an event."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        events: Events,
        kind: Kind,
        *,
        finalizer: str,
        faults: Collection[str],
        now: Callable[[], datetime],
    ) -> None:
        self._kubernetes = kubernetes
        self._events = events
        self._kind = kind
        self._finalizer = finalizer
        self._faults = faults
        self._now = now

    async def bind(self, resource: Object, cluster: str) -> Object:
        """Record the cluster before anything is changed there, so that a second cluster does not orphan the rest."""
        if resource.get("status", {}).get("cluster") == cluster:
            return resource
        return await self.note(resource, {"cluster": cluster})

    async def note(self, resource: Object, fields: Object) -> Object:
        """Store fields of the status."""
        return await self._kubernetes.patch(self._kind, name_of(resource), {"status": fields}, subresource="status")

    def is_held(self, resource: Object) -> bool:
        return self._finalizer in finalizers(resource)

    async def hold(self, resource: Object, *, wanted: bool) -> Object:
        """Add or remove the finalizer."""
        if self.is_held(resource) is wanted:
            return resource
        others = [name for name in finalizers(resource) if name != self._finalizer]
        metadata = {
            "finalizers": [*others, self._finalizer] if wanted else others,
            "resourceVersion": resource["metadata"]["resourceVersion"],
        }
        return await self._kubernetes.patch(self._kind, name_of(resource), {"metadata": metadata})

    async def report(self, resource: Object, conditions: Sequence[Condition], fields: Object) -> None:
        """Store the status if it has changed. A fault is recorded as an event once."""
        former = resource.get("status", {})
        generation = int(resource["metadata"]["generation"])
        now = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        status: Object = {
            "observedGeneration": generation,
            "conditions": merged(former.get("conditions", []), conditions, generation=generation, now=now),
            **fields,
        }
        if cluster := named_cluster(resource):
            status["cluster"] = cluster
        # A field that is None is removed.
        if {name: value for name, value in {**former, **status}.items() if value is not None} == former:
            return
        stored = await self.note(resource, status)
        fault = next((each for each in conditions if each.type == SYNCED and each.reason in self._faults), None)
        if fault is not None and reason_of(former, SYNCED) != fault.reason:
            await self._events.record(stored, fault.reason, fault.message, type_="Warning")
