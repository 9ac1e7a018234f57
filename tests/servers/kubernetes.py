"""Kubernetes for tests: API server, controllers and scheduler, built once from source, with nodes simulated by kwok.

``kubernetes/`` pins the versions. No container ever runs. kwok reports each scheduled pod as ready, and each pod of a
job as succeeded.
"""

import json
import os
import secrets
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpcore
import trustme

from tests.servers.etcd import running_etcd
from tests.servers.go_build import GoServer
from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess

_MANIFESTS = Path(__file__).parent / "kubernetes"
_VERSION = "v1.34.2"
# Clients compare versions, and a plain Go build reports v0.0.0.
_LDFLAGS = f"-s -w -X k8s.io/component-base/version.gitVersion={_VERSION}"


def _component(name: str, takes: str) -> GoServer:
    return GoServer(name, _MANIFESTS / "server", f"k8s.io/kubernetes/cmd/{name}", takes, _LDFLAGS)


API_SERVER = _component("kube-apiserver", "some minutes")
CONTROLLER_MANAGER = _component("kube-controller-manager", "some minutes")
SCHEDULER = _component("kube-scheduler", "a minute")
KUBECTL = _component("kubectl", "a minute")
KWOK = GoServer("kwok", _MANIFESTS / "kwok", "sigs.k8s.io/kwok/cmd/kwok", "a minute", "-s -w")
_ALL = (API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KUBECTL, KWOK)

ZONES = ("zone-a", "zone-b", "zone-c")
_NODES_PER_ZONE = 2
_DISKS = 12
_START_SECONDS = 120.0
_STEP_SECONDS = 0.1


def build() -> None:
    """Build all components that are not in the cache."""
    for server in _ALL:
        server.build()


@dataclass(frozen=True, kw_only=True)
class Kubernetes:
    """A running cluster. ``kubeconfig``, ``ca_file`` and ``token`` give full access."""

    directory: Path
    url: str
    ca_file: Path
    token: str
    kubeconfig: Path

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl. With ``check``, raise RuntimeError with its messages if it fails."""
        done = subprocess.run(
            [KUBECTL.build(), f"--kubeconfig={self.kubeconfig}", *arguments],
            # Use a separate cache, because an earlier cluster may have had this port.
            env={**os.environ, "KUBECACHEDIR": str(self.directory / "kubectl")},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}")
        return done

    def delete_pod(self, name: str, *arguments: str) -> None:
        """Delete a pod and wait until it is gone.

        kwok gives up a deletion if its request to the API server fails. A forced deletion does not depend on kwok.
        """
        deletion = ("delete", f"pod/{name}", "--ignore-not-found", "--timeout=60s", *arguments)
        if self.kubectl(*deletion, check=False).returncode != 0:
            self.kubectl(*deletion, "--force", "--grace-period=0")

    def json(self, *arguments: str, stdin: str | None = None) -> Any:
        """Run kubectl with ``-o json`` and return the parsed output."""
        return json.loads(self.kubectl(*arguments, "-o", "json", stdin=stdin).stdout)

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the objects that ``kubectl get`` lists."""
        listed: list[dict[str, Any]] = self.json("get", *arguments)["items"]
        return listed

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


