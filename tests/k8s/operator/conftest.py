"""The custom resource definitions of the operator on the Kubernetes cluster of the tests."""

from pathlib import Path

import pytest

from tests.servers.kubernetes import Kubernetes

CRDS = Path(__file__).parents[3] / "k8s" / "crds"
PROMETHEUS = Path(__file__).parents[1] / "prometheus-operator.yaml"


@pytest.fixture(scope="session")
def with_our_kinds(kubernetes: Kubernetes) -> Kubernetes:
    """A cluster that accepted the definitions without a warning. It also has the Prometheus operator's."""
    kubernetes.kubectl("apply", "-f", str(PROMETHEUS))
    applied = kubernetes.kubectl("apply", "-k", str(CRDS))
    assert applied.stderr == ""
    kubernetes.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    return kubernetes
