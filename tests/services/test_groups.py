"""Consumer groups on the four processes: every gateway serves them, and no commit is lost when a coordinator dies."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from tests.servers.cluster import Cluster, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.support.clients.confluent import ConfluentClient

PARTITIONS = 4
PATIENCE = 90.0


@pytest.fixture(scope="module")
def cluster(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("groups")
    with running_cluster(directory, etcd=etcd, minio=minio, gateways=2, storages=1, coordinators=2) as cluster:
        yield cluster


def test_members_at_two_gateways_continue_when_coordinators_are_killed(cluster: Cluster) -> None:
    client = ConfluentClient(cluster.bootstrap)
    client.create_topic("shared", partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    settings = {"group.id": "readers", "auto.offset.reset": "earliest", "session.timeout.ms": 20_000}
    members = [Consumer({"bootstrap.servers": gateway.bootstrap, **settings}) for gateway in cluster.gateways]
    got: list[bytes] = []

    def read_up_to(count: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(got) < count:
            assert time.monotonic() < deadline, f"{len(got)} of {count} records"
            for member in members:
                message = member.poll(0.2)
                if message is not None and message.error() is None:
                    got.append(message.value() or b"")

    def produce(first: int, end: int) -> None:
        for number in range(first, end):
            producer.produce("shared", b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(60) == 0

    try:
        for member in members:
            member.subscribe(["shared"])
        produce(0, 100)
        read_up_to(100)
        for number, coordinator in enumerate(cluster.coordinators, start=1):
            coordinator.kill()
            coordinator.start()
            produce(100 * number, 100 * (number + 1))
            read_up_to(100 * (number + 1))
        # No member started again from the beginning: each record was read once.
        assert sorted(map(int, got)) == list(range(100 * (1 + len(cluster.coordinators))))
    finally:
        for member in members:
            member.close()
        cluster.show_logs()
