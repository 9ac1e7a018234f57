"""A simulated environment for reconcilers: an API server's objects and a cluster, with a stop at any step."""

import copy
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import grpc

from kafscale.config.calls import RpcSettings
from kafscale.errors import Unavailable
from services.operator.clusters.manifests import Manifests
from services.operator.clusters.reconcile import ClusterReconciler
from services.operator.counters import OperatorCounters
from services.operator.events import Events
from services.operator.gateways import Gateway, Gateways
from services.operator.kubernetes import Kubernetes
from services.operator.resources import CLUSTER, SECRET, TOPIC, USER, Object
from services.operator.topics.reconcile import TopicReconciler
from services.operator.users.reconcile import UserReconciler
from tests.unit.operator.brokers import Brokers
from tests.unit.operator.steps import Steps

NOW = datetime(2026, 11, 22, 19, 0, tzinfo=UTC)
MANIFESTS = Manifests.load()
_STATUS = grpc.StatusCode


class Answer:
    def __init__(self, status: int, body: Object) -> None:
        self.status_code = status
        self._body = body

    def json(self) -> Object:
        return copy.deepcopy(self._body)


class ApiServer:
    """The API server for kr8s, with objects in memory: versions, generations, finalizers, merge patches."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._version = 0
        self.objects: dict[tuple[str, str], Object] = {}
        self.down = False
        self.replicas_of: dict[str, set[str]] = {}
        """The manager that owns the number of replicas of a workload."""
        self.forbidden: set[str] = set()
        self.refuses: set[str] = set()
        self.keeps: set[str] = set()
        """Kinds that the server refuses to delete."""
        self.fails: set[str] = set()
        """Kinds, or subresources of kinds, whose changes the server's own store does not answer, once."""

    @asynccontextmanager
    async def call_api(
        self,
        method: str,
        *,
        version: str,
        url: str,
        content: str | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        **_: Any,
    ) -> AsyncIterator[Answer]:
        if self.down:
            raise OSError("connection refused")
        plural, name, subresource = [*url.split("/"), "", ""][:3]
        body = json.loads(content) if content else {}
        body.setdefault("apiVersion", version)
        if plural in self.forbidden:
            yield Answer(403, {"message": f"{plural} is forbidden"})
        elif (method != "GET" and plural in self.refuses) or (method == "DELETE" and plural in self.keeps):
            yield Answer(422, {"message": "it is no good"})
        elif method != "GET" and "/".join(part for part in (plural, subresource) if part) in self.fails:
            self.fails.remove("/".join(part for part in (plural, subresource) if part))
            yield Answer(500, {"message": "etcdserver: request timed out"})
        elif method == "GET":
            yield self._get(plural, name)
        elif (headers or {}).get("content-type") == "application/apply-patch+yaml":
            if "dryRun" in (params or {}):
                yield Answer(200, body)
            else:
                yield self._steps.take(lambda: self._apply(plural, name, (params or {})["fieldManager"], body))
        else:
            yield self._steps.take(lambda: self._change(method, plural, name, subresource, body))

    def put(self, kind: Any, body: Object) -> Object:
        """Apply as a person does. The generation rises if the spec changes."""
        name = body["metadata"]["name"]
        former = self.objects.get((kind.plural, name))
        metadata = {"uid": f"uid-{name}", "creationTimestamp": "2026-11-22T18:00:00Z", **body["metadata"]}
        made = {"apiVersion": kind.api, "kind": kind.name, **copy.deepcopy(body), "metadata": metadata}
        if former is None:
            metadata["generation"] = 1
        else:
            metadata = {**former["metadata"], **body["metadata"]}
            metadata["generation"] = former["metadata"]["generation"] + (former.get("spec") != body.get("spec"))
            made = {**former, **made, "metadata": metadata}
        return self._store(kind.plural, name, made)

    def delete(self, kind: Any, name: str) -> None:
        resource = self.objects[kind.plural, name]
        resource["metadata"]["deletionTimestamp"] = "2026-11-22T18:30:00Z"
        self._store(kind.plural, name, resource)

    def _get(self, plural: str, name: str) -> Answer:
        if not name:
            items = [each for (one, _), each in self.objects.items() if one == plural]
            return Answer(200, {"items": items, "metadata": {"resourceVersion": str(self._version)}})
        found = self.objects.get((plural, name))
        return Answer(200, found) if found is not None else Answer(404, {"message": f"{plural} {name!r} not found"})

    def _apply(self, plural: str, name: str, manager: str, body: Object) -> Answer:
        """Of field ownership only that of the number of replicas is simulated. It is 1 without an owner."""
        former = self.objects.get((plural, name), {})
        made = _merged(former, body)
        if plural in ("statefulsets", "deployments"):
            who = self.replicas_of.setdefault(name, set())
            if "replicas" in body["spec"]:
                who.add(manager)
            else:
                who.discard(manager)
                if not who:
                    made["spec"]["replicas"] = 1
            entries = [{"manager": each, "fieldsV1": {"f:spec": {"f:replicas": {}}}} for each in sorted(who)]
            made["metadata"]["managedFields"] = entries
            changed = former.get("spec") != made["spec"]
            made["metadata"]["generation"] = former.get("metadata", {}).get("generation", 0) + changed
        made["metadata"].setdefault("uid", f"uid-{name}")
        return Answer(200, self._store(plural, name, made))

    def _change(self, method: str, plural: str, name: str, subresource: str, body: Object) -> Answer:
        if method == "POST":
            name = body["metadata"].get("name") or f"{body['metadata']['generateName']}{self._version}"
            if (plural, name) in self.objects:
                return Answer(409, {"message": f"{plural} {name!r} already exists"})
            metadata = {"uid": f"uid-{name}", **body["metadata"], "name": name}
            return Answer(201, self._store(plural, name, {**body, "metadata": metadata}))
        former = self.objects.get((plural, name))
        if former is not None and method == "DELETE":
            del self.objects[plural, name]
            return Answer(200, {})
        if former is None:
            return Answer(404, {"message": f"{plural} {name!r} not found"})
        guard = body.get("metadata", {}).get("resourceVersion")
        if guard is not None and guard != former["metadata"]["resourceVersion"]:
            return Answer(409, {"message": "the object has been modified"})
        if method == "PUT":
            return Answer(200, self._store(plural, name, {**body, "metadata": {**former["metadata"]}}))
        changed = _merged(former, {"status": body["status"]} if subresource else body)
        return Answer(200, self._store(plural, name, changed))

    def _store(self, plural: str, name: str, resource: Object) -> Object:
        self._version += 1
        resource["metadata"]["resourceVersion"] = str(self._version)
        self.objects[plural, name] = resource
        if "deletionTimestamp" in resource["metadata"] and not resource["metadata"].get("finalizers"):
            del self.objects[plural, name]
        return resource


