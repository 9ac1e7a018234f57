"""The kinds of the operator on the Kubernetes cluster of the tests."""

from pathlib import Path

import pytest

from tests.servers.kubernetes import Kubernetes

CRDS = Path(__file__).parents[3] / "k8s" / "crds"
KINDS = ("kafscaleclusters.kafscale.io", "kafscaletopics.kafscale.io")


@pytest.fixture(scope="session")
def with_our_kinds(kubernetes: Kubernetes) -> Kubernetes:
    """It takes their definitions without a warning."""
    applied = kubernetes.kubectl("apply", "-k", str(CRDS))
    assert applied.stderr == ""
    kubernetes.kubectl("wait", "--for=condition=Established", "crd", *KINDS, "--timeout=60s")
    return kubernetes
