"""Consumer groups of clients with their defaults: members share a topic, one leaves, offsets are kept."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import MatrixClient
from tests.support.clients.kafka_python import KafkaPythonClient
from tests.support.members import PARTITIONS, PATIENCE, joined, read, until

RECORDS = 40
KINDS: dict[str, type[MatrixClient]] = {"confluent": ConfluentClient, "kafka-python": KafkaPythonClient}


@pytest.fixture
def shared(bootstrap: str, topic: str) -> str:
    """A topic with several partitions and records in each."""
    name = f"{topic}-shared"
    ConfluentClient(bootstrap).create_topic(name, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(name, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return name


@pytest.fixture(params=KINDS)
def driver(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[MatrixClient]:
    driver = KINDS[request.param](bootstrap)
    yield driver
    driver.close()


def test_members_share_partitions_and_a_later_member_continues_at_their_offsets(
    driver: MatrixClient, shared: str
) -> None:
    group = f"{shared}-{driver.name}"
    everything = set(range(PARTITIONS))
    with joined(driver.member(shared, group)) as first:
        got = until(lambda _: first.assigned() == everything, first)
        with joined(driver.member(shared, group)) as second:

            def divided() -> bool:
                parts = first.assigned(), second.assigned()
                return all(len(part) == PARTITIONS // 2 for part in parts) and set.union(*parts) == everything

            got += until(lambda _: divided(), first, second)
        got += until(lambda _: first.assigned() == everything, first)
        deadline = time.monotonic() + PATIENCE
        while len(set(got)) < RECORDS:
            assert time.monotonic() < deadline
            got += first.poll(0.2)
    # A member commits when it leaves, so no record is read twice.
    with joined(driver.member(shared, group)) as later:
        assert until(lambda _: later.assigned() == everything, later) == []
        assert later.poll(2.0) == []


def test_a_group_is_described_and_its_offsets_are_listed_and_deleted(bootstrap: str, shared: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    group = f"{shared}-described"
    with joined(ConfluentClient(bootstrap).member(shared, group)) as member:
        read(RECORDS, member)
        described = admin.describe_consumer_groups([group])[group].result(30)
        assert described.state.name == "STABLE"
        (only,) = described.members
        assert {one.partition for one in only.assignment.topic_partitions} == set(range(PARTITIONS))
        assert group in {one.group_id for one in admin.list_consumer_groups().result(30).valid}
    asked = ConsumerGroupTopicPartitions(group)
    listed = admin.list_consumer_group_offsets([asked])[group].result(30)
    assert [one.offset for one in listed.topic_partitions] == [RECORDS // PARTITIONS] * PARTITIONS
    admin.delete_consumer_groups([group])[group].result(30)
    assert group not in {one.group_id for one in admin.list_consumer_groups().result(30).valid}
