"""Renders the objects of a KafscaleCluster from the resource and the manifests. This module does no IO.

Names consist of the cluster's name and that in the base, like ``main-kafscale-gateway``. The cluster's name is also a
label, so that selectors distinguish the clusters of a namespace.
"""

import copy
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from services.operator.clusters.manifests import Manifests, containers, label, template
from services.operator.resources import CLUSTER, MANAGER, Object, name_of

SERVICES = {"gateway": "StatefulSet", "storage": "StatefulSet", "indexer": "Deployment", "coordinator": "Deployment"}
"""The services, and the kind of object that runs each."""
CONSOLE = "console"
WORKLOADS = {**SERVICES, CONSOLE: "Deployment"}
"""The same with the console, which is no member of the cluster."""
INSTANCE, MANAGED_BY = "app.kubernetes.io/instance", "app.kubernetes.io/managed-by"
_APP = "app.kubernetes.io/name"
_SETTINGS = "kafscale.io/settings"
_BASE = "kafscale"
_CREDENTIALS = "kafscale-credentials"
_BACKUPS = "kafscale-backups"
_BACKUP_CREDENTIALS = "kafscale-backup-credentials"
_ETCD_IMAGE = "quay.io/coreos/etcd:"
_STOPPING = {
    "gateway": {"KAFSCALE_GATEWAY_SHUTDOWN_GRACE_MS": 5_000},
    "storage": {"KAFSCALE_DRAIN_TIMEOUT_MS": 25_000},
    "indexer": {},
    "coordinator": {"KAFSCALE_GROUP_HANDOVER_TIMEOUT_MS": 5_000},
}
"""Settings that limit how long a process takes to stop, with their defaults. `_CALLS` and `_LAST_SECONDS` are added."""
_CALLS = {"KAFSCALE_RPC_DRAIN_TIMEOUT_MS": 10_000}
_LAST_SECONDS = 5
_MS = r"\s*\+?[0-9]{1,18}\s*"
_TRACING = "KAFSCALE_TRACING_ENDPOINT"
_REGISTRY = "KAFSCALE_CONSOLE_REGISTRY_URL"
_URL = re.compile(r"(?P<scheme>https?)://[^/:@]+(?::(?P<port>[1-9][0-9]{0,4}))?(?:/|$)")
_ANYWHERE = {"ipBlock": {"cidr": "0.0.0.0/0"}}
_HTTPS = 443


def render(resource: Object, manifests: Manifests) -> list[Object]:
    """Return the objects in the order of application. ``resource`` must have a bucket and valid settings."""
    parts = _Parts(resource, manifests)
    parts.set_bucket()
    parts.set_backups()
    parts.set_etcd()
    for service in SERVICES:
        parts.set_service(service, resource["spec"].get(service, {}))
    parts.set_console(resource["spec"].get(CONSOLE, {}))
    parts.set_outside()
    return parts.finished()


def digest(objects: Sequence[Object]) -> str:
    """Return a digest of objects."""
    return hashlib.sha256(json.dumps(objects, sort_keys=True).encode()).hexdigest()[:12]


