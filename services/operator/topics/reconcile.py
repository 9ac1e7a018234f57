"""Reconciles a topic with its KafscaleTopic.

The process may end after any step, and the next reconciliation starts from the current state. The finalizer and the
names of managed configs are therefore stored before the first change that depends on them.
"""

from collections.abc import Callable, Mapping
from datetime import datetime

from kafscale.errors import Unavailable
from kafscale.rpc.errors import StatusError
from services.operator.cluster_refs import oldest_rival, why_no_cluster
from services.operator.clusters.desired import servers_of
from services.operator.conditions import SYNCED, Complaint, absent, reason_of, unknown
from services.operator.counters import OperatorCounters
from services.operator.events import Events
from services.operator.gateways import Gateway, Gateways, is_refusal, sentence_of
from services.operator.gateways import reason_of as reason_of_error
from services.operator.kubernetes import Kubernetes
from services.operator.leadership import utc_now
from services.operator.records import Records
from services.operator.resources import TOPIC, TOPIC_FINALIZER, Object, is_deleting
from services.operator.topics.desired import Desired, identity
from services.operator.topics.plan import CANNOT_SHRINK, Create, Plan, Seen, described, plan
from services.operator.topics.status import fields, observed

_REASONS = {"Create": "Created", "Grow": "Grown", "Configure": "Reconfigured"}
_FAULTS = (
    "PartitionsCannotShrink",
    "InvalidConfig",
    "Refused",
    "Conflict",
    "ClusterNotFound",
    "ClusterAmbiguous",
    "Unauthenticated",
    "PermissionDenied",
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
        self._records = Records(kubernetes, events, TOPIC, finalizer=TOPIC_FINALIZER, faults=_FAULTS, now=now)
        self._gateways = gateways
        self._events = events
        self._counters = counters
        self._topics = topics
        self._clusters = clusters

    async def reconcile(self, name: str) -> bool:
        """Reconcile a resource, and return whether it exists. The caller retries after a KafscaleError."""
        # Read it again, because the watch may lag behind the operator's own writes.
        resource = await self._kubernetes.get(TOPIC, name)
        if resource is None:
            return False
        desired = Desired.of(resource, self._clusters)
        rival = oldest_rival(resource, self._topics.values(), lambda each: identity(each, self._clusters))
        if is_deleting(resource):
            await self._release(resource, desired, rival)
            return True
        if rival:
            message = f"the older KafscaleTopic {rival} already describes the topic {desired.topic}"
            await self._records.report(resource, absent("Conflict", message), fields(desired.topic, None, None))
            return True
        cluster = self._clusters.get(desired.cluster)
        if cluster is None:
            reason, message = why_no_cluster(desired.cluster, self._clusters)
            await self._records.report(resource, absent(reason, message), fields(desired.topic, None, None))
            return True
        resource = await self._records.bind(resource, desired.cluster)
        resource = await self._records.hold(resource, wanted=desired.deletes)
        try:
            async with self._gateways.serving(servers_of(cluster)) as gateway:
                await self._align(resource, desired, gateway)
        except (StatusError, Unavailable) as error:
            conditions = unknown(reason_of_error(error), sentence_of(error))
            await self._records.report(resource, conditions, fields(desired.topic, None, None))
            raise
        return True

    async def _align(self, resource: Object, desired: Desired, gateway: Gateway) -> None:
        seen = await gateway.describe(desired.topic)
        adopted = seen is not None and "topicId" not in resource.get("status", {})
        noted = resource.get("status", {}).get("managedConfigs", [])
        needed = plan(desired, seen, noted)
        if set(needed.managed) != set(noted):
            resource = await self._records.note(resource, {"managedConfigs": list(needed.managed)})
        if adopted:
            await self._events.record(resource, "Adopted", f"topic {desired.topic} already exists and is adopted")
        seen, complaint = await self._carry_out(resource, desired, gateway, seen, needed)
        # Configs that were unset are no longer managed. After a refused plan the state is unknown.
        managed = sorted(desired.configs) if complaint is None or complaint.reason == CANNOT_SHRINK else None
        await self._records.report(resource, observed(seen, complaint), fields(desired.topic, seen, managed))

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
        if not self._records.is_held(resource):
            return
        cluster = self._clusters.get(desired.cluster)
        if not desired.deletes or rival:
            await self._events.record(resource, "Retained", f"topic {desired.topic} is retained")
        elif cluster is None:
            message = f"topic {desired.topic} is retained: {why_no_cluster(desired.cluster, self._clusters)[1]}"
            await self._events.record(resource, "Retained", message, type_="Warning")
        else:
            await self._delete(resource, desired, cluster)
        await self._records.hold(resource, wanted=False)

    async def _delete(self, resource: Object, desired: Desired, cluster: Object) -> None:
        try:
            async with self._gateways.serving(servers_of(cluster)) as gateway:
                was_there = await gateway.delete(desired.topic)
        except (StatusError, Unavailable) as error:
            message = f"topic {desired.topic} must be deleted first: {sentence_of(error)}"
            conditions = unknown(reason_of_error(error), message)
            await self._records.report(resource, conditions, fields(desired.topic, None, None))
            raise
        if was_there:
            self._counters.actions["delete"] += 1
            await self._events.record(resource, "Deleted", f"deleted topic {desired.topic} with all its records")
