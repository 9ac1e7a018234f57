"""Reconciles a topic with its KafscaleTopic.

The names of managed configs are stored before the first change that depends on them.
"""

from collections.abc import Collection

from kafscale.rpc.errors import StatusError
from services.operator.conditions import SYNCED, Complaint, reason_of
from services.operator.gateways import Gateway, is_refusal
from services.operator.reconciler import Reconciler
from services.operator.resources import TOPIC, TOPIC_FINALIZER, Object
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


class TopicReconciler(Reconciler[Desired]):
    """Reconciles topics."""

    KIND, FINALIZER, FAULTS = TOPIC, TOPIC_FINALIZER, _FAULTS

    def _desired(self, resource: Object, clusters: Collection[str]) -> Desired:
        return Desired.of(resource, clusters)

    def _identity(self, resource: Object, clusters: Collection[str]) -> tuple[str, str]:
        return identity(resource, clusters)

    def _named(self, desired: Desired) -> str:
        return f"topic {desired.topic}"

    def _fields(self, desired: Desired) -> Object:
        return fields(desired.topic, None, None)

    async def _align_by(self, gateway: Gateway, resource: Object, desired: Desired) -> None:
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

    async def _delete_by(self, gateway: Gateway, resource: Object, desired: Desired) -> str:
        if not await gateway.delete(desired.topic):
            return ""
        self._counters.actions["delete"] += 1
        return f"deleted topic {desired.topic} with all its records"