class _Parts:
    """The objects of the base with their new names, by kind and part. The part of shared objects is empty."""

    def __init__(self, resource: Object, manifests: Manifests) -> None:
        self._resource = resource
        self._spec = resource["spec"]
        self._cluster = name_of(resource)
        self._outside = manifests.outside
        self._image = manifests.image
        names = {name_of(each).removeprefix(f"{_BASE}-") for each in manifests.objects} - {_BASE}
        longest_first = "|".join(sorted(names, key=len, reverse=True))
        self._name = re.compile(rf"\b{_BASE}-({longest_first})\b")
        self._objects = {
            (each["kind"], name_of(each).removeprefix(_BASE).removeprefix("-")): self._renamed(each)
            for each in manifests.objects
        }
        # Select all pods of this cluster, and no others in the namespace.
        self._objects["NetworkPolicy", ""]["spec"]["podSelector"] = {"matchLabels": {INSTANCE: self._cluster}}

    def _renamed(self, resource: Object) -> Object:
        found: Object = self._rename(resource)
        label(found, {INSTANCE: self._cluster, MANAGED_BY: MANAGER})
        return found

    def _rename(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            found = {name: self._rename(each, name) for name, each in value.items()}
            return {**found, INSTANCE: self._cluster} if _APP in found else found
        if isinstance(value, list):
            return [self._rename(each) for each in value]
        if not isinstance(value, str) or key in (_APP, "image"):
            return value
        if value == _BASE and key == "name":
            return f"{self._cluster}-{_BASE}"
        return self._name.sub(rf"{self._cluster}-{_BASE}-\1", value)

    def set_bucket(self) -> None:
        bucket = self._spec["bucket"]
        common, objects = (self._objects["ConfigMap", part]["data"] for part in ("", "objects"))
        common |= {"KAFSCALE_S3_NAMESPACE": bucket["namespace"], **self._spec.get("settings", {})}
        objects |= {"KAFSCALE_S3_BUCKET": bucket["name"], "KAFSCALE_S3_REGION": bucket["region"]}
        if "endpoint" in bucket:
            objects["KAFSCALE_S3_ENDPOINT"] = bucket["endpoint"]
            self._allow_egress(bucket["endpoint"])
        if "pathStyle" in bucket:
            objects["KAFSCALE_S3_PATH_STYLE"] = str(bucket["pathStyle"]).lower()
        if "credentialsSecret" in bucket:
            objects["KAFSCALE_S3_CREDENTIALS"] = "static"
        for each in self._objects.values():
            sources = [source for container in containers(each) for source in container.get("envFrom", [])]
            keys = [each["secretRef"] for each in sources if "secretRef" in each]
            for key in keys if "credentialsSecret" in bucket else ():
                if key["name"] == _CREDENTIALS:
                    key |= {"name": bucket["credentialsSecret"], "optional": False}
            if keys and "accountAnnotations" in bucket:
                pod = template(each)
                account = self._named("ServiceAccount", pod["spec"]["serviceAccountName"] if pod else "")
                account["metadata"]["annotations"] = dict(bucket["accountAnnotations"])

    def set_backups(self) -> None:
        """Store snapshots in a separate bucket, which only their job can access."""
        spec = self._spec.get("backups")
        if spec is None:
            return
        job, name = self._objects["CronJob", "etcd-snapshots"], f"{self._cluster}-{_BACKUPS}"
        variables = {"BUCKET": "name", "REGION": "region", "ENDPOINT": "endpoint"}
        data = {f"KAFSCALE_BACKUP_S3_{each}": spec[field] for each, field in variables.items() if field in spec}
        if "pathStyle" in spec:
            data["KAFSCALE_BACKUP_S3_PATH_STYLE"] = str(spec["pathStyle"]).lower()
        self._objects["ConfigMap", "backups"] = self._renamed(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        )
        if "endpoint" in spec:
            self._allow_egress(spec["endpoint"])
        for source in [source for container in containers(job) for source in container.get("envFrom", [])]:
            if source.get("configMapRef", {}).get("name") == _BACKUPS:
                source["configMapRef"] = {"name": name}
            if source.get("secretRef", {}).get("name") == _BACKUP_CREDENTIALS and "credentialsSecret" in spec:
                source["secretRef"] = {"name": spec["credentialsSecret"], "optional": False}
        if "accountAnnotations" in spec:
            account = self._objects["ServiceAccount", "etcd-snapshots"]
            account["metadata"]["annotations"] = dict(spec["accountAnnotations"])

    def _allow_egress(self, endpoint: str) -> None:
        """Allow connections to an S3 endpoint at another port than Amazon's."""
        address = urlsplit(endpoint)
        port = address.port or (80 if address.scheme == "http" else _HTTPS)
        for rule in self._outgoing():
            allowed = {"protocol": "TCP", "port": port}
            if rule.get("to") == [_ANYWHERE] and port != _HTTPS and allowed not in rule["ports"]:
                rule["ports"].append(allowed)

    def _outgoing(self) -> list[Object]:
        policies = [each for (kind, _), each in self._objects.items() if kind == "NetworkPolicy"]
        return [rule for policy in policies for rule in policy["spec"].get("egress", [])]

    def set_etcd(self) -> None:
        spec = self._spec.get("etcd", {})
        common = self._objects["ConfigMap", ""]["data"]
        if "endpoints" in spec:
            common["KAFSCALE_ETCD_ENDPOINTS"] = ",".join(spec["endpoints"])
            # The backup job only needs the endpoints.
            self._objects = {
                key: each
                for key, each in self._objects.items()
                if not key[1].startswith("etcd") or key[1] == "etcd-snapshots"
            }
            job = self._objects["CronJob", "etcd-snapshots"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
            job["containers"] = [each for each in job["containers"] if each["name"] == "backup"]
            del job["initContainers"], job["volumes"]
            ports = sorted({int(endpoint.rpartition(":")[2]) for endpoint in spec["endpoints"]})
            for rule in self._outgoing():
                if any(
                    each.get("podSelector", {}).get("matchLabels", {}).get(_APP) == f"{_BASE}-etcd"
                    for each in rule["to"]
                ):
                    rule |= {"to": [_ANYWHERE], "ports": [{"protocol": "TCP", "port": port} for port in ports]}
            return
        workload = self._objects["StatefulSet", "etcd"]["spec"]
        if "members" in spec:
            members = workload["replicas"] = spec["members"]
            common["KAFSCALE_ETCD_ENDPOINTS"] = _first(common["KAFSCALE_ETCD_ENDPOINTS"], members)
            initial = _variable(workload["template"], "ETCD_INITIAL_CLUSTER")
            initial["value"] = _first(initial["value"], members)
            if members == 1:
                # With the constraint, the pod could not start on a node without a zone label.
                del workload["template"]["spec"]["topologySpreadConstraints"]
        [claim] = workload["volumeClaimTemplates"]
        if "storage" in spec:
            claim["spec"]["resources"]["requests"]["storage"] = spec["storage"]
        if "storageClassName" in spec:
            claim["spec"]["storageClassName"] = spec["storageClassName"]

    def set_service(self, service: str, spec: Object) -> None:
        workload = self._objects[SERVICES[service], service]
        if "replicas" in spec:
            workload["spec"]["replicas"] = spec["replicas"]
            del self._objects["HorizontalPodAutoscaler", service]
        elif "autoscaling" in spec:
            self._objects["HorizontalPodAutoscaler", service]["spec"] |= spec["autoscaling"]
        self._size(service, spec)
        settings = {**self._objects["ConfigMap", ""]["data"], **self._objects["ConfigMap", service]["data"]}
        pod = workload["spec"]["template"]["spec"]
        pod["terminationGracePeriodSeconds"] = max(
            pod["terminationGracePeriodSeconds"], _longest_stop(service, pod, settings)
        )
        # Allow connections to a trace collector at any address.
        tracing = re.search(r":([1-9][0-9]{0,4})/?$", settings.get(_TRACING, ""))
        if tracing is not None:
            self._allow_port(service, int(tracing[1]))

    def set_console(self, spec: Object) -> None:
        self._size(CONSOLE, spec)
        registry = _URL.match(self._objects["ConfigMap", CONSOLE]["data"].get(_REGISTRY, ""))
        if registry is not None:
            self._allow_port(CONSOLE, int(registry["port"] or (_HTTPS if registry["scheme"] == "https" else 80)))
        server = _variable(self._objects[WORKLOADS[CONSOLE], CONSOLE]["spec"]["template"], "KAFSCALE_ADMIN_SERVER")
        server["value"] = f"{self._cluster}-{server['value']}"

    def _allow_port(self, service: str, port: int) -> None:
        """Let a service connect to a port of any address."""
        rule = {"to": [_ANYWHERE], "ports": [{"protocol": "TCP", "port": port}]}
        self._objects["NetworkPolicy", service]["spec"]["egress"].append(rule)

    def _size(self, service: str, spec: Object) -> None:
        pod = self._objects[WORKLOADS[service], service]["spec"]["template"]["spec"]
        if "resources" in spec:
            pod["containers"][0]["resources"] = copy.deepcopy(spec["resources"])
        self._objects["ConfigMap", service]["data"] |= spec.get("settings", {})

    def set_outside(self) -> None:
        spec = self._spec.get("outside")
        if spec is None:
            return
        manifests = self._outside[spec["type"]]
        workload = self._objects["StatefulSet", "gateway"]
        for operation in copy.deepcopy(manifests.operations):
            _patch(workload, operation)
        advertised = _variable(workload["spec"]["template"], "KAFSCALE_ADVERTISED_LISTENERS")
        inside = advertised["value"].partition(",")[0].replace(f"{_BASE}-gateway", f"{self._cluster}-{_BASE}-gateway")
        outer = _advertised(spec)
        advertised["value"] = f"{inside},OUTSIDE://{outer}"
        for policy in manifests.others:
            self._objects["NetworkPolicy", "gateway-outside"] = self._renamed(policy)
        for ordinal in range(self._most_gateways()):
            service = self._renamed(manifests.service)
            name = f"{self._cluster}-{_BASE}-gateway-{ordinal}"
            service["metadata"]["name"] = name
            service["spec"]["selector"]["statefulset.kubernetes.io/pod-name"] = name
            if spec["type"] == "NodePort":
                service["spec"]["ports"][0]["nodePort"] = spec["firstPort"] + ordinal
            else:
                hostname = {"external-dns.alpha.kubernetes.io/hostname": f"{name}.{spec['host']}"}
                service["metadata"]["annotations"] = hostname
                service["spec"]["loadBalancerSourceRanges"] = list(spec["sourceRanges"])
            self._objects["Service", f"gateway-{ordinal}"] = service

    def _most_gateways(self) -> int:
        scaler = self._objects.get(("HorizontalPodAutoscaler", "gateway"))
        return int(scaler["spec"]["maxReplicas"] if scaler else self._spec["gateway"]["replicas"])

    def finished(self) -> list[Object]:
        """Return the objects with namespace and owner. Changed settings change an annotation, so pods are replaced."""
        owner = {
            "apiVersion": CLUSTER.api,
            "kind": CLUSTER.name,
            "name": self._cluster,
            "uid": self._resource["metadata"]["uid"],
            "controller": True,
        }
        data = {name_of(each): each["data"] for (kind, _), each in self._objects.items() if kind == "ConfigMap"}
        images = {
            f"{_BASE}:": self._spec.get("image", self._image),
            _ETCD_IMAGE: self._spec.get("etcd", {}).get("image", ""),
        }
        for each in self._objects.values():
            each["metadata"] |= {"namespace": self._resource["metadata"]["namespace"], "ownerReferences": [owner]}
            for container in containers(each):
                for former, image in images.items():
                    if image and container["image"].startswith(former):
                        container["image"] = image
            pod = template(each)
            if pod is not None and each["kind"] != "CronJob":
                sources = [source for container in containers(each) for source in container.get("envFrom", [])]
                read = [data[source["configMapRef"]["name"]] for source in sources if "configMapRef" in source]
                if read:
                    pod["metadata"]["annotations"] = {_SETTINGS: digest(read)}
        first = ("ServiceAccount", "ConfigMap", "NetworkPolicy", "Service")
        return sorted(self._objects.values(), key=lambda each: each["kind"] not in first)

    def _named(self, kind: str, name: str) -> Object:
        [found] = [each for (one, _), each in self._objects.items() if one == kind and name_of(each) == name]
        return found


def _longest_stop(service: str, pod: Object, settings: Mapping[str, str]) -> int:
    """Return the seconds a process may take to stop. Invalid numbers are ignored; no process starts with them."""
    found = {name: settings.get(name, "") for name in (*_STOPPING[service], *_CALLS)}
    defaults = {**_STOPPING[service], **_CALLS}
    ms = sum(int(text) if re.fullmatch(_MS, text) else defaults[name] for name, text in found.items())
    before = pod["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    return int(before) + math.ceil(ms / 1000) + _LAST_SECONDS


def _first(listed: str, count: int) -> str:
    return ",".join(listed.split(",")[:count])


def _variable(pod: Object, name: str) -> Object:
    found: Object
    [found] = [each for container in pod["spec"]["containers"] for each in container["env"] if each["name"] == name]
    return found


def _advertised(outside: Object) -> str:
    """Return a gateway's address for outside clients, in terms of the pod's variables."""
    if outside["type"] == "NodePort":
        return f"{outside['host']}:{outside['firstPort'] // 10}$(KAFSCALE_BROKER_ID)"
    return f"$(POD_NAME).{outside['host']}:9092"


def _patch(resource: Object, operation: Object) -> None:
    """Apply an operation of a JSON patch. Only the operations that the manifests use are supported."""
    *path, last = operation["path"].split("/")[1:]
    place: Any = resource
    for step in path:
        place = place[int(step)] if isinstance(place, list) else place[step]
    key: Any = int(last) if isinstance(place, list) and last != "-" else last
    match operation["op"]:
        case "test":
            if place[key] != operation["value"]:
                raise ValueError(f"{operation['path']} is not {operation['value']}")
        case "add" if key == "-":
            place.append(operation["value"])
        case "replace":
            place[key] = operation["value"]
        case other:
            raise ValueError(other)
