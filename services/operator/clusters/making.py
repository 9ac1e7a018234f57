"""Applies the objects of a KafscaleCluster and reports their state.

Each run is stateless and applies all objects again, so the next one completes a run that was interrupted.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafscale.errors import KafscaleError
from services.operator.clusters.checks import complaints
from services.operator.clusters.manifests import Manifests
from services.operator.clusters.render import INSTANCE, MANAGED_BY, WORKLOADS, digest, render
from services.operator.conditions import Condition, Truth, reason_of
from services.operator.events import Events
from services.operator.kubernetes import ApiRefused, Kubernetes
from services.operator.resources import GROUP, MADE, MANAGER, Object, name_of

APPLIED, ROLLED_OUT = "Applied", "RolledOut"
HANDOVER = f"{MANAGER}-handover"
"""The field manager that keeps the number of pods, which the operator no longer sets, until an autoscaler sets it."""
PAUSED, PAUSED_BY = "Paused", f"{GROUP}/paused"
"""The reason, and the annotation that must be "true"."""
_SHARED_SERVICE = "kafscale"
_KINDS = {kind.name: kind for kind in MADE}
_WORKLOADS = {**WORKLOADS, "etcd": "StatefulSet"}
_STATUS = {"gateway": "gateways", "storage": "storage", "indexer": "indexers", "coordinator": "coordinators"}
Found = dict[tuple[str, str], Object]


@dataclass(frozen=True, slots=True)
class Made:
    """The result. ``known`` are the resulting fields of the status. ``pending``: check the cluster again soon."""

    conditions: list[Condition]
    known: Object = field(default_factory=dict)
    pending: bool = False

    @property
    def refusal(self) -> Condition | None:
        """The condition that says why not everything is applied; None if it is, or if nothing is to be applied."""
        return next((each for each in self.conditions if each.type == APPLIED and each.truth is not Truth.TRUE), None)


class Maker:
    """Creates and updates the objects of all clusters in a namespace."""

    def __init__(self, kubernetes: Kubernetes, events: Events, manifests: Manifests) -> None:
        self._kubernetes = kubernetes
        self._events = events
        self._manifests = manifests

    async def make(self, resource: Object) -> Made:
        """Apply the objects of a cluster.

        Raises ApiRefused, which names the object, and ApiUnavailable. `not_made` returns the result for both.
        """
        invalid = complaints(resource, self._manifests)
        if invalid:
            return Made([_not_applied("InvalidSettings", "; ".join(invalid))])
        desired = render(resource, self._manifests)
        present: Found = {}
        for kind in MADE:
            listed, _ = await self._kubernetes.list_all(kind)
            present |= {(kind.name, name_of(each)): each for each in listed}
        for key in map(_key, desired):
            if key in present and not _may_have(present[key], resource):
                # It may belong to a former cluster of this name and be removed soon.
                conflict = _not_applied("Conflict", f"{key[0]} {key[1]} already exists and is not this cluster's")
                return Made([conflict], pending=True)
        selector = present.get(("Service", _SHARED_SERVICE), {}).get("spec", {}).get("selector", {INSTANCE: ""})
        if INSTANCE not in selector:
            why = f"Service {_SHARED_SERVICE} of a cluster from the manifests selects all pods of this namespace"
            return Made([_not_applied("Conflict", f"{why}; use another namespace")], pending=True)
        if resource.get("status", {}).get("rendered") != digest(desired):
            # Validate everything before changing anything.
            for each in desired:
                with _named(*_key(each)):
                    await self._kubernetes.apply(_KINDS[each["kind"]], each, manager=MANAGER, dry_run=True)
        changed: dict[str, list[str]] = {"created": [], "changed": [], "removed": []}
        stored: Found = {}
        for each in desired:
            with _named(*_key(each)):
                stored[_key(each)] = await self._apply(each, present.get(_key(each)), changed)
        for key in [key for key, each in present.items() if key not in stored and _made_for(each, resource)]:
            with _named(*key):
                await self._kubernetes.delete(_KINDS[key[0]], present[key])
            changed["removed"].append(f"{key[0]} {key[1]}")
        await self._record_changes(resource, digest(desired), changed)
        return _made(name_of(resource), digest(desired), stored)

    async def _apply(self, desired: Object, former: Object | None, changed: Mapping[str, list[str]]) -> Object:
        kind = _KINDS[desired["kind"]]
        scaled = "replicas" not in desired.get("spec", {})
        if former is not None and scaled and _sets_replicas(former):
            # Without another manager, the field would be removed when the operator releases it, and default to 1.
            kept = {
                "apiVersion": kind.api,
                "kind": kind.name,
                "metadata": {"name": name_of(desired)},
                "spec": {"replicas": former["spec"]["replicas"]},
            }
            await self._kubernetes.apply(kind, kept, manager=HANDOVER)
        stored = await self._kubernetes.apply(kind, desired, manager=MANAGER)
        if former is None:
            changed["created"].append(f"{kind.name} {name_of(desired)}")
        elif _content(former, desired) != _content(stored, desired):
            changed["changed"].append(f"{kind.name} {name_of(desired)}")
        return stored

    async def _record_changes(self, resource: Object, rendered: str, changed: Mapping[str, list[str]]) -> None:
        parts = [f"{what} {_listed(objects)}" for what, objects in changed.items() if objects]
        if not parts:
            return
        status = resource.get("status", {})
        repaired = status.get("rendered") == rendered and reason_of(status, APPLIED) == "AsWanted"
        await self._events.record(resource, "DriftRepaired" if repaired else "ObjectsChanged", "; ".join(parts))


@contextmanager
def _named(kind: str, name: str) -> Iterator[None]:
    """Prefix the message of an ApiRefused with the object."""
    try:
        yield
    except ApiRefused as error:
        raise ApiRefused(error.status, f"{kind} {name}: {error}") from error


def paused() -> Made:
    """Return the result for a paused cluster."""
    return Made([Condition(APPLIED, Truth.UNKNOWN, PAUSED, f"paused by the annotation {PAUSED_BY}")])


def not_made(error: KafscaleError) -> Made:
    """Return the result for a cluster whose objects could not be listed, applied or deleted."""
    if isinstance(error, ApiRefused):
        return Made([_not_applied("Refused", str(error))])
    return Made([Condition(APPLIED, Truth.UNKNOWN, "ApiUnavailable", str(error))])


def _made(cluster: str, rendered: str, stored: Found) -> Made:
    workloads = {
        service: stored[kind, f"{cluster}-kafscale-{service}"]
        for service, kind in _WORKLOADS.items()
        if (kind, f"{cluster}-kafscale-{service}") in stored
    }
    counts = {service: _counts(each) for service, each in workloads.items()}
    pods = {_STATUS.get(service, service): f"{ready}/{desired}" for service, (ready, desired, _) in counts.items()}
    pods["all"] = f"{sum(ready for ready, _, _ in counts.values())}/{sum(desired for _, desired, _ in counts.values())}"
    behind = [f"{service} {ready}/{desired}" for service, (ready, desired, done) in counts.items() if not done]
    rolled_out = (
        Condition(ROLLED_OUT, Truth.FALSE, "RollingOut", f"not all pods are updated and ready: {', '.join(behind)}")
        if behind
        else Condition(ROLLED_OUT, Truth.TRUE, "RolledOut", "all pods are updated and ready")
    )
    applied = Condition(APPLIED, Truth.TRUE, "AsWanted", f"{len(stored)} objects match the resource")
    return Made([applied, rolled_out], {"pods": pods, "rendered": rendered}, pending=bool(behind))


def _counts(workload: Object) -> tuple[int, int, bool]:
    """Return the ready pods, the desired pods, and whether these are updated and ready and no others exist."""
    status, desired = workload.get("status", {}), int(workload["spec"].get("replicas", 1))
    ready, seen = int(status.get("readyReplicas", 0)), int(status.get("observedGeneration", 0))
    done = seen >= int(workload["metadata"]["generation"]) and all(
        int(status.get(name, 0)) == desired for name in ("replicas", "readyReplicas", "updatedReplicas")
    )
    return ready, desired, done


def _not_applied(reason: str, message: str) -> Condition:
    return Condition(APPLIED, Truth.FALSE, reason, message)


def _key(resource: Object) -> tuple[str, str]:
    return resource["kind"], name_of(resource)


def _owned(present: Object, resource: Object) -> bool:
    return any(owner["uid"] == resource["metadata"]["uid"] for owner in present["metadata"].get("ownerReferences", []))


def _made_for(present: Object, resource: Object) -> bool:
    """Return whether the operator created the object. Objects of others may have the cluster as their owner too."""
    return _owned(present, resource) and present["metadata"].get("labels", {}).get(MANAGED_BY) == MANAGER


def _may_have(present: Object, resource: Object) -> bool:
    """Return whether the object is the cluster's, or was left by a cluster deleted with ``--cascade=orphan``."""
    labels = present["metadata"].get("labels", {})
    leftover = labels.get(INSTANCE) == name_of(resource) and labels.get(MANAGED_BY) == MANAGER
    return _owned(present, resource) or (leftover and not present["metadata"].get("ownerReferences"))


def _sets_replicas(workload: Object) -> bool:
    """Return whether the operator manages the number of pods."""
    return any(
        entry["manager"] == MANAGER and "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
        for entry in workload["metadata"].get("managedFields", [])
    )


def _content(stored: Object, desired: Object) -> Object:
    """Return the fields of an object that count as changes: its content, and the labels and annotations applied."""
    found = {name: each for name, each in stored.items() if name not in ("apiVersion", "kind", "metadata", "status")}
    if "spec" in found and "replicas" not in desired.get("spec", {}):
        found["spec"] = {name: each for name, each in found["spec"].items() if name != "replicas"}
    metadata = stored["metadata"]
    found |= {
        name: {key: metadata.get(name, {}).get(key) for key in desired["metadata"].get(name, {})}
        for name in ("labels", "annotations")
    }
    return found


def _listed(objects: list[str]) -> str:
    few = 4
    return ", ".join(objects) if len(objects) <= few else f"{', '.join(objects[:few])} and {len(objects) - few} more"
