"""One Kubernetes cluster for all tests of a process, with the applied manifests."""

import re
import secrets
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.kubernetes import Kubernetes, running_kubernetes
from tests.support.k8s.live import SERVICES, Overlay

DOCUMENT = Path(__file__).parents[2] / "docs" / "guides" / "kubernetes.md"
NAMESPACES = {"production": "kafscale", "dev": "kafscale-dev"}


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """A real API server with its controllers, whose nodes and pods kwok simulates. Each test has its own namespaces."""
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def overlays(kubernetes: Kubernetes) -> dict[str, Overlay]:
    """Both overlays, applied and rolled out. Each service has its autoscaler's minimum number of pods."""
    kubernetes.kubectl("apply", "-f", str(Path(__file__).parent / "prometheus-operator.yaml"))
    kubernetes.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    applied = {name: Overlay(kubernetes, name, namespace) for name, namespace in NAMESPACES.items()}
    for arguments in _before("dev"):
        kubernetes.kubectl(*arguments)
    for overlay in applied.values():
        overlay.apply()
    for overlay in applied.values():
        overlay.await_replicas()
    return applied


def _before(overlay: str) -> Iterator[list[str]]:
    """Return the arguments of the kubectl command in docs/guides/kubernetes.md that prepares an overlay."""
    start = DOCUMENT.read_text().partition(f"    kubectl apply -k k8s/overlays/{overlay}\n")[0].replace("\\\n", " ")
    commands = re.findall(r"^    kubectl (.+)$", start, re.MULTILINE)
    assert commands
    for command in commands:
        yield [re.sub(r"\$\(.+\)", secrets.token_urlsafe(24), word) for word in shlex.split(command)]


@pytest.fixture(params=NAMESPACES)
def overlay(request: pytest.FixtureRequest, overlays: dict[str, Overlay]) -> Overlay:
    """Each overlay."""
    return overlays[request.param]


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> str:
    """Each of the four services."""
    return str(request.param)
