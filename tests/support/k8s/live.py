"""Applied manifests on the API server, and what a kubelet would make of them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers.kubernetes import Kubernetes

OVERLAYS = Path(__file__).parents[3] / "k8s" / "overlays"
SERVICES = ("gateway", "storage", "indexer", "coordinator")
WORKLOADS = (*SERVICES, "console", "etcd")
"""What always runs."""
NAME = "app.kubernetes.io/name"
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
Json = dict[str, Any]


@dataclass
class Overlay:
    """An applied overlay. ``said`` is kubectl's standard error."""

    kubernetes: Kubernetes
    name: str
    namespace: str
    said: str = ""
    _configs: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def kubectl(self, *arguments: str) -> str:
        here = [argument.replace("k8s/overlays", str(OVERLAYS)) for argument in arguments]
        return self.kubernetes.kubectl(*here, f"--namespace={self.namespace}").stdout

    def apply(self) -> str:
        """Apply the overlay and return kubectl's line for each object."""
        done = self.kubernetes.kubectl("apply", "-k", str(OVERLAYS / self.name))
        self.said = done.stderr
        return done.stdout

    def differences(self) -> str:
        """Return what applying the overlay again would change, according to the API server."""
        found = self.kubernetes.kubectl("diff", "-k", str(OVERLAYS / self.name), check=False)
        # Status 1 means differences, above 1 an error.
        assert found.returncode in (0, 1), found.stderr
        return found.stdout

    def await_replicas(self) -> None:
        """Wait until each service has the minimum number of pods of its autoscaler, and all are ready."""
        for scaler in self.items("hpa"):
            target, least = scaler["spec"]["scaleTargetRef"], scaler["spec"]["minReplicas"]
            what = f"{target['kind'].lower()}/{target['name']}"
            self.kubectl("wait", f"--for=jsonpath={{.spec.replicas}}={least}", what, "--timeout=120s")
        for workload in self.items("statefulsets,deployments"):
            what = f"{workload['kind'].lower()}/{workload['metadata']['name']}"
            self.kubectl("rollout", "status", what, "--timeout=120s")

    def items(self, kind: str) -> list[Json]:
        return self.kubernetes.items(kind, f"--namespace={self.namespace}")

    def get(self, kind: str, name: str) -> Json:
        found: Json = self.kubernetes.json("get", kind, name, f"--namespace={self.namespace}")
        return found

    def workload(self, service: str) -> Json:
        """Return the StatefulSet or Deployment of a service."""
        [found] = [w for w in self.items("statefulsets,deployments") if w["metadata"]["name"] == f"kafscale-{service}"]
        return found

    def pods(self, service: str) -> list[Json]:
        """Return the pods that are not being deleted, sorted by name."""
        found = self.kubernetes.items("pods", f"--namespace={self.namespace}", f"--selector={NAME}=kafscale-{service}")
        here = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        assert here, f"no pod of {service} exists"
        return sorted(here, key=lambda pod: str(pod["metadata"]["name"]))

    def templates(self) -> dict[str, Json]:
        """Return the pod templates of all workloads and jobs, by their name label."""
        found = [workload["spec"]["template"] for workload in self.items("statefulsets,deployments")]
        found += [cron["spec"]["jobTemplate"]["spec"]["template"] for cron in self.items("cronjobs")]
        return {template["metadata"]["labels"][NAME]: template for template in found}

    def environment(self, pod: Json, container: Json) -> dict[str, str]:
        """Return the environment of a container as a kubelet sets it."""
        made: dict[str, str] = {}
        for source in container.get("envFrom", []):
            kind, reference = ("configmap", "configMapRef") if "configMapRef" in source else ("secret", "secretRef")
            made |= self._values(kind, source[reference]["name"], optional=source[reference].get("optional", False))
        for variable in container.get("env", []):
            value = self._value(pod, variable, made)
            if value is not None:
                made[variable["name"]] = value
        return made

    def _value(self, pod: Json, variable: Json, made: Mapping[str, str]) -> str | None:
        """Return the value of a variable, or None if it comes from an optional Secret that does not exist."""
        source = variable.get("valueFrom")
        if source is None:
            return _REFERENCE.sub(lambda found: _expanded(found, made), variable.get("value", ""))
        if "fieldRef" in source:
            return _field(pod, source["fieldRef"]["fieldPath"])
        reference = source["secretKeyRef"]
        optional = reference.get("optional", False)
        found = self._values("secret", reference["name"], optional=optional)
        return found.get(reference["key"]) if optional else found[reference["key"]]

    def _values(self, kind: str, name: str, *, optional: bool) -> dict[str, str]:
        if (kind, name) not in self._configs:
            names = {found["metadata"]["name"] for found in self.items(kind)}
            if name not in names and optional:
                return {}
            template = '{{range $name, $value := .data}}{{$name}}={{$value%s}}{{"\\n"}}{{end}}'
            decoded = template % (" | base64decode" if kind == "secret" else "")
            lines = self.kubectl("get", kind, name, f"-o=go-template={decoded}").splitlines()
            self._configs[kind, name] = dict(_pair(line) for line in lines)
        return self._configs[kind, name]


def container(template: Json, name: str | None = None) -> Json:
    """Return the container of a pod or a pod template with this name, or the first one."""
    found: Json = next(c for c in template["spec"]["containers"] if name in (None, c["name"]))
    return found


def matches(selector: Json, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches ``labels``."""
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] == "In"
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())


def labels_of(template: Json) -> dict[str, str]:
    """Return the labels of the pods of a template."""
    labels: dict[str, str] = template["metadata"]["labels"]
    return labels


def port_names(template: Json) -> dict[str, int]:
    """Return the port numbers of all containers of a pod by name."""
    return {p["name"]: p["containerPort"] for c in template["spec"]["containers"] for p in c.get("ports", [])}


def outside(services: Iterable[Json]) -> dict[str, Json]:
    """Return the Services for access from outside, each for one pod, by the pod's name."""
    selected = ((s["spec"].get("selector", {}).get("statefulset.kubernetes.io/pod-name"), s) for s in services)
    return {pod: service for pod, service in selected if pod}


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition("=")
    return name, value


def _expanded(found: re.Match[str], made: Mapping[str, str]) -> str:
    return "$" if found[1] is None else made.get(found[1], found[0])


def _field(pod: Json, path: str) -> str:
    quoted = re.fullmatch(r"metadata\.labels\['(.+)'\]", path)
    if quoted:
        return str(pod["metadata"]["labels"][quoted[1]])
    value: Any = pod
    for step in path.split("."):
        value = value[step]
    return str(value)
