"""MirrorMaker 2 into KafScale, from Apache Kafka and from KafScale. It keeps what it knows in compacted topics."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from tests.ecosystem.programs import PATIENCE, committed, policies, until
from tests.servers.apache_kafka import SHORT_LIVED, apache_kafka, java
from tests.servers.process import ServerProcess
from tests.support.broker import KafscaleBroker
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message

pytestmark = pytest.mark.timeout(900)

# Beside addresses and group offsets: what is looked at every minute or ten is looked at more often.
SETTINGS = """\
clusters={alias}, target
{alias}.bootstrap.servers={source}
target.bootstrap.servers={target}
{alias}->target.enabled=true
{alias}->target.topics=orders, products
{alias}->target.sync.group.offsets.enabled=true
{alias}->target.emit.checkpoints.interval.seconds=1
{alias}->target.sync.group.offsets.interval.seconds=1
{alias}->target.refresh.topics.interval.seconds=2
{alias}->target.refresh.groups.interval.seconds=2
{alias}->target.sync.topic.configs.interval.seconds=2
{alias}->target.sync.topic.acls.interval.seconds=2
{alias}->target.offset.lag.max=0
"""

# The default is 3. Apache Kafka with one broker refuses it.
ONE_REPLICA = """\
apache->target.offset-syncs.topic.replication.factor=1
apache.config.storage.replication.factor=1
apache.offset.storage.replication.factor=1
apache.status.storage.replication.factor=1
target->apache.heartbeats.topic.replication.factor=1
"""

REFUSED_ACL = re.compile(
    r"Could not sync ACL of topic apache\.orders\..*\n"
    r"org\.apache\.kafka\.common\.errors\.SecurityDisabledException: No Authorizer is configured"
)

# Without an authorizer there are no ACLs that MirrorMaker could bring over.
AUTHORIZER = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
    "allow.everyone.if.no.acl.found=true",
)


@contextmanager
def _apache(directory: Path) -> Iterator[str]:
    with apache_kafka(directory, heap="512m", properties=AUTHORIZER) as kafka:
        yield kafka.bootstrap


@contextmanager
def _kafscale(directory: Path) -> Iterator[str]:
    broker = KafscaleBroker(directory, {"KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"})
    try:
        yield broker.bootstrap
    finally:
        broker.stop()


def _allow(bootstrap: str, user: str, topic: str) -> None:
    """The user may read the topic."""
    topics = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
    acl = AclBinding(*topics, f"User:{user}", "*", AclOperation.READ, AclPermissionType.ALLOW)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_acls([acl])[acl].result(PATIENCE)


def _read_as(group: str, bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """The next records of a group, which commits that it has read them, and ends."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = [one.value() for one in consumer.consume(count, timeout=PATIENCE)]
    consumer.close()
    return found


@pytest.mark.parametrize(("alias", "cluster"), [("apache", _apache), ("kafscale", _kafscale)])
def test_records_configs_and_groups_are_mirrored_with_the_defaults_and_acls_are_refused(
    alias: str,
    cluster: Callable[[Path], AbstractContextManager[str]],
    bootstrap: str,
    client: ConfluentClient,
    tmp_path: Path,
) -> None:
    orders, products, group = f"{alias}.orders", f"{alias}.products", f"{alias}-readers"
    numbers = [b"%d" % number for number in range(10)]
    settings, log = tmp_path / "mm2.properties", tmp_path / "mm2.log"
    with cluster(tmp_path / "source") as source:
        mirrored = ConfluentClient(source)
        mirrored.create_topic("orders", partitions=2, configs={"retention.ms": "12345678"})
        mirrored.create_topic("products", configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"})
        mirrored.produce("orders", [Message(number) for number in numbers])
        mirrored.produce("products", [Message(b"1", key=b"apple"), Message(None, key=b"pear")])
        assert _read_as(group, source, "orders", 10) == numbers
        if cluster is _apache:
            _allow(source, "ann", "orders")
        text = SETTINGS.format(alias=alias, source=source, target=bootstrap)
        settings.write_text(text + ONE_REPLICA if cluster is _apache else text)
        command = java("org.apache.kafka.connect.mirror.MirrorMaker", str(settings), heap="512m", options=SHORT_LIVED)
        with ServerProcess(command, log=log) as process:
            try:
                until(lambda: {orders, products, f"{alias}.heartbeats"} <= client.topics(), process.tail)
                assert [one.value for one in client.consume(orders, count=10)] == numbers
                found = client.consume(products, count=2)
                assert [(one.key, one.value) for one in found] == [(b"apple", b"1"), (b"pear", None)]
                until(lambda: committed(bootstrap, group).get(orders) == 10, process.tail)
                if cluster is _apache:
                    until(lambda: REFUSED_ACL.search(log.read_text()) is not None, process.tail)
                mirrored.produce("orders", [Message(b"later")])
                # The group continues on the target where it was on the source.
                assert _read_as(group, bootstrap, orders, 1) == [b"later"]
                until(lambda: policies(bootstrap, products) == {products: "compact"}, process.tail)
            finally:
                print(process.tail())
    assert policies(bootstrap, "heartbeats", f"mm2-configs.{alias}", f"mm2-offsets.{alias}", f"mm2-status.{alias}") == {
        "heartbeats": "compact",
        f"mm2-configs.{alias}.internal": "compact",
        f"mm2-offsets.{alias}.internal": "compact",
        f"mm2-status.{alias}.internal": "compact",
    }
    assert policies(bootstrap, f"{alias}.") == {
        f"{alias}.checkpoints.internal": "compact",
        f"{alias}.heartbeats": "compact",
        orders: "",
        products: "compact",
    }
    assert client.configs(orders)["retention.ms"] == "12345678"
