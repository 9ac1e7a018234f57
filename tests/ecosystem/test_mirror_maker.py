"""MirrorMaker 2 from Apache Kafka into KafScale, where it keeps what it knows in compacted topics."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from tests.ecosystem.programs import PATIENCE, committed, policies, until
from tests.servers.apache_kafka import SHORT_LIVED, apache_kafka, java
from tests.servers.process import ServerProcess
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message

# Beside addresses: one broker has one replica, and what is looked at every minute or ten is looked at more often.
SETTINGS = """\
clusters=old, new
old.bootstrap.servers={source}
new.bootstrap.servers={target}
old->new.enabled=true
old->new.topics=orders, products
old->new.offset-syncs.topic.replication.factor=1
old.config.storage.replication.factor=1
old.offset.storage.replication.factor=1
old.status.storage.replication.factor=1
new->old.heartbeats.topic.replication.factor=1
old->new.sync.group.offsets.enabled=true
old->new.emit.checkpoints.interval.seconds=1
old->new.sync.group.offsets.interval.seconds=1
old->new.refresh.topics.interval.seconds=2
old->new.refresh.groups.interval.seconds=2
old->new.sync.topic.configs.interval.seconds=2
old->new.sync.topic.acls.interval.seconds=2
old->new.offset.lag.max=0
"""

REFUSED_ACL = re.compile(
    r"Could not sync ACL of topic old\.orders\..*\n"
    r"org\.apache\.kafka\.common\.errors\.SecurityDisabledException: No Authorizer is configured"
)

# Without an authorizer there are no ACLs that MirrorMaker could bring over.
AUTHORIZER = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
    "allow.everyone.if.no.acl.found=true",
)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[str]:
    with apache_kafka(tmp_path / "kafka", heap="512m", properties=AUTHORIZER) as kafka:
        yield kafka.bootstrap


def _allow(bootstrap: str, user: str, topic: str) -> None:
    """The user may read the topic."""
    topics = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
    acl = AclBinding(*topics, f"User:{user}", "*", AclOperation.READ, AclPermissionType.ALLOW)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_acls([acl])[acl].result(PATIENCE)


def _read_as(group: str, bootstrap: str, topic: str, count: int) -> None:
    """A group that has read and committed so many records, and has ended."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert len(consumer.consume(count, timeout=PATIENCE)) == count
    consumer.close()


def test_records_configs_and_groups_come_over_with_the_defaults_and_acls_are_refused(
    bootstrap: str, client: ConfluentClient, source: str, tmp_path: Path
) -> None:
    old = ConfluentClient(source)
    old.create_topic("orders", partitions=2, configs={"retention.ms": "12345678"})
    old.create_topic("products", configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"})
    old.produce("orders", [Message(b"%d" % number) for number in range(10)])
    old.produce("products", [Message(b"1", key=b"apple"), Message(None, key=b"pear")])
    _read_as("readers", source, "orders", 10)
    _allow(source, "ann", "orders")
    settings = tmp_path / "mm2.properties"
    settings.write_text(SETTINGS.format(source=source, target=bootstrap))
    command = java("org.apache.kafka.connect.mirror.MirrorMaker", str(settings), heap="512m", options=SHORT_LIVED)
    log = tmp_path / "mm2.log"
    with ServerProcess(command, log=log) as process:
        try:
            until(lambda: {"old.orders", "old.products", "old.heartbeats"} <= client.topics(), process.tail)
            assert [one.value for one in client.consume("old.orders", count=10)] == [b"%d" % n for n in range(10)]
            products = client.consume("old.products", count=2)
            assert [(one.key, one.value) for one in products] == [(b"apple", b"1"), (b"pear", None)]
            until(lambda: committed(bootstrap, "readers").get("old.orders") == 10, process.tail)
            until(lambda: REFUSED_ACL.search(log.read_text()) is not None, process.tail)
            old.produce("orders", [Message(b"later")])
            assert client.consume("old.orders", count=1, offset=10)[0].value == b"later"
            until(lambda: policies(bootstrap, "old.products") == {"old.products": "compact"}, process.tail)
        finally:
            print(process.tail())
    assert policies(bootstrap, "mm2-", "heartbeats", "old.") == {
        "heartbeats": "compact",
        "mm2-configs.old.internal": "compact",
        "mm2-offsets.old.internal": "compact",
        "mm2-status.old.internal": "compact",
        "old.checkpoints.internal": "compact",
        "old.heartbeats": "compact",
        "old.orders": "",
        "old.products": "compact",
    }
