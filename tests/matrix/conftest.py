"""The four services, with which every client and tool of the matrix runs with its defaults."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.servers.cluster import Cluster, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.support import client_table as table
from tests.support.clients import MATRIX
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import MatrixClient
from tests.support.kafka_tools import KafkaTools, kafka_tools
from tests.support.members import PARTITIONS, eventually
from tests.support.wire import gateways_partitions

# Groups start without a delay, to save time. Clients cannot tell the difference.
SETTINGS = {"KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0", "KAFSCALE_REWRITE_CHECK_MS": "500"}


@pytest.fixture(scope="session")
def cluster(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("matrix")
    with running_cluster(
        directory, etcd=etcd, minio=minio, gateways=2, storages=2, indexers=1, coordinators=2, env=SETTINGS
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def bootstrap(cluster: Cluster) -> str:
    """The addresses of both gateways, separated by a comma."""
    return cluster.bootstrap


@pytest.fixture(scope="session")
def tools(bootstrap: str) -> Iterator[KafkaTools]:
    """Kafka's command line tools."""
    with kafka_tools(bootstrap) as tools:
        yield tools


@pytest.fixture(scope="session")
def judge(bootstrap: str) -> Iterator[ConfluentClient]:
    """A client that prepares topics and checks the results, whatever client is under test."""
    judge = ConfluentClient(bootstrap)
    yield judge
    judge.close()


@pytest.fixture(scope="module")
def started(bootstrap: str) -> Iterator[Callable[[str], MatrixClient]]:
    """Return a function that starts clients by name, once for all cases of a module.

    Threads of Python's clients draw from `random`, so they stop before later modules that need it.
    """
    running: dict[str, MatrixClient] = {}

    def start(name: str) -> MatrixClient:
        if name not in running:
            running[name] = MATRIX[name](bootstrap)
        return running[name]

    yield start
    for driver in running.values():
        driver.close()


@pytest.fixture(params=MATRIX)
def driver(
    request: pytest.FixtureRequest,
    started: Callable[[str], MatrixClient],
    record_property: Callable[[str, object], None],
) -> MatrixClient:
    """Each client in turn. A case marked ``uses`` is skipped if the client lacks the feature."""
    driver = started(request.param)
    record_property(table.CLIENT, f"{driver.name} {driver.version}")
    marker = request.node.get_closest_marker("uses")
    for method in marker.args if marker else ():
        if method in driver.lacks:
            pytest.skip(driver.lacks[method])
    return driver


_NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    """A name for a topic or a group that only this case uses."""
    return f"matrix-{next(_NUMBERS)}"


@pytest.fixture
def topic(driver: MatrixClient, judge: ConfluentClient, name: str, bootstrap: str) -> str:
    """A new topic with four partitions that the client under test can read and every gateway knows."""
    judge.create_topic(name, partitions=PARTITIONS, configs=driver.topic_configs)
    eventually(lambda: gateways_partitions(bootstrap, name) == {PARTITIONS})
    return name
