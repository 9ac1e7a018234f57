"""A simulated environment for reconcilers: an API server's objects and a cluster's topics, with a stop at any step."""

import copy
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import grpc

from kafscale.config.calls import RpcSettings
from kafscale.errors import Unavailable
from kafscale.rpc.errors import StatusError
from kafscale.rpc.methods import Method
from kafscale.v1 import admin_pb2 as pb
from services.operator.clusters.manifests import Manifests
from services.operator.clusters.reconcile import ClusterReconciler
from services.operator.counters import OperatorCounters
from services.operator.events import Events
from services.operator.gateways import Gateway, Gateways
from services.operator.kubernetes import Kubernetes
from services.operator.resources import CLUSTER, TOPIC, Object
from services.operator.topics.reconcile import TopicReconciler

NOW = datetime(2026, 11, 22, 19, 0, tzinfo=UTC)
MANIFESTS = Manifests.load()
_STATUS = grpc.StatusCode


class Killed(BaseException):
    """The process was killed."""


class Steps:
    """Counts changes, and kills the process before or after a given one."""

    def __init__(self) -> None:
        self.done = 0
        self.last: int | None = None
        self.applied = True

    def take(self, change: Callable[[], Any]) -> Any:
        self.done += 1
        ends = self.done == self.last
        if ends and not self.applied:
            raise Killed
        answer = change()
        if ends:
            raise Killed
        return answer


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
            metadata["generation"] = former["metadata"]["generation"] + (former["spec"] != body["spec"])
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
            return Answer(201, self._store(plural, name, {**body, "metadata": {**body["metadata"], "name": name}}))
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


class Brokers:
    """The topics of a cluster, as a gateway reports them."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.topics: dict[str, pb.TopicStatus] = {}
        self.calls: Counter[str] = Counter()
        self.refuses: StatusError | None = None
        self.answers_lost = False
        """Changes are made, but their replies are lost."""

    async def call(self, method: Method[Any, Any], request: Any, **_: Any) -> Any:
        name = method.path.rpartition("/")[2]
        self.calls[name] += 1
        if self.refuses is not None:
            raise self.refuses
        if name in ("DescribeTopic", "ClusterStatus"):
            return getattr(self, name)(request)
        answer = self._steps.take(lambda: getattr(self, name)(request))
        if self.answers_lost:
            raise StatusError(_STATUS.DEADLINE_EXCEEDED, "Deadline Exceeded")
        return answer

    def add(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        self.topics[name] = pb.TopicStatus(name=name, id=f"id-{name}", partitions=partitions, configs=configs)

    def DescribeTopic(self, request: pb.DescribeTopicRequest) -> pb.DescribeTopicReply:  # noqa: N802
        return pb.DescribeTopicReply(topic=self._topic(request.name))

    def ClusterStatus(self, _: pb.ClusterStatusRequest) -> pb.ClusterStatusReply:  # noqa: N802
        services = ("gateway", "storage", "indexer", "coordinator")
        members = [pb.ClusterMember(service=service, health=pb.ClusterMember.READY) for service in services]
        members.append(pb.ClusterMember(service="storage", health=pb.ClusterMember.UNREACHABLE))
        return pb.ClusterStatusReply(cluster_id="abc", topics=len(self.topics), partitions=7, members=members)

    def CreateTopic(self, request: pb.CreateTopicRequest) -> pb.CreateTopicReply:  # noqa: N802
        if request.name in self.topics:
            raise StatusError(_STATUS.ALREADY_EXISTS, f"Topic '{request.name}' already exists.")
        self.add(request.name, request.partitions or 3, dict(request.configs))
        return pb.CreateTopicReply(topic=self.topics[request.name])

    def GrowTopic(self, request: pb.GrowTopicRequest) -> pb.GrowTopicReply:  # noqa: N802
        topic = self._topic(request.name)
        if request.partitions > 100:
            raise StatusError(_STATUS.INVALID_ARGUMENT, f"{request.partitions} partitions exceed the limit of 100.")
        topic.partitions = request.partitions
        return pb.GrowTopicReply(topic=topic)

    def AlterConfigs(self, request: pb.AlterConfigsRequest) -> pb.AlterConfigsReply:  # noqa: N802
        topic = self._topic(request.topic)
        topic.configs.update(request.set)
        for name in request.unset:
            topic.configs.pop(name, None)
        return pb.AlterConfigsReply()

    def DeleteTopic(self, request: pb.DeleteTopicRequest) -> pb.DeleteTopicReply:  # noqa: N802
        self._topic(request.name)
        del self.topics[request.name]
        return pb.DeleteTopicReply()

    def _topic(self, name: str) -> pb.TopicStatus:
        if name not in self.topics:
            raise StatusError(_STATUS.NOT_FOUND, f"The topic {name} does not exist.")
        return self.topics[name]


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

    async def reconcile(self, name: str = "orders") -> bool:
        """Reconcile once, with an operator that has just started."""
        return await TopicReconciler(
            self.kubernetes(),
            _Reached(self),
            self._events(),
            self.counters,
            topics=self.all(TOPIC),
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