def _merged(former: Any, change: Any) -> Any:
    if not isinstance(former, dict) or not isinstance(change, dict):
        return copy.deepcopy(change)
    found = {name: value for name, value in former.items() if change.get(name, 0) is not None}
    for name, value in change.items():
        if value is not None:
            found[name] = _merged(former.get(name), value)
    return found


class _Reached(Gateways):
    def __init__(self, world: "World") -> None:
        super().__init__(RpcSettings(), token="", timeout=1.0)
        self._world = world

    @asynccontextmanager
    async def serving(self, servers: list[str]) -> AsyncIterator[Gateway]:
        self._world.asked.append(tuple(servers))
        if self._world.unreachable:
            raise Unavailable("no gateway answers: gateway:9094: connection refused")
        channel: Any = self._world.brokers
        yield Gateway(channel, "", 1.0)


class World:
    """An environment with a KafscaleCluster `main`, which a test may delete."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.api = ApiServer(self.steps)
        self.brokers = Brokers(self.steps)
        self.counters = OperatorCounters()
        self.unreachable = False
        self.asked: list[tuple[str, ...]] = []
        self.soon: list[tuple[str, float]] = []
        self.cluster()

    def cluster(self, name: str = "main") -> None:
        self.api.put(CLUSTER, {"metadata": {"name": name}, "spec": {"adminServers": ["gateway:9094"]}})

    def made_cluster(self, **spec: Any) -> None:
        """Replace it by a cluster that the operator must create."""
        if "bucket" not in self.all(CLUSTER)["main"]["spec"]:
            del self.api.objects[CLUSTER.plural, "main"]
        bucket = {"name": "records", "region": "us-east-1", "namespace": "production"}
        body = {"metadata": {"name": "main", "namespace": "default"}, "spec": {"bucket": bucket, **spec}}
        self.api.put(CLUSTER, body)

    def roll_out(self) -> None:
        """Act as the controllers: create the desired number of pods, all ready."""
        for kind in ("statefulsets", "deployments"):
            for (plural, _), each in self.api.objects.items():
                if plural == kind:
                    pods = dict.fromkeys(
                        ("replicas", "readyReplicas", "updatedReplicas"), each["spec"].get("replicas", 1)
                    )
                    each["status"] = {"observedGeneration": each["metadata"]["generation"], **pods}

    def condition(self, type_: str) -> tuple[str, str, str]:
        """Return the cluster's status, reason and message of a condition."""
        found = self.all(CLUSTER)["main"]["status"]["conditions"]
        [one] = [each for each in found if each["type"] == type_]
        return one["status"], one["reason"], one["message"]

    def topic(self, name: str = "orders", *, made: str = "2026-11-22T18:00:00Z", **spec: Any) -> None:
        body = {
            "metadata": {"name": name, "creationTimestamp": made},
            "spec": {"clusterRef": {"name": "main"}, "deletionPolicy": "Retain", **spec},
        }
        if body["spec"]["clusterRef"] is None:
            del body["spec"]["clusterRef"]
        self.api.put(TOPIC, body)

    def user(self, resource: str = "ann", *, made: str = "2026-11-22T18:00:00Z", uid: str = "", **spec: Any) -> None:
        """Apply a KafscaleUser with the defaults that its schema sets."""
        if "authentication" in spec:
            defaults = {"mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"], "iterations": 4096}
            spec["authentication"] = {**defaults, **spec["authentication"]}
        metadata = {"name": resource, "creationTimestamp": made, **({"uid": uid} if uid else {})}
        spec = {"clusterRef": {"name": "main"}, "deletionPolicy": "Delete", **spec}
        self.api.put(USER, {"metadata": metadata, "spec": spec})

    def secret(self, name: str, **data: str) -> None:
        """Apply a Secret."""
        encoded = {key: b64encode(value.encode()).decode() for key, value in data.items()}
        self.api.put(SECRET, {"metadata": {"name": name}, "data": encoded})

    def secret_data(self, name: str) -> dict[str, str]:
        data = self.api.objects[SECRET.plural, name]["data"]
        return {key: b64decode(value).decode() for key, value in data.items()}

    async def reconcile_user(self, name: str = "ann") -> bool:
        """Reconcile once, with an operator that has just started."""
        return await UserReconciler(
            self.kubernetes(),
            _Reached(self),
            self._events(),
            self.counters,
            resources=self.all(USER),
            clusters=self.all(CLUSTER),
            now=lambda: NOW,
        ).reconcile(name)

    def user_conditions(self, name: str = "ann") -> dict[str, tuple[str, str, str]]:
        """Return status, reason and message by type."""
        found = self.api.objects[USER.plural, name]["status"]["conditions"]
        return {each["type"]: (each["status"], each["reason"], each["message"]) for each in found}

    async def reconcile(self, name: str = "orders") -> bool:
        """Reconcile once, with an operator that has just started."""
        return await TopicReconciler(
            self.kubernetes(),
            _Reached(self),
            self._events(),
            self.counters,
            resources=self.all(TOPIC),
            clusters=self.all(CLUSTER),
            now=lambda: NOW,
        ).reconcile(name)

    async def reconcile_cluster(self) -> bool:
        return await self.cluster_reconciler().reconcile("main")

    def cluster_reconciler(self) -> ClusterReconciler:
        return ClusterReconciler(
            self.kubernetes(),
            _Reached(self),
            self._events(),
            manifests=MANIFESTS,
            soon=lambda name, seconds: self.soon.append((name, seconds)),
            longest_pause=10.0,
            now=lambda: NOW,
        )

    def all(self, kind: Any) -> dict[str, Object]:
        return {name: found for (plural, name), found in self.api.objects.items() if plural == kind.plural}

    def resource(self, name: str = "orders") -> Object:
        return self.api.objects[TOPIC.plural, name]

    def conditions(self, name: str = "orders") -> dict[str, tuple[str, str]]:
        """Return status and reason by type."""
        found = self.resource(name)["status"]["conditions"]
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    def message(self, type_: str, name: str = "orders") -> str:
        """Return the message of a topic's condition."""
        [found] = [each for each in self.resource(name)["status"]["conditions"] if each["type"] == type_]
        return str(found["message"])

    def kind_of_event(self, reason: str) -> str:
        """Return the type of the last event with this reason."""
        events = [found for (plural, _), found in self.api.objects.items() if plural == "events"]
        return str([each["type"] for each in events if each["reason"] == reason][-1])

    @property
    def events(self) -> list[str]:
        """Return the reasons of all events in order."""
        return [found["reason"] for (plural, _), found in self.api.objects.items() if plural == "events"]

    def kubernetes(self) -> Kubernetes:
        return Kubernetes(self.api, "default", self.counters, timeout=1.0)

    def _events(self) -> Events:
        return Events(self.kubernetes(), self.counters, me="me", now=lambda: NOW)
