"""One Kubernetes cluster for all tests of a process."""

from collections.abc import Iterator

import pytest

from tests.servers.kubernetes import Kubernetes, running_kubernetes


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """A real API server with its controllers, whose nodes and pods kwok plays; each test has namespaces of its own."""
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes")) as cluster:
        yield cluster
