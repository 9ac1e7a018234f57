"""Reconciles what a cluster contains, a topic or a user, with the resource that describes it.

The process may end after any step, and the next reconciliation starts from the current state. The finalizer is
therefore stored before the first change that depends on it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import ClassVar, Generic, Protocol, TypeVar

from kafscale.errors import Unavailable
from kafscale.rpc.errors import StatusError
from services.operator.cluster_refs import oldest_rival, why_no_cluster
from services.operator.clusters.desired import servers_of
from services.operator.conditions import absent, unknown
from services.operator.counters import OperatorCounters
from services.operator.events import Events
from services.operator.gateways import Gateway, Gateways, reason_of, sentence_of
from services.operator.kubernetes import Kubernetes
from services.operator.leadership import utc_now
from services.operator.records import Records
from services.operator.resources import Kind, Object, is_deleting


class DesiredState(Protocol):
    """``cluster`` is empty if it is not known. ``deletes``: whether the content is deleted with the resource."""

    @property
    def cluster(self) -> str: ...

    @property
    def deletes(self) -> bool: ...


D = TypeVar("D", bound=DesiredState)


class Reconciler(ABC, Generic[D]):
    """``resources`` and ``clusters`` are the latest known resources of its kind and of clusters, by name."""

    KIND: ClassVar[Kind]
    FINALIZER: ClassVar[str]
    FAULTS: ClassVar[tuple[str, ...]]
    """The reasons of conditions that a change of the resource or of the cluster has to mend."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        gateways: Gateways,
        events: Events,
        counters: OperatorCounters,
        *,
        resources: Mapping[str, Object],
        clusters: Mapping[str, Object],
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._kubernetes = kubernetes
        self._records = Records(kubernetes, events, self.KIND, finalizer=self.FINALIZER, faults=self.FAULTS, now=now)
        self._gateways = gateways
        self._events = events
        self._counters = counters
        self._resources = resources
        self._clusters = clusters

    async def reconcile(self, name: str) -> bool:
        """Reconcile a resource, and return whether it exists. The caller retries after a KafscaleError."""
        # Read it again, because the watch may lag behind the operator's own writes.
        resource = await self._kubernetes.get(self.KIND, name)
        if resource is None:
            return False
        desired = self._desired(resource, self._clusters)
        rival = oldest_rival(resource, self._resources.values(), lambda each: self._identity(each, self._clusters))
        if is_deleting(resource):
            await self._release(resource, desired, rival)
            return True
        if rival:
            message = f"the older {self.KIND.name} {rival} already describes the {self._named(desired)}"
            await self._records.report(resource, absent("Conflict", message), self._fields(desired))
            return True
        cluster = self._clusters.get(desired.cluster)
        if cluster is None:
            reason, message = why_no_cluster(desired.cluster, self._clusters)
            await self._records.report(resource, absent(reason, message), self._fields(desired))
            return True
        resource = await self._records.bind(resource, desired.cluster)
        resource = await self._records.hold(resource, wanted=desired.deletes)
        await self._align(resource, desired, cluster)
        return True

    async def _align(self, resource: Object, desired: D, cluster: Object) -> None:
        """Bring the content of the cluster to the desired state. An outage is reported, and raised."""
        try:
            async with self._gateways.serving(servers_of(cluster)) as gateway:
                await self._align_by(gateway, resource, desired)
        except (StatusError, Unavailable) as error:
            conditions = unknown(reason_of(error), sentence_of(error))
            await self._records.report(resource, conditions, self._fields(desired))
            raise

    async def _release(self, resource: Object, desired: D, rival: str) -> None:
        """Delete the content if the resource requires it, and remove the finalizer."""
        if not self._records.is_held(resource):
            return
        cluster, retained = self._clusters.get(desired.cluster), f"{self._named(desired)} is retained"
        if not desired.deletes or rival:
            await self._events.record(resource, "Retained", retained)
        elif cluster is None:
            message = f"{retained}: {why_no_cluster(desired.cluster, self._clusters)[1]}"
            await self._events.record(resource, "Retained", message, type_="Warning")
        else:
            await self._delete(resource, desired, cluster)
        await self._records.hold(resource, wanted=False)

    async def _delete(self, resource: Object, desired: D, cluster: Object) -> None:
        try:
            async with self._gateways.serving(servers_of(cluster)) as gateway:
                deleted = await self._delete_by(gateway, resource, desired)
        except (StatusError, Unavailable) as error:
            message = f"{self._named(desired)} must be deleted first: {sentence_of(error)}"
            await self._records.report(resource, unknown(reason_of(error), message), self._fields(desired))
            raise
        if deleted:
            await self._events.record(resource, "Deleted", deleted)

    @abstractmethod
    def _desired(self, resource: Object, clusters: Collection[str]) -> D:
        """Return the desired state in a valid resource."""

    @abstractmethod
    def _identity(self, resource: Object, clusters: Collection[str]) -> tuple[str, str]:
        """Return what only one resource can describe."""

    @abstractmethod
    def _named(self, desired: D) -> str:
        """Return what is described, such as ``topic orders``."""

    @abstractmethod
    def _fields(self, desired: D) -> Object:
        """Return the fields of the status if the content is not known."""

    @abstractmethod
    async def _align_by(self, gateway: Gateway, resource: Object, desired: D) -> None:
        """Bring the content to the desired state, and report it."""

    @abstractmethod
    async def _delete_by(self, gateway: Gateway, resource: Object, desired: D) -> str:
        """Delete the content. Return what was deleted, in a sentence; empty if there was nothing."""
