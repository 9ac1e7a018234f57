"""The `kafscale` command on the four services, and clients that see its effects."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from select import select

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import Message as KafkaMessage

from kafscale_tools.cli.exits import Exit
from tests.servers.cluster import Cluster, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message, ProduceOptions
from tests.support.shell import LONG_SECONDS, Shell, once

SETTINGS = {
    "KAFSCALE_ADMIN_TOKEN": "only-operators-know-this",
    # A killed process must stay registered for the whole test.
    "KAFSCALE_LEASE_TTL_SECONDS": "120",
    "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
PARTITIONS = 4
RECORDS = 100
AT_MS = 1_795_341_600_000
"""2026-11-22, 10:00."""


@pytest.fixture(scope="module")
def cluster(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("admin")
    with running_cluster(directory, etcd=etcd, minio=minio, gateways=2, storages=2, env=SETTINGS) as cluster:
        yield cluster


def _await(what: str, there: Callable[[], bool]) -> None:
    once(what, there, bool)


def test_an_operator_and_a_client_see_the_same(cluster: Cluster) -> None:
    shell = Shell(SETTINGS, ",".join(gateway.address for gateway in cluster.gateways))
    made = shell.run(f"topic create orders --partitions {PARTITIONS} --config retention.ms=86400000")
    assert (made.returncode, made.stdout) == (0, f"topic orders created with {PARTITIONS} partitions\n")
    again = shell.run("topic create orders")
    assert (again.returncode, again.stderr) == (Exit.EXISTS, "Error: Topic 'orders' already exists.\n")
    client = ConfluentClient(cluster.bootstrap)
    for partition in range(PARTITIONS):
        records = [Message(b"%d" % number) for number in range(partition, RECORDS, PARTITIONS)]
        client.produce("orders", records, ProduceOptions(partition=partition))
    assert {row[0] for row in shell.rows("flush orders")} == {"orders"}
    # Values from owners are current; gateways learn the owners from a watch.
    partitions = once(
        "the owners are known",
        lambda: shell.json("partition list orders")["partitions"],
        lambda found: all(each["owner"] for each in found),
    )
    ends = [(each["partition"], each["log_start"], each["high_watermark"]) for each in partitions]
    assert ends == [(partition, 0, RECORDS // PARTITIONS) for partition in range(PARTITIONS)]
    assert {each["owner"] for each in partitions} <= {storage.address for storage in cluster.storages}
    assert sum(map(int, (row[2] for row in shell.rows("segment verify orders")))) >= PARTITIONS
    assert all(each["epoch"] >= 1 and each["bytes"] > 0 and each["segments"] > 0 for each in partitions)

    shown = once(
        "every process answers",
        lambda: shell.json("cluster"),
        lambda found: all(member["health"] == "READY" for member in found["members"]),
    )
    assert [member["service"] for member in shown["members"]] == [
        *("coordinator", "gateway", "gateway", "indexer", "storage", "storage")
    ]
    assert (shown["topics"], shown["partitions"]) == (1, PARTITIONS)
    by_address = {member["address"]: member for member in shown["members"]}
    assert set(by_address) == {process.address for process in cluster.processes}
    assert sum(by_address[storage.address]["owned"] for storage in cluster.storages) == PARTITIONS
    assert sum(by_address[gateway.address]["owned"] for gateway in cluster.gateways) == PARTITIONS

    _read_all(cluster, shell)
    assert shell.run("topic alter orders --partitions 6 --config flush.ms=100 --unset retention.ms").returncode == 0
    _await("the client sees the new partitions", lambda: _partitions_of(cluster, "orders") == 6)
    wrong = shell.run("topic list", KAFSCALE_ADMIN_TOKEN="this-is-another-token")
    assert (wrong.returncode, wrong.stderr) == (Exit.DENIED, "Error: the token is missing or wrong\n")
    assert shell.run("topic delete orders --yes").returncode == 0
    _await("the client no longer sees the topic", lambda: "orders" not in client.topics())
    assert shell.run("topic describe orders").returncode == Exit.NOT_FOUND


def _partitions_of(cluster: Cluster, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    try:
        return len(consumer.list_topics(topic, timeout=LONG_SECONDS).topics[topic].partitions)
    finally:
        consumer.close()


def _read_all(cluster: Cluster, shell: Shell) -> None:
    """A group reads all records, cannot be reset while it reads, and reads all again after a reset."""
    consumer = _reader(cluster)
    try:
        assert _read(consumer) == RECORDS
        consumer.commit(asynchronous=False)
        group = shell.json("group describe readers")
        assert (group["group"]["state"], len(group["members"])) == ("Stable", 1)
        assert sum(each["committed"] for each in group["offsets"]) == RECORDS
        assert {each["lag"] for each in group["offsets"]} == {0}
        refused = shell.run("group reset readers --to earliest --yes")
        assert refused.returncode == Exit.REFUSED
        assert refused.stderr == "Error: The group readers has members (Stable); stop them first.\n"
    finally:
        consumer.close()
    _await("the member has left", lambda: shell.rows("group list")[0][:3] == ["readers", "Empty", "consumer"])
    assert shell.run("group reset readers --to earliest --yes").returncode == 0
    again = _reader(cluster)
    try:
        assert _read(again) == RECORDS
    finally:
        again.close()
    _await("the group is deleted", lambda: shell.run("group delete readers --yes").returncode in (0, Exit.NOT_FOUND))


def _reader(cluster: Cluster) -> Consumer:
    settings = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    consumer.subscribe(["orders"])
    return consumer


def _read(consumer: Consumer) -> int:
    """Consume all records."""
    seen: set[bytes] = set()
    deadline = time.monotonic() + LONG_SECONDS
    while len(seen) < RECORDS:
        assert time.monotonic() < deadline, f"{len(seen)} records"
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.add(message.value() or b"")
    return len(seen)


def test_a_client_reads_records_of_the_command_and_the_command_those_of_a_client(cluster: Cluster) -> None:
    shell = Shell(SETTINGS, cluster.gateways[0].address)
    client = ConfluentClient(cluster.bootstrap)
    assert shell.run("topic create lines --partitions 2").returncode == 0
    _await("all gateways know the topic", lambda: shell.run("consume lines").returncode == 0)
    keys = [f"key-{number}" for number in range(6)]
    for codec in (codecs := ("lz4", "zstd")):
        done = shell.run(f"produce lines -K : -H codec={codec} -z {codec}", "".join(f"{key}:{codec}\n" for key in keys))
        assert (done.returncode, done.stderr) == (0, "")
    # This client must choose partitions by key as the command does.
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.codec": "zstd"})
    placed: dict[str, int] = {}
    for key in keys:

        def delivered(error: KafkaError | None, message: KafkaMessage, key: str = key) -> None:
            assert error is None
            placed[key] = message.partition() or 0

        producer.produce("lines", "client", key, on_delivery=delivered)
    assert producer.flush(LONG_SECONDS) == 0
    for partition in range(2):
        here = [key for key in keys if placed[key] == partition]
        expected = [(key, value) for value in (*codecs, "client") for key in here]
        found = client.consume("lines", count=len(expected), partition=partition)
        assert [(each.key, each.value) for each in found] == [(key.encode(), value.encode()) for key, value in expected]
        assert [each.headers for each in found][: len(here)] == [(("codec", b"lz4"),)] * len(here)
    for partition, codec in enumerate(("gzip", "snappy")):
        messages = [Message(b"%d" % number, b"k", (("h", None),)) for number in range(RECORDS)]
        client.produce("lines", messages, ProduceOptions(partition=partition, codec=codec))
        first = client.offsets("lines", partition=partition)[1] - RECORDS
        read = shell.run(f"consume lines -p {partition} --from offset={first} -Z -f %o,%k,%s,%h\\n")
        assert read.stdout.splitlines() == [f"{first + number},k,{number},h=NULL" for number in range(RECORDS)]
    with shell.running("consume lines -p 1 --from latest --follow -f %s\\n") as following:
        assert following.stdout is not None
        # The command does not report where it starts, so records are written until it prints one.
        while not select([following.stdout], [], [], 0.2)[0]:
            client.produce("lines", [Message(b"seen")], ProduceOptions(partition=1))
        assert following.stdout.readline() == "seen\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(LONG_SECONDS) == 0


def test_clients_read_and_write_a_copy_of_a_topic_as_of_an_earlier_time(cluster: Cluster) -> None:
    shell = Shell(cluster.env, cluster.gateways[0].address)
    client = ConfluentClient(cluster.bootstrap)
    assert shell.run("topic create past --partitions 2 --config retention.ms=-1").returncode == 0
    _await("all gateways know the topic", lambda: shell.run("consume past").returncode == 0)
    times = [AT_MS + 1000 * number for number in range(RECORDS)]
    _write_idempotently(cluster, "past", [(0, b"%d" % time, time) for time in times])
    assert shell.run("flush past").returncode == 0
    assert shell.run(f"restore --topic past --to {AT_MS - 1} --into restored").returncode == Exit.REFUSED
    made = shell.json("restore --topic past --to 2026-11-22T10:00:30.500Z --into restored")
    assert [(each["log_end"], each["left_out"]) for each in made["partitions"]] == [(31, RECORDS - 31), (0, 0)]
    assert shell.run(f"restore --topic past --to {AT_MS} --into restored").returncode == Exit.EXISTS
    _write_idempotently(cluster, "restored", [(partition, b"later", AT_MS) for partition in (0, 1, 0)])
    found = client.consume("restored", count=33)
    assert [(each.value, each.timestamp) for each in found] == [
        *((b"%d" % time, time) for time in times[:31]),
        *[(b"later", AT_MS)] * 2,
    ]
    assert [each.value for each in client.consume("restored", count=1, partition=1)] == [b"later"]
    assert client.offsets("past") == (0, RECORDS)
    verified = shell.run("segment verify restored")
    assert (verified.returncode, verified.stderr) == (0, "")


def _write_idempotently(cluster: Cluster, topic: str, records: Sequence[tuple[int, bytes, int]]) -> None:
    """Write many batches and return partitions, values and times."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 50,
            "compression.codec": "zstd",
        }
    )
    for partition, value, time_ms in records:
        producer.produce(topic, value, partition=partition, timestamp=time_ms)
    assert producer.flush(LONG_SECONDS) == 0


def test_an_unreachable_instance_is_listed_until_its_registration_expires(cluster: Cluster) -> None:
    """The command then asks the next gateway."""
    asked, killed = cluster.gateways[1], cluster.gateways[0]
    shell = Shell(SETTINGS, f"{killed.address},{asked.address}")
    killed.kill()
    members = {member["address"]: member for member in shell.json("cluster")["members"]}
    assert members[killed.address]["health"] == "UNREACHABLE"
    assert members[killed.address]["detail"]
