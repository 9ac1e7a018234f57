"""Shared fixtures, and the order in which the test files run."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling

from tests.servers.etcd import Etcd, running_etcd
from tests.servers.minio import Minio, contained_minio, running_minio
from tests.support import client_table as table
from tests.support import left_out

# A busy machine must not fail a test.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# The default shows the local variables of each function of a traceback, which takes half a second.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

_SERIAL = {
    "clusters of many processes": [
        "spark/test_faults.py",
        "compose/test_compose.py",
        "compose/test_secure.py",
        # After Docker, because a browser stops loading pages when Docker adds or removes a network interface.
        "console/test_console.py",
        "console/test_records.py",
        "console/test_one_process.py",
        "console/test_https.py",
        "services/test_together.py",
        "chaos/test_crash_points.py",
    ],
    "Spark": [
        "spark/test_jobs.py",
        "spark/test_standalone.py",
        "spark/test_kafka_source.py",
        "spark/test_tutorial.py",
        "spark/test_sink.py",
        "spark/test_stream.py",
        "spark/test_session.py",
        # After Spark's tests, because beside them a Python worker would not connect to Spark within its ten seconds.
        "services/test_rolling_restart.py",
        "chaos/test_chaos.py",
    ],
}
"""Groups of files that run one at a time, because they load the machine: one process gets all files of a group."""

_LONGEST = [
    *itertools.chain(*_SERIAL.values()),
    "sim/test_variants.py",
    "mutations/test_mutations.py",
    "clients/test_kill9.py",
    "clients/test_groups.py",
    "sim/test_simulation.py",
    "sim/test_more_seeds.py",
    "matrix/test_group_clients.py",
    "contract/metadata/test_leases.py",
    "matrix/test_connect.py",
    "ecosystem/test_python.py",
    "ecosystem/test_connect.py",
    "ecosystem/test_mirror_maker.py",
    "contract/metadata/test_etcd_members.py",
    "clients/test_corpus.py",
]
"""Long files, which start first, so that no process is still busy with one when all others have finished."""


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """Assign all tests of a file, or of a group of `_SERIAL`, to one process."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return next((turn for turn, files in _SERIAL.items() if file.removeprefix("tests/") in files), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Scheduling:
    return _Scheduling(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-long", action="store_true", help="also run the full counts of the tests marked long")
    parser.addoption("--left-out", action="store_true", help="list the directories and files that were not run")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    place = {Path(__file__).parent / name: number for number, name in enumerate(_LONGEST)}
    assert all(path.exists() for path in place)
    items.sort(key=lambda item: place.get(item.path, len(place)))
    if not config.getoption("--run-long"):
        # They are too long for every run, and add seeds, crash points and rare faults to tests that always run.
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="long test: make test-long runs it"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # This must be here, because the process that collects the results loads only this file.
    table.show(terminalreporter)
    left_out.show(terminalreporter, files=terminalreporter.config.getoption("--left-out"))


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    """A MinIO server. Every test creates its own bucket."""
    contained = os.environ.get("KAFSCALE_TEST_CONTAINERS") == "1"
    with contained_minio() if contained else running_minio(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd for clusters of the four services. Each cluster has its own namespace."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture
def commands_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands on stores in this process, whose logging they must not configure, because that is never undone."""
    monkeypatch.setattr("kafscale_tools.cli.on_stores.configure_logging", lambda _: None)
