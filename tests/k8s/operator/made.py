"""A KafscaleCluster that the operator creates, as shown by kubectl, and Kustomize's output for the same manifests."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from services.operator.clusters.manifests import Manifests, template
from services.operator.clusters.render import render
from services.operator.resources import MADE as KINDS
from tests.k8s.operator.operators import Namespace
from tests.servers.kubernetes import Kubernetes
from tests.support.k8s.live import WORKLOADS

BASE = Path(__file__).parents[3] / "k8s" / "base"
MADE = [kind.plural for kind in KINDS]
_INSTANCE, _MANAGED_BY = "app.kubernetes.io/instance", "app.kubernetes.io/managed-by"


@dataclass(frozen=True)
class MadeCluster:
    """The cluster named `made`."""

    namespace: Namespace

    def settled(self, condition: str) -> None:
        """Wait until this condition is true for the current generation."""
        generation = self.namespace.get("kafscalecluster", "made")["metadata"]["generation"]
        observed = f"jsonpath={{.status.observedGeneration}}={generation}"
        for what in (observed, f"condition={condition}"):
            self.namespace.kubectl("wait", f"--for={what}", "kafscalecluster/made", "--timeout=120s")

    def workload(self, service: str) -> Any:
        kind = "deployment" if service in ("indexer", "coordinator", "console") else "statefulset"
        return self.namespace.get(kind, f"made-kafscale-{service}")

    def pods(self) -> dict[str, int]:
        """Return the number of pods of each kind, which must all be ready."""
        found = {}
        for service in WORKLOADS:
            workload = self.workload(service)
            assert workload["status"]["readyReplicas"] == workload["spec"]["replicas"]
            found[service] = workload["spec"]["replicas"]
        return found

    def names(self, kinds: str) -> set[str]:
        """Return the names of its objects of some kinds."""
        selector = f"--selector={_INSTANCE}=made"
        return {each["metadata"]["name"] for each in self.namespace.get(kinds, selector)["items"]}


def made_namespace(namespace: Namespace) -> MadeCluster:
    """Create a namespace with the keys that its pods name."""
    keys = dict.fromkeys(("KAFSCALE_S3_ACCESS_KEY", "KAFSCALE_S3_SECRET_KEY"), "x")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": keys}
    namespace.kubectl("apply", "-f", "-", stdin=json.dumps(secret))
    return MadeCluster(namespace)


def rendered(namespace: str) -> list[Any]:
    """Render a cluster with only the base's bucket, without the objects that Kustomize's base lacks."""
    bucket = {"name": "kafscale-data", "region": "us-east-1", "namespace": "production"}
    metadata = {"name": "made", "namespace": namespace, "uid": "0"}
    found = render({"metadata": metadata, "spec": {"bucket": bucket}}, Manifests.load())
    for each in found:
        pod = template(each)
        del each["metadata"]["ownerReferences"], each["metadata"]["labels"][_MANAGED_BY]
        if each["kind"] == "CronJob":
            del each["spec"]["jobTemplate"]["metadata"]["labels"][_MANAGED_BY]
        if pod is not None:
            del pod["metadata"]["labels"][_MANAGED_BY]
            pod["metadata"].pop("annotations", None)
    return _in_order(found)


def by_kustomize(kubernetes: Kubernetes, directory: Path) -> list[Any]:
    """Render the base with prefixed names and an additional label in selectors."""
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "default",
        "namePrefix": "made-",
        "labels": [{"pairs": {_INSTANCE: "made"}, "includeSelectors": True}],
        "resources": [os.path.relpath(BASE, directory.resolve())],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(kustomization))
    text = kubernetes.kubectl("kustomize", str(directory)).stdout
    found = [each for each in yaml.safe_load_all(text) if each["kind"] != "Namespace"]
    names = [each["metadata"]["name"] for each in found if each["kind"] == "ConfigMap"]
    for name in names:
        text = text.replace(name, name.rpartition("-")[0])
    found = [_renamed(each) for each in yaml.safe_load_all(text) if each["kind"] != "Namespace"]
    for each in found:
        if each["kind"] == "NetworkPolicy" and each["spec"]["podSelector"] == {}:
            # In Kustomize's output this rule covers all pods of the namespace.
            each["spec"]["podSelector"] = {"matchLabels": {_INSTANCE: "made"}}
        for claim in each["spec"].get("volumeClaimTemplates", []) if "spec" in each else ():
            claim["metadata"].pop("labels", None)
    return _in_order(found)


def _renamed(value: Any, key: str = "") -> Any:
    """Rename references in variables and settings, which Kustomize does not recognize as names."""
    if isinstance(value, dict):
        return {name: _renamed(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each) for each in value]
    if not isinstance(value, str) or key == "app.kubernetes.io/name":
        return value
    return re.sub(
        r"(?<![\w-])kafscale-(?=(etcd|gateway|storage)\b)|^kafscale(?=:9094$)", lambda found: f"made-{found[0]}", value
    )


def _in_order(objects: list[Any]) -> list[Any]:
    return sorted(objects, key=lambda each: (each["kind"], each["metadata"]["name"]))
