"""Makes the objects of one KafscaleCluster what its manifests are, and says how far they are.

Nothing is kept between two times: each applies all objects anew, so one that was cut short is made good by the next.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafscale.errors import KafscaleError
from services.operator.clusters.checks import complaints
from services.operator.clusters.manifests import Manifests
from services.operator.clusters.render import INSTANCE, MANAGED_BY, SERVICES, digest, render
from services.operator.conditions import Condition, Truth, reason_of
from services.operator.events import Events
from services.operator.kubernetes import ApiRefused, Kubernetes
from services.operator.resources import GROUP, MADE, MANAGER, Object, name_of

APPLIED, ROLLED_OUT = "Applied", "RolledOut"
HANDOVER = f"{MANAGER}-handover"
"""Keeps the number of pods, which the operator does not set any more, until an autoscaler does."""
PAUSED, PAUSED_BY = "Paused", f"{GROUP}/paused"
"""The reason, and the annotation that is to be "true"."""
_EVERYONES = "kafscale"
_KINDS = {kind.name: kind for kind in MADE}
_WORKLOADS = {**SERVICES, "etcd": "StatefulSet"}
_STATUS = {"gateway": "gateways", "storage": "storage", "indexer": "indexers", "coordinator": "coordinators"}
Found = dict[tuple[str, str], Object]


@dataclass(frozen=True, slots=True)
class Made:
    """``known``: what of the status follows. ``on_its_way``: it is worth a look again before long."""

    conditions: list[Condition]
    known: Object = field(default_factory=dict)
    on_its_way: bool = False

    @property
    def refusal(self) -> Condition | None:
        """Why not all of it is applied; None: it is, or there is nothing to apply."""
        return next((each for each in self.conditions if each.type == APPLIED and each.truth is not Truth.TRUE), None)


class Maker:
    """Of all clusters of a namespace."""

    def __init__(self, kubernetes: Kubernetes, events: Events, manifests: Manifests) -> None:
        self._kubernetes = kubernetes
        self._events = events
        self._manifests = manifests

    async def make(self, resource: Object) -> Made:
        """Raises ApiRefused, which names the object, and ApiUnavailable: `not_made` tells of both."""
        wrong = complaints(resource, self._manifests)
        if wrong:
            return Made([_not_applied("InvalidSettings", "; ".join(wrong))])
        wanted = render(resource, self._manifests)
        present: Found = {}
        for kind in MADE:
            listed, _ = await self._kubernetes.list_all(kind)
            present |= {(kind.name, name_of(each)): each for each in listed}
        for key in map(_key, wanted):
            if key in present and not _may_have(present[key], resource):
                # It may be what a cluster of this name left, which is being removed.
                told = _not_applied("Conflict", f"{key[0]} {key[1]} is there already, and is not this cluster's")
                return Made([told], on_its_way=True)
        everyones = present.get(("Service", _EVERYONES), {}).get("spec", {}).get("selector", {INSTANCE: ""})
        if INSTANCE not in everyones:
            why = f"Service {_EVERYONES} of a cluster by the manifests selects the pods of all of this namespace"
            return Made([_not_applied("Conflict", f"{why}; make this one in another namespace")], on_its_way=True)
        if resource.get("status", {}).get("rendered") != digest(wanted):
            # Nothing new is in effect until all of it is good.
            for each in wanted:
                with _named(*_key(each)):
                    await self._kubernetes.apply(_KINDS[each["kind"]], each, manager=MANAGER, dry_run=True)
        changed: dict[str, list[str]] = {"made": [], "changed": [], "removed": []}
        stored: Found = {}
        for each in wanted:
            with _named(*_key(each)):
                stored[_key(each)] = await self._apply(each, present.get(_key(each)), changed)
        for key in [key for key, each in present.items() if key not in stored and _made_for(each, resource)]:
            with _named(*key):
                await self._kubernetes.delete(_KINDS[key[0]], present[key])
            changed["removed"].append(f"{key[0]} {key[1]}")
        await self._tell(resource, digest(wanted), changed)
        return _made(name_of(resource), digest(wanted), stored)

    async def _apply(self, wanted: Object, former: Object | None, changed: Mapping[str, list[str]]) -> Object:
        kind = _KINDS[wanted["kind"]]
        scaled = "replicas" not in wanted.get("spec", {})
        if former is not None and scaled and _sets_replicas(former):
            # Without somebody else who has the field it would go with the operator's part in it, and be 1.
            kept = {
                "apiVersion": kind.api,
                "kind": kind.name,
                "metadata": {"name": name_of(wanted)},
                "spec": {"replicas": former["spec"]["replicas"]},
            }
            await self._kubernetes.apply(kind, kept, manager=HANDOVER)
        stored = await self._kubernetes.apply(kind, wanted, manager=MANAGER)
        if former is None:
            changed["made"].append(f"{kind.name} {name_of(wanted)}")
        elif _content(former, wanted) != _content(stored, wanted):
            changed["changed"].append(f"{kind.name} {name_of(wanted)}")
        return stored

    async def _tell(self, resource: Object, rendered: str, changed: Mapping[str, list[str]]) -> None:
        parts = [f"{what} {_listed(objects)}" for what, objects in changed.items() if objects]
        if not parts:
            return
        status = resource.get("status", {})
        mended = status.get("rendered") == rendered and reason_of(status, APPLIED) == "AsWanted"
        await self._events.tell(resource, "DriftRepaired" if mended else "ObjectsChanged", "; ".join(parts))


@contextmanager
def _named(kind: str, name: str) -> Iterator[None]:
    """A refusal says of which object it is."""
    try:
        yield
    except ApiRefused as error:
        raise ApiRefused(error.status, f"{kind} {name}: {error}") from error


def paused() -> Made:
    """Of a cluster that is left as it is."""
    return Made([Condition(APPLIED, Truth.UNKNOWN, PAUSED, f"nothing is applied while it has {PAUSED_BY}")])


def not_made(error: KafscaleError) -> Made:
    """Of a cluster whose objects the API server did not list, take or delete."""
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
    pods = {_STATUS.get(service, service): f"{ready}/{wanted}" for service, (ready, wanted, _) in counts.items()}
    pods["all"] = f"{sum(ready for ready, _, _ in counts.values())}/{sum(wanted for _, wanted, _ in counts.values())}"
    behind = [f"{service} {ready}/{wanted}" for service, (ready, wanted, done) in counts.items() if not done]
    rolled_out = (
        Condition(ROLLED_OUT, Truth.FALSE, "RollingOut", f"pods are not all new and ready: {', '.join(behind)}")
        if behind
        else Condition(ROLLED_OUT, Truth.TRUE, "RolledOut", "all pods are as they are wanted, and ready")
    )
    applied = Condition(APPLIED, Truth.TRUE, "AsWanted", f"{len(stored)} objects are as the resource says")
    return Made([applied, rolled_out], {"pods": pods, "rendered": rendered}, on_its_way=bool(behind))


def _counts(workload: Object) -> tuple[int, int, bool]:
    """Ready pods, wanted ones, and whether all of the newest form are ready and no others are there."""
    status, wanted = workload.get("status", {}), int(workload["spec"].get("replicas", 1))
    ready, seen = int(status.get("readyReplicas", 0)), int(status.get("observedGeneration", 0))
    done = seen >= int(workload["metadata"]["generation"]) and all(
        int(status.get(name, 0)) == wanted for name in ("replicas", "readyReplicas", "updatedReplicas")
    )
    return ready, wanted, done


def _not_applied(reason: str, message: str) -> Condition:
    return Condition(APPLIED, Truth.FALSE, reason, message)


def _key(resource: Object) -> tuple[str, str]:
    return resource["kind"], name_of(resource)


def _owned(present: Object, resource: Object) -> bool:
    return any(owner["uid"] == resource["metadata"]["uid"] for owner in present["metadata"].get("ownerReferences", []))


def _made_for(present: Object, resource: Object) -> bool:
    """By the operator: what others made may have the cluster as its owner, to go with it."""
    return _owned(present, resource) and present["metadata"].get("labels", {}).get(MANAGED_BY) == MANAGER


def _may_have(present: Object, resource: Object) -> bool:
    """Its own, or one that a cluster of this name left, deleted with ``--cascade=orphan``."""
    labels = present["metadata"].get("labels", {})
    left = labels.get(INSTANCE) == name_of(resource) and labels.get(MANAGED_BY) == MANAGER
    return _owned(present, resource) or (left and not present["metadata"].get("ownerReferences"))


def _sets_replicas(workload: Object) -> bool:
    """Whether the operator is who says how many pods there are."""
    return any(
        entry["manager"] == MANAGER and "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
        for entry in workload["metadata"].get("managedFields", [])
    )


def _content(stored: Object, wanted: Object) -> Object:
    """What a person would call the object, of the fields that are applied at all."""
    found = {name: each for name, each in stored.items() if name not in ("apiVersion", "kind", "metadata", "status")}
    if "spec" in found and "replicas" not in wanted.get("spec", {}):
        found["spec"] = {name: each for name, each in found["spec"].items() if name != "replicas"}
    metadata = stored["metadata"]
    found |= {
        name: {key: metadata.get(name, {}).get(key) for key in wanted["metadata"].get(name, {})}
        for name in ("labels", "annotations")
    }
    return found


def _listed(objects: list[str]) -> str:
    few = 4
    return ", ".join(objects) if len(objects) <= few else f"{', '.join(objects[:few])} and {len(objects) - few} more"
