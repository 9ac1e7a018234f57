"""Consumer groups of clients with their defaults: members share a topic, one leaves, offsets are kept."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from tests.clients.adapters.confluent import ConfluentClient

PARTITIONS = 4
RECORDS = 40
PATIENCE = 60.0


@dataclass(frozen=True)
class Member:
    """``poll`` waits so many seconds at most and gives what came; ``assigned``: the partitions that it has."""

    poll: Callable[[float], list[bytes]]
    assigned: Callable[[], set[int]]


@pytest.fixture
def shared(bootstrap: str, topic: str) -> str:
    """A topic with a few partitions, and records in each."""
    name = f"{topic}-shared"
    ConfluentClient(bootstrap).create_topic(name, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(name, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return name


@contextlib.contextmanager
def _confluent(bootstrap: str, topic: str, group: str) -> Iterator[Member]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])

    def poll(seconds: float) -> list[bytes]:
        message = consumer.poll(seconds)
        return [message.value() or b""] if message is not None and message.error() is None else []

    try:
        yield Member(poll, lambda: {one.partition for one in consumer.assignment()})
    finally:
        consumer.close()


@contextlib.contextmanager
def _kafka_python(bootstrap: str, topic: str, group: str) -> Iterator[Member]:
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")

    def poll(seconds: float) -> list[bytes]:
        found = consumer.poll(timeout_ms=int(1000 * seconds))
        return [record.value for records in found.values() for record in records]

    try:
        yield Member(poll, lambda: {one.partition for one in consumer.assignment()})
    finally:
        consumer.close()


MEMBERS = {"confluent": _confluent, "kafka-python": _kafka_python}


def _until(done: Callable[[], bool], *members: Member) -> list[bytes]:
    """Let the members poll in turn until it is done; what they got meanwhile."""
    got: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, f"{len(got)} records, {[member.assigned() for member in members]}"
        for member in members:
            got += member.poll(0.2)
    return got


@pytest.mark.parametrize("kind", MEMBERS)
def test_members_share_the_partitions_and_who_comes_later_goes_on_where_they_stopped(
    bootstrap: str, shared: str, kind: str
) -> None:
    member = MEMBERS[kind]
    group = f"{shared}-{kind}"
    everything = set(range(PARTITIONS))
    got: list[bytes] = []
    with member(bootstrap, shared, group) as first:
        got += _until(lambda: first.assigned() == everything, first)
        with member(bootstrap, shared, group) as second:

            def divided() -> bool:
                parts = first.assigned(), second.assigned()
                return all(len(part) == PARTITIONS // 2 for part in parts) and set.union(*parts) == everything

            got += _until(divided, first, second)
        got += _until(lambda: first.assigned() == everything, first)
        deadline = time.monotonic() + PATIENCE
        while len(set(got)) < RECORDS:
            assert time.monotonic() < deadline
            got += first.poll(0.2)
    # Leaving commits: nobody gets again what was read.
    with member(bootstrap, shared, group) as later:
        assert _until(lambda: later.assigned() == everything, later) == []
        assert later.poll(2.0) == []


def test_a_group_is_described_and_its_offsets_told_and_deleted(bootstrap: str, shared: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    group = f"{shared}-described"
    with _confluent(bootstrap, shared, group) as member:
        got = _until(lambda: len(member.assigned()) == PARTITIONS, member)
        while len(got) < RECORDS:
            got += member.poll(1.0)
        described = admin.describe_consumer_groups([group])[group].result(30)
        assert described.state.name == "STABLE"
        (only,) = described.members
        assert {one.partition for one in only.assignment.topic_partitions} == set(range(PARTITIONS))
        assert group in {one.group_id for one in admin.list_consumer_groups().result(30).valid}
    asked = ConsumerGroupTopicPartitions(group)
    told = admin.list_consumer_group_offsets([asked])[group].result(30)
    assert [one.offset for one in told.topic_partitions] == [RECORDS // PARTITIONS] * PARTITIONS
    admin.delete_consumer_groups([group])[group].result(30)
    assert group not in {one.group_id for one in admin.list_consumer_groups().result(30).valid}
