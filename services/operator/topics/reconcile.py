"""Reconciles a topic with its KafscaleTopic.

The process may end after any step, and the next reconciliation starts from the current state. The finalizer and the
names of managed configs are therefore stored before the first change that depends on them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from kafscale.errors import Unavailable
from kafscale.rpc.errors import StatusError
from services.operator.clusters.desired import servers_of
from services.operator.conditions import Condition, reason_of
from services.operator.counters import OperatorCounters
from services.operator.events import Events
from services.operator.gateways import Gateway, Gateways, is_refusal, sentence_of
from services.operator.gateways import reason_of as reason_of_error
from services.operator.kubernetes import Kubernetes
from services.operator.leadership import utc_now
from services.operator.resources import FINALIZER, TOPIC, Object, age_key, finalizers, is_deleting, name_of
from services.operator.topics.desired import Desired, named_cluster
from services.operator.topics.plan import CANNOT_SHRINK, Complaint, Create, Plan, Seen, described, plan
from services.operator.topics.status import SYNCED, absent, observed, status_of, unknown

_REASONS = {"Create": "Created", "Grow": "Grown", "Configure": "Reconfigured"}
_FAULTS = (
    "PartitionsCannotShrink",
    "InvalidConfig",
    "Refused",
    "Conflict",
    "ClusterNotFound",
    "ClusterAmbiguous",
    "Unauthenticated",
)


class TopicReconciler:
    """Reconciles topics. ``topics`` and ``clusters`` are the latest known resources of each kind by name."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        gateways: Gateways,
        events: Events,
        counters: OperatorCounters,
        *,
        topics: Mapping[str, Object],
        clusters: Mapping[str, Object],
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._kubernetes = kubernetes
        self._gateways = gateways
        self._events = events
        self._counters = counters
        self._topics = topics
        self._clusters = clusters
        self._now = now

    async def reconcile(self, name: str) -> bool:
        """Reconcile a resource, and return whether it exists. The caller retries after a KafscaleError."""
        # Read it again, because the watch may lag behind the operator's own writes.
        resource = await self._kubernetes.get(TOPIC, name)
        if resource is None:
            return False
        desired = Desired.of(resource, self._clusters)
        rival = self._rival(resource, desired)
        if is_deleting(resource):
            await self._release(resource, desired, rival)
            return True
        if rival:
            message = f"the older KafscaleTopic {rival} already describes the topic {desired.topic}"
            await self._report(resource, desired, absent("Conflict", message))
            return True
        cluster = self._clusters.get(desired.cluster)
        if cluster is None:
            await self._report(resource, desired, absent(*self._why_no_cluster(desired)))
            return True
        resource = await self._bind(resource, desired)
        resource = await self._hold(resource, desired)
        try:
            async with self._gateways.serving(servers_of(cluster)) as gateway:
                await self._align(resource, desired, gateway)
        except (StatusError, Unavailable) as error:
            await self._report(resource, desired, unknown(reason_of_error(error), sentence_of(error)))
            raise
        return True

    def _rival(self, resource: Object, desired: Desired) -> str:
        """Return the name of the oldest older resource for the same topic, empty if there is none."""
        older = [
            other
            for other in self._topics.values()
            if name_of(other) != name_of(resource)
            and age_key(other) < age_key(resource)
            and same_topic(other, desired, self._clusters)
        ]
        return name_of(min(older, key=age_key)) if older else ""

    def _why_no_cluster(self, desired: Desired) -> tuple[str, str]:
        """Reason and message for a topic whose cluster cannot be determined."""
        if desired.cluster:
            return "ClusterNotFound", f"KafscaleCluster {desired.cluster} does not exist in this namespace"
        if not self._clusters:
            return "ClusterNotFound", "spec.clusterRef is not set, and this namespace has no KafscaleCluster"
        names = ", ".join(sorted(self._clusters))
        message = f"spec.clusterRef is not set, and this namespace has more than one KafscaleCluster ({names}): set it"
        return "ClusterAmbiguous", message

    async def _bind(self, resource: Object, desired: Desired) -> Object:
        """Record the cluster before anything is changed there, so that a second cluster does not orphan the topic."""
        if resource.get("status", {}).get("cluster") == desired.cluster:
            return resource
        change = {"status": {"cluster": desired.cluster}}
        return await self._kubernetes.patch(TOPIC, name_of(resource), change, subresource="status")

    async def _hold(self, resource: Object, desired: Desired) -> Object:
        """Add the finalizer if the topic is deleted with the resource, else remove it."""
        held = finalizers(resource)
        if (FINALIZER in held) is desired.deletes:
            return resource
        return await self._set_finalizers(resource, keep=desired.deletes)

    async def _set_finalizers(self, resource: Object, *, keep: bool) -> Object:
        others = [name for name in finalizers(resource) if name != FINALIZER]
        metadata = {
            "finalizers": [*others, FINALIZER] if keep else others,
            "resourceVersion": resource["metadata"]["resourceVersion"],
        }
        return await self._kubernetes.patch(TOPIC, name_of(resource), {"metadata": metadata})

    async def _align(self, resource: Object, desired: Desired, gateway: Gateway) -> None:
        seen = await gateway.describe(desired.topic)
        adopted = seen is not None and "topicId" not in resource.get("status", {})
        noted = resource.get("status", {}).get("managedConfigs", [])
        needed = plan(desired, seen, noted)
        if set(needed.managed) != set(noted):
            resource = await self._kubernetes.patch(
                TOPIC, name_of(resource), {"status": {"managedConfigs": list(needed.managed)}}, subresource="status"
            )
        if adopted:
            await self._events.record(resource, "Adopted", f"topic {desired.topic} already exists and is adopted")
        seen, complaint = await self._carry_out(resource, desired, gateway, seen, needed)
        # Configs that were unset are no longer managed. After a refused plan the state is unknown.
        managed = sorted(desired.configs) if complaint is None or complaint.reason == CANNOT_SHRINK else None
        await self._report(resource, desired, observed(seen, complaint), seen, managed)

    async def _carry_out(
        self, resource: Object, desired: Desired, gateway: Gateway, seen: Seen | None, needed: Plan
    ) -> tuple[Seen | None, Complaint | None]:
        """Perform the plan's actions until one is refused. Returns the topic after them, and the complaint."""
        drifted = resource.get("status", {}).get("observedGeneration") == resource["metadata"]["generation"]
        for action in needed.actions:
            try:
                seen = await gateway.act(desired.topic, seen, action)
            except StatusError as error:
                if not is_refusal(error):
                    raise
                return seen, Complaint("Refused", str(error))
            kind = type(action).__name__
            self._counters.actions[kind.lower()] += 1
            # The resource has not changed, so others changed or deleted the topic.
            repaired = drifted and reason_of(resource.get("status", {}), SYNCED) == "AsWanted"
            if repaired and isinstance(action, Create):
                await self._events.record(
                    resource, "Recreated", f"topic {desired.topic} did not exist: {described(action)}", type_="Warning"
                )
            else:
                await self._events.record(resource, "DriftRepaired" if repaired else _REASONS[kind], described(action))
        return seen, needed.complaint

    async def _release(self, resource: Object, desired: Desired, rival: str) -> None:
        """Delete the topic if the resource requires it, and remove the finalizer."""
        if FINALIZER not in finalizers(resource):
            return
        cluster = self._clusters.get(desired.cluster)
        if not desired.deletes or rival:
            await self._events.record(resource, "Retained", f"topic {desired.topic} is retained")
        elif cluster is None:
            message = f"topic {desired.topic} is retained: {self._why_no_cluster(desired)[1]}"
            await self._events.record(resource, "Retained", message, type_="Warning")
        else:
            await self._delete(resource, desired, cluster)
        await self._set_finalizers(resource, keep=False)

    async def _delete(self, resource: Object, desired: Desired, cluster: Object) -> None:
        try:
            async with self._gateways.serving(servers_of(cluster)) as gateway:
                was_there = await gateway.delete(desired.topic)
        except (StatusError, Unavailable) as error:
            reason = reason_of_error(error)
            message = f"topic {desired.topic} must be deleted first: {sentence_of(error)}"
            await self._report(resource, desired, unknown(reason, message))
            raise
        if was_there:
            self._counters.actions["delete"] += 1
            await self._events.record(resource, "Deleted", f"deleted topic {desired.topic} with all its records")

    async def _report(
        self,
        resource: Object,
        desired: Desired,
        conditions: Sequence[Condition],
        seen: Seen | None = None,
        managed: Sequence[str] | None = None,
    ) -> None:
        """Store the status if it has changed. A fault is recorded as an event once."""
        former = resource.get("status", {})
        now = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        status = status_of(
            resource,
            conditions,
            cluster=named_cluster(resource),
            topic=desired.topic,
            seen=seen,
            managed=managed,
            now=now,
        )
        if {**former, **status} == former:
            return
        stored = await self._kubernetes.patch(TOPIC, name_of(resource), {"status": status}, subresource="status")
        fault = next((each for each in conditions if each.type == SYNCED and each.reason in _FAULTS), None)
        if fault is not None and reason_of(former, SYNCED) != fault.reason:
            await self._events.record(stored, fault.reason, fault.message, type_="Warning")


def same_topic(resource: Object, desired: Desired, clusters: Collection[str]) -> bool:
    other = Desired.of(resource, clusters)
    return (other.cluster, other.topic) == (desired.cluster, desired.topic)