@contextmanager
def running_kubernetes(directory: Path) -> Iterator[Kubernetes]:
    """Run a cluster of six nodes in ``ZONES`` with volumes of the default storage class.

    It is ready on entry and stopped on exit. Data and logs are in ``directory``.
    """
    binaries = {server.name: str(server.build()) for server in _ALL}
    (port,) = free_ports(1)
    keys = _Keys.make(directory)
    cluster = Kubernetes(
        directory=directory,
        url=f"https://127.0.0.1:{port}",
        ca_file=keys.ca,
        token=secrets.token_hex(16),
        kubeconfig=directory / "kubeconfig",
    )
    cluster.kubeconfig.write_text(json.dumps(_kubeconfig(cluster)))
    tokens = directory / "tokens.csv"
    tokens.write_text(f'{cluster.token},admin,admin,"system:masters"\n')
    with ExitStack() as running:

        def start(name: str, arguments: Sequence[str]) -> ServerProcess:
            command = [binaries[name], *arguments]
            return running.enter_context(_killed(ServerProcess(command, log=directory / f"{name}.log")))

        etcd_directory = directory / "etcd"
        etcd_directory.mkdir()
        etcd = running.enter_context(running_etcd(etcd_directory))
        server = start("kube-apiserver", _api_server(port, etcd.endpoints, keys, tokens))
        _await_api(cluster, server)
        common = [f"--kubeconfig={cluster.kubeconfig}"]
        # Port 0: they do not serve anything.
        component = [*common, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000"]
        others = [
            start("kube-controller-manager", [*component, *_controllers(keys)]),
            start("kube-scheduler", component),
            start(
                "kwok",
                [
                    *common,
                    f"--config={_MANIFESTS / 'kwok' / 'stages.yaml'}",
                    "--manage-all-nodes=true",
                    # Without a renewed lease, a node is lost after 50 s, and its pods never become ready again.
                    "--node-lease-duration-seconds=40",
                    "--node-port=0",
                ],
            ),
        ]
        cluster.apply(*_nodes(), *_disks())
        _await_controllers(cluster, others)
        yield cluster


@dataclass(frozen=True)
class _Keys:
    """PEM files: a CA, certificate and key of the API server, and the key that signs service account tokens."""

    ca: Path
    certificate: Path
    key: Path
    accounts: Path

    @classmethod
    def make(cls, directory: Path) -> "_Keys":
        keys = cls(*(directory / name for name in ("ca.pem", "server.pem", "server.key", "accounts.key")))
        authority = trustme.CA()
        authority.cert_pem.write_to_path(keys.ca)
        issued = authority.issue_cert("127.0.0.1", "localhost")
        issued.private_key_pem.write_to_path(keys.key)
        for part in issued.cert_chain_pems:
            part.write_to_path(keys.certificate, append=True)
        authority.issue_cert("accounts.test").private_key_pem.write_to_path(keys.accounts)
        return keys


def _api_server(port: int, etcd: Sequence[str], keys: _Keys, tokens: Path) -> list[str]:
    return [
        f"--etcd-servers={','.join(f'http://{endpoint}' for endpoint in etcd)}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        # Do not register an address for pods. None of them runs, and a loopback address would be rejected.
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={keys.certificate}",
        f"--tls-private-key-file={keys.key}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys.accounts}",
        f"--service-account-signing-key-file={keys.accounts}",
        "--service-cluster-ip-range=10.96.0.0/16",
    ]


def _controllers(keys: _Keys) -> list[str]:
    return [
        f"--service-account-private-key-file={keys.accounts}",
        f"--root-ca-file={keys.ca}",
        "--horizontal-pod-autoscaler-sync-period=1s",
    ]


def _kubeconfig(cluster: Kubernetes) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "test", "cluster": {"server": cluster.url, "certificate-authority": str(cluster.ca_file)}}
        ],
        "users": [{"name": "admin", "user": {"token": cluster.token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }


def _nodes() -> list[dict[str, Any]]:
    names = [(f"{zone}-{number}", zone) for zone in ZONES for number in range(_NODES_PER_ZONE)]
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "topology.kubernetes.io/zone": zone,
                },
            },
        }
        for name, zone in names
    ]


def _disks() -> list[dict[str, Any]]:
    """Return volumes that exist in advance, because there is no provisioner."""
    default = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "disks", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner",
    }
    volumes = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"disk-{number}"},
            "spec": {
                "capacity": {"storage": "100Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "disks",
                "hostPath": {"path": f"/disks/{number}"},
            },
        }
        for number in range(_DISKS)
    ]
    return [default, *volumes]


def _await_api(cluster: Kubernetes, server: ServerProcess) -> None:
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    headers = [("authorization", f"Bearer {cluster.token}")]
    deadline = time.monotonic() + _START_SECONDS
    with httpcore.ConnectionPool(ssl_context=context) as pool:
        while server.status is None and time.monotonic() < deadline:
            try:
                reply = pool.request(
                    "GET", f"{cluster.url}/readyz", headers=headers, extensions={"timeout": {"read": 5.0}}
                )
                if reply.status == 200:
                    return
            except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.RemoteProtocolError):
                pass
            time.sleep(_STEP_SECONDS)
    raise RuntimeError(f"the API server did not start: {server.tail()}")


def _await_controllers(cluster: Kubernetes, processes: Sequence[ServerProcess]) -> None:
    """Wait until kwok reports all nodes as ready and the service accounts that pods need exist."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        for process in processes:
            if process.status is not None:
                raise RuntimeError(f"a component of the cluster exited: {process.tail()}")
        account = cluster.kubectl("get", "serviceaccount", "default", check=False).returncode == 0
        if account and all(_ready(node) for node in cluster.items("nodes")):
            return
        time.sleep(_STEP_SECONDS)
    raise RuntimeError("\n".join(["the cluster is not ready:", *(process.tail() for process in processes)]))


def _ready(node: dict[str, Any]) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in node["status"].get("conditions", [])
    ) and not node["spec"].get("taints")


@contextmanager
def _killed(process: ServerProcess) -> Iterator[ServerProcess]:
    """Kill the process on exit, because the API server is slow to stop and no data is kept."""
    try:
        yield process
    finally:
        process.kill()
