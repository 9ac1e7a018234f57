"""Fixtures that tests of several kinds share."""

from collections.abc import Iterator

import pytest

from tests.matrix import table
from tests.servers.etcd import Etcd, running_etcd
from tests.servers.minio import Minio, running_minio


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-long", action="store_true", help="also run the full counts of the tests marked long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--run-long"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="long: run with --run-long"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # Here, since the process that collects the results of others knows this file alone.
    table.show(terminalreporter)


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    """A real S3 server; every test makes its own bucket there."""
    with running_minio(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """A real etcd for clusters of the four processes; each has a namespace of its own."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster
