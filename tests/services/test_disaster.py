"""etcd is lost with all services under load: what docs/operations.md says then, done with its commands."""

from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from services.cli.admin.server import Exit
from tests.clients.acked import AckedProducer, ConfluentAcked, await_acks
from tests.clients.adapters.confluent import ConfluentClient
from tests.servers.cluster import Cluster, running_cluster
from tests.servers.etcd import running_etcd
from tests.servers.minio import Minio
from tests.services.shell import LONG_SECONDS, Shell

PARTITIONS = 3
GROUP = "readers"


def test_etcd_is_lost_and_nothing_that_was_acked(minio: Minio, tmp_path: Path) -> None:
    """The same producers and the same group go on: each record is in the log once, in order, where its ack said."""
    with ExitStack() as stack:
        etcd_directory = tmp_path / "etcd"
        etcd_directory.mkdir()
        etcd = stack.enter_context(running_etcd(etcd_directory))
        directory = tmp_path / "lost"
        directory.mkdir()
        cluster = stack.enter_context(running_cluster(directory, etcd=etcd, minio=minio, storages=2))
        shell = Shell(cluster.env, cluster.gateways[0].address)
        client = ConfluentClient(cluster.bootstrap)
        client.create_topic("orders", partitions=PARTITIONS)
        producers: list[AckedProducer] = []
        for partition in range(PARTITIONS):
            producers.append(ConfluentAcked(cluster.bootstrap, "orders", partition, idempotent=True))
            stack.callback(producers[-1].stop)
        await_acks(producers, 200, timeout=LONG_SECONDS)
        committed = _read(cluster, 300)
        assert shell.run("backup --keep 2").returncode == 0
        assert len(shell.json("backup --list")["snapshots"]) == 1
        await_acks(producers, 200, timeout=LONG_SECONDS)

        for process in cluster.processes:
            process.kill()
        etcd.members[0].lose()
        assert shell.run("restore --snapshot 1700000000000-1 --yes").returncode == Exit.NOT_FOUND
        planned = shell.json("restore --dry-run")
        ends = [log["log_end"] for log in planned["topics"][0]["partitions"]]
        acked = [max(producer.acked.values()) for producer in producers]
        assert all(end > offset for end, offset in zip(ends, acked, strict=True))
        done = shell.run("restore --yes")
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 topic restored; start the services")
        assert shell.run("restore --yes").returncode == Exit.REFUSED

        for process in cluster.processes:
            process.start()
        for process in cluster.processes:
            process.await_ready()
        await_acks(producers, 200, timeout=LONG_SECONDS)
        for producer in producers:
            producer.stop()
        for partition, producer in enumerate(producers):
            first, end = client.offsets("orders", partition=partition)
            assert (first, end > ends[partition]) == (0, True)
            records = client.consume("orders", count=end, partition=partition)
            assert [record.value for record in records] == [b"%d" % number for number in range(end)]
            assert producer.acked == {number: number for number in range(end)}
        states = shell.json("partition list orders")["partitions"]
        assert all(state["epoch"] > planned["epoch"] for state in states)
        assert _read(cluster, 1, begin_at=committed) != committed


def _read(cluster: Cluster, at_least: int, *, begin_at: dict[int, int] | None = None) -> dict[int, int]:
    """Read as the group, from where it is, commit, and give its offsets. ``begin_at``: where it has to begin."""
    settings = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    first: dict[int, int] = {}
    read = 0
    try:
        consumer.subscribe(["orders"])
        while read < at_least or (begin_at is not None and len(first) < PARTITIONS):
            message = consumer.poll(LONG_SECONDS)
            assert message is not None
            assert not message.error(), message.error()
            first.setdefault(message.partition() or 0, message.offset() or 0)
            read += 1
        consumer.commit(asynchronous=False)
        assert begin_at is None or first == begin_at
        wanted = [TopicPartition("orders", partition) for partition in range(PARTITIONS)]
        return {each.partition: max(each.offset, 0) for each in consumer.committed(wanted, timeout=LONG_SECONDS)}
    finally:
        consumer.close()
