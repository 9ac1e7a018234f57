"""The four services as processes, with producers and consumers, while instances stop, die or are missing."""

import itertools
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from kafscale_tools.cli.exits import Exit
from tests.servers.cluster import Cluster, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.servers.tools import tool
from tests.support.acked import AckedProducer, ConfluentAcked, await_acks, running_defaults
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message
from tests.support.shell import Shell

PARTITIONS = 4
LONG_LEASE = {"KAFSCALE_LEASE_TTL_SECONDS": "60"}
"""The lease of a dead process lasts a minute, so clients that continue earlier show that partitions were released."""
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def patient(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("patient")
    with running_cluster(
        directory, etcd=etcd, minio=minio, env=LONG_LEASE, gateways=2, storages=2, indexers=2, coordinators=2
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def hasty(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with short leases."""
    directory = tmp_path_factory.mktemp("hasty")
    with running_cluster(directory, etcd=etcd, minio=minio, gateways=2, storages=2) as cluster:
        yield cluster


@contextmanager
def _producing(cluster: Cluster) -> Iterator[list[AckedProducer]]:
    """Run an idempotent producer for each partition of a new topic and wait for all acks, then check the log.

    Every record is in the log once, in order, and at its acked offset.
    """
    topic = f"topic-{next(_NUMBERS)}"
    client = ConfluentClient(cluster.bootstrap)
    try:
        client.create_topic(topic, partitions=PARTITIONS)
        with ExitStack() as stopping:
            producers: list[AckedProducer] = []
            for partition in range(PARTITIONS):
                producers.append(ConfluentAcked(cluster.bootstrap, topic, partition, idempotent=True, gentle=True))
                stopping.callback(producers[-1].stop)
            await_acks(producers, 100, timeout=60)
            yield producers
            await_acks(producers, 100, timeout=60)
        for partition, producer in enumerate(producers):
            first, end = client.offsets(topic, partition=partition)
            records = client.consume(topic, count=end - first, partition=partition)
            assert [record.value for record in records] == [b"%d" % number for number in range(end)]
            assert producer.acked == {number: number for number in range(end)}
        assert client.offset_for_time(topic, 0) == 0
    finally:
        cluster.show_logs()


def _longest_pause(producers: list[AckedProducer], seconds: float) -> float:
    """Return the longest time without an ack of any producer in the next ``seconds``."""
    began = now = time.monotonic()
    counts = [len(producer.acked) for producer in producers]
    last, longest = [now] * len(producers), 0.0
    while (now := time.monotonic()) < began + seconds:
        for index, producer in enumerate(producers):
            if len(producer.acked) > counts[index]:
                counts[index], last[index] = len(producer.acked), now
            longest = max(longest, now - last[index])
        time.sleep(0.01)
    return longest


def test_kcat_and_librdkafka_use_two_gateways(patient: Cluster) -> None:
    for one, other in itertools.permutations(patient.gateways, 2):
        topic = f"by-{one.name}"
        ConfluentClient(one.bootstrap).create_topic(topic)
        write = [tool("kcat", "kcat"), "-P", "-b", one.bootstrap, "-t", topic]
        subprocess.run(write, input="a\nb\n", text=True, check=True, timeout=60)
        assert ConfluentClient(other.bootstrap).produce(topic, [Message(b"c"), Message(b"d")]) == [2, 3]
        read = ["kcat", "-C", "-b", other.bootstrap, "-t", topic, "-e", "-q"]
        done = subprocess.run(read, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == "a\nb\nc\nd\n"
        records = ConfluentClient(one.bootstrap).consume(topic, count=4)
        assert [record.value for record in records] == [b"a", b"b", b"c", b"d"]


def test_every_service_serves_grpc_health_and_reflection(patient: Cluster) -> None:
    own = {
        "gateway": {"kafscale.v1.Admin"},
        "storage": {"kafscale.v1.SegmentStorage"},
        "indexer": {"kafscale.v1.Indexer"},
        "coordinator": {"kafscale.v1.GroupCoordinator"},
    }
    for process in patient.processes:
        with grpc.insecure_channel(process.address) as channel:
            reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING, process.name
            asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
            listed = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked, timeout=10)
            names = {service.name for service in next(iter(listed)).list_services_response.service}
        assert own[process.service] <= names


@pytest.mark.parametrize("service", ["storage", "gateway", "indexer", "coordinator"])
def test_sigterm_ends_a_process_with_status_0_and_hands_over_its_work(patient: Cluster, service: str) -> None:
    stopped = next(process for process in patient.processes if process.service == service)
    with _producing(patient) as producers:
        began = time.monotonic()
        assert stopped.stop() == 0
        assert time.monotonic() - began < 20
        assert _longest_pause(producers, 5.0) < 4.0
        stopped.restart()
    for storage in patient.storages:
        assert all(not event["unclean"] for event in storage.events("partition released"))


def _changed(printed: list[str]) -> list[tuple[str, bool]]:
    """Return the drains that a watch has printed: addresses, and whether they are draining."""
    members = [json.loads(line)["member"] for line in printed]
    changed = [each["member"] for each in members if each and each["kind"] == "CHANGED"]
    return [(each["address"], each["draining"]) for each in changed]


@pytest.mark.parametrize("service", ["storage", "coordinator"])
def test_a_drained_instance_owns_nothing_when_the_command_ends(patient: Cluster, service: str) -> None:
    shell, client, topic = (
        Shell({}, patient.gateways[0].address),
        ConfluentClient(patient.bootstrap),
        f"drain-{service}",
    )
    client.create_topic(topic, partitions=PARTITIONS)
    one, other = (process.address for process in patient.processes if process.service == service)
    with (
        shell.running("watch -o json") as watching,
        _producing(patient) as producers,
        running_defaults(patient.bootstrap, topic) as defaults,
    ):
        assert watching.stdout is not None
        printed = [watching.stdout.readline()]
        for drained, left in ((one, other), (other, one)):
            await_acks([*producers, defaults], 100, timeout=60)
            assert shell.run(f"drain {drained}").returncode == 0
            shown = {each["address"]: each for each in shell.json("cluster")["members"]}
            assert (shown[drained]["draining"], shown[drained]["owned"]) == (True, 0)
            if service == "storage":
                owners = {each["owner"] for each in shell.json("partition list")["partitions"]}
                assert owners - {""} == {left}
            last = shell.run(f"drain {left}")
            assert (last.returncode, "is the only one" in last.stderr) == (Exit.REFUSED, True)
            await_acks([*producers, defaults], 100, timeout=60)
            assert shell.run(f"drain {drained} --cancel").returncode == 0
        while _changed(printed)[-1:] != [(other, False)]:
            printed.append(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        printed += watching.stdout.readlines()
        assert watching.wait(60) == 0
    changes = [json.loads(line) for line in printed]
    members = [(each["member"]["kind"], each["member"]["member"]) for each in changes if each["member"]]
    assert {each["address"] for kind, each in members if kind == "PRESENT"} == {
        process.address for process in patient.processes
    }
    assert _changed(printed) == [(one, True), (one, False), (other, True), (other, False)]
    if service == "storage":
        moves = [each["owner"] for each in changes if each["owner"]]
        assert {each["owner"] for each in moves} == {one, other}
    assert not defaults.errors
    stored: set[bytes | None] = set()
    for partition in range(PARTITIONS):
        first, end = client.offsets(topic, partition=partition)
        stored |= {record.value for record in client.consume(topic, count=end - first, partition=partition)}
    assert {b"%d" % number for number in defaults.acked} <= stored


def test_clients_do_not_notice_the_loss_of_every_indexer(patient: Cluster) -> None:
    dead, hanging = patient.indexers
    with _producing(patient) as producers:
        dead.kill()
        hanging.pause()
        assert _longest_pause(producers, 6.0) < 4.0
    for indexer in patient.indexers:
        indexer.restart()


def test_a_killed_storage_instance_is_replaced_when_its_lease_ends(hasty: Cluster) -> None:
    with _producing(hasty) as producers:
        for storage in hasty.storages:
            storage.kill()
            await_acks(producers, 100, timeout=30)
            storage.restart()
            await_acks(producers, 100, timeout=30)


def test_clients_of_a_killed_gateway_use_another(hasty: Cluster) -> None:
    with _producing(hasty) as producers:
        for gateway in hasty.gateways:
            gateway.kill()
            await_acks(producers, 100, timeout=30)
            gateway.restart()
            await_acks(producers, 100, timeout=30)


def test_a_storage_instance_paused_for_longer_than_its_lease_does_no_harm(hasty: Cluster) -> None:
    paused = hasty.storages[0]
    with _producing(hasty) as producers:
        paused.pause()
        await_acks(producers, 100, timeout=60)
        paused.resume()
        await_acks(producers, 100, timeout=60)
