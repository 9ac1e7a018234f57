"""Operators as processes, and the namespace that they manage, as seen with kubectl."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.cluster import Cluster, ServiceProcess
from tests.servers.kubernetes import Kubernetes
from tests.servers.ports import free_ports

TOKEN = "only-operators-know-this"


OPERATOR = Path(__file__).parents[3] / "k8s" / "operator-monitoring"


class Namespace:
    """A namespace with k8s/operator-monitoring and a KafscaleCluster `main` that represents ``cluster``.

    The operator there has exactly the rights that those manifests grant.
    """

    def __init__(self, kubernetes: Kubernetes, name: str, cluster: Cluster) -> None:
        self.name = name
        self.cluster = cluster
        self._kubernetes = kubernetes
        labels = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}
        kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        manifests = kubernetes.kubectl("kustomize", str(OPERATOR)).stdout
        applied = self.kubectl(
            "apply", "-f", "-", stdin=manifests.replace("namespace: kafscale\n", f"namespace: {name}\n")
        )
        assert applied.stderr == ""
        self._kubeconfig = kubernetes.directory / f"{name}.kubeconfig"
        self._kubeconfig.write_text(json.dumps(self._of_the_operator()))
        self.apply("KafscaleCluster", "main", adminServers=[gateway.address for gateway in cluster.gateways])

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> Any:
        return self._kubernetes.kubectl("-n", self.name, *arguments, stdin=stdin, check=check)

    def apply(self, kind: str, name: str, /, **spec: Any) -> None:
        self.apply_all([(kind, name, spec)])

    def topic(self, name: str, **spec: Any) -> None:
        self.apply("KafscaleTopic", name, clusterRef={"name": "main"}, **spec)

    def topics(self, names: list[str], **spec: Any) -> None:
        self.apply_all([("KafscaleTopic", name, {"clusterRef": {"name": "main"}, **spec}) for name in names])

    def apply_all(self, objects: list[tuple[str, str, dict[str, Any]]]) -> None:
        """Apply objects, without a warning."""
        done = self.kubectl("apply", "-f", "-", stdin=as_list(objects))
        assert done.stderr == ""

    def refused(self, objects: list[tuple[str, str, dict[str, Any]]]) -> str:
        """Return the API server's errors. None of the objects may be accepted."""
        done = self.kubectl("apply", "--validate=ignore", "-f", "-", stdin=as_list(objects), check=False)
        assert done.stdout == ""
        return str(done.stderr)

    def wait(self, condition: str, *names: str, reason: str = "") -> None:
        """Wait until a condition of the topics is true or has ``reason``."""
        path = f'jsonpath={{.status.conditions[?(@.type=="{condition}")].reason}}={reason}'
        what = path if reason else f"condition={condition}"
        self.kubectl("wait", f"--for={what}", "--timeout=90s", *(f"kafscaletopic/{name}" for name in names))

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "-o", "json").stdout)

    def settled(self, name: str) -> bool:
        """Return whether a topic's status is about its current spec and reports that it is synced."""
        topic = self.get("kafscaletopic", name)
        observed = topic.get("status", {}).get("observedGeneration")
        return observed == topic["metadata"]["generation"] and name in self.synced()

    def synced(self) -> set[str]:
        """Return the topics that match their spec."""
        return {
            topic["metadata"]["name"]
            for topic in self.get("kafscaletopics")["items"]
            for condition in topic.get("status", {}).get("conditions", [])
            if (condition["type"], condition["status"]) == ("Synced", "True")
        }

    def events(self, name: str) -> list[str]:
        """Return the reasons of the events about a resource, unordered."""
        found = self.get("events", f"--field-selector=involvedObject.name={name}")["items"]
        return sorted(event["reason"] for event in found)

    def _of_the_operator(self) -> dict[str, Any]:
        """Create the files that a pod would have: the namespace, and a token of the account."""
        server = {"server": self._kubernetes.url, "certificate-authority": str(self._kubernetes.ca_file)}
        token = self.kubectl("create", "token", "kafscale-operator").stdout.strip()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "operator", "user": {"token": token}}],
            "contexts": [
                {"name": "test", "context": {"cluster": "test", "user": "operator", "namespace": self.name}},
            ],
            "current-context": "test",
        }

    def operator(self, number: int, directory: Path, **settings: str) -> ServiceProcess:
        """Return an operator that has not been started."""
        (http,) = free_ports(1)
        env = {
            **self.cluster.env,
            "KUBECONFIG": str(self._kubeconfig),
            "KAFSCALE_ADMIN_TOKEN": TOKEN,
            "KAFSCALE_OPERATOR_RESYNC_SECONDS": "2",
            "KAFSCALE_OPERATOR_LEASE_SECONDS": "4",
            "KAFSCALE_HTTP_ADDR": f"127.0.0.1:{http}",
            **settings,
        }
        return ServiceProcess("operator", number, directory, env)


@contextmanager
def running(*operators: ServiceProcess) -> Iterator[None]:
    """Start the operator, and kill it at the end."""
    try:
        for operator in operators:
            operator.start()
        for operator in operators:
            operator.await_ready()
        yield
    finally:
        for operator in operators:
            operator.end()
            print(f"--- {operator.log}", *operator.log.read_text().splitlines()[-40:], sep="\n")


def as_list(objects: list[tuple[str, str, dict[str, Any]]]) -> str:
    items = [
        {"apiVersion": "kafscale.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        for kind, name, spec in objects
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
