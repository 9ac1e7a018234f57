"""The four services, that every client and tool of the matrix runs against with its defaults."""

from collections.abc import Iterator

import pytest

from tests.matrix.kafka_tools import KafkaTools, kafka_tools
from tests.servers.cluster import Cluster, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio

# Nothing of what clients decide: a group begins at once, so that cases take less time.
SETTINGS = {"KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}


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
