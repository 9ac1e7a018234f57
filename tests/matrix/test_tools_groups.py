"""kafka-consumer-groups reports the true state of groups, and its changes take effect."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.clients.confluent import ConfluentClient
from tests.support.kafka_tools import KafkaTools, Row

TOOL = "kafka-consumer-groups"
TOPIC = "tools-groups"
PARTITIONS = 3
ENDS = {0: 5, 1: 3, 2: 0}
MINUTES = 10
"""Time between two records of a partition."""
PATIENCE = 60.0
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def start(bootstrap: str) -> int:
    """The time of the first records of the topic, an hour ago, in milliseconds. Later records are ten minutes apart."""
    ConfluentClient(bootstrap).create_topic(TOPIC, partitions=PARTITIONS)
    first = int(1000 * (time.time() - 3600))
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, count in ENDS.items():
        for number in range(count):
            producer.produce(TOPIC, b"%d" % number, partition=partition, timestamp=first + number * MINUTES * 60_000)
    assert producer.flush(30) == 0
    return first


def _commit(bootstrap: str, group: str, offsets: Mapping[int, int], topic: str = TOPIC) -> None:
    """Commit as a simple consumer, so that the group has offsets and no members."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, *item) for item in offsets.items()], asynchronous=False)
    consumer.close()


def _committed(bootstrap: str, group: str, topic: str = TOPIC) -> dict[int, int]:
    """Return the committed offsets as librdkafka reports them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=30)
    consumer.close()
    return {one.partition: one.offset for one in found if one.offset >= 0}


@pytest.fixture
def group(bootstrap: str, start: int) -> str:
    """A group without members and with committed offsets in two partitions."""
    name = f"tools-group-{next(_NUMBERS)}"
    _commit(bootstrap, name, {0: 2, 1: 1})
    return name


@contextmanager
def _members(bootstrap: str, group: str, count: int) -> Iterator[list[Consumer]]:
    """Members with client ids ``reader-0`` and so on that have read and committed everything and stay."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumers = [Consumer({**settings, "client.id": f"reader-{number}"}) for number in range(count)]
    ended = threading.Event()
    try:
        for consumer in consumers:
            consumer.subscribe([TOPIC])
        deadline = time.monotonic() + PATIENCE
        got = 0
        while got < sum(ENDS.values()) or not all(consumer.assignment() for consumer in consumers):
            assert time.monotonic() < deadline, got
            got += sum(consumer.poll(0.1) is not None for consumer in consumers)
        for consumer in consumers:
            # The current owner of a partition may not be the one that read it.
            read = [TopicPartition(TOPIC, one.partition, ENDS[one.partition]) for one in consumer.assignment()]
            if any(one.offset for one in read):
                consumer.commit(offsets=[one for one in read if one.offset], asynchronous=False)

        def stay() -> None:
            while not ended.is_set():
                for consumer in consumers:
                    consumer.poll(0.1)

        staying = threading.Thread(target=stay)
        staying.start()
        try:
            yield consumers
        finally:
            ended.set()
            staying.join()
    finally:
        for consumer in consumers:
            consumer.close()


def _by_partition(rows: list[Row], column: str) -> dict[int, str]:
    return {int(row["PARTITION"]): row[column] for row in rows}


def test_a_live_group_is_described_with_offsets_members_and_state(
    tools: KafkaTools, bootstrap: str, start: int
) -> None:
    group = "tools-live"
    with _members(bootstrap, group, 2) as consumers:
        readers = {one.partition: f"reader-{n}" for n, own in enumerate(consumers) for one in own.assignment()}
        assert set(readers) == set(ENDS)
        ids = {f"reader-{number}": consumer.memberid() for number, consumer in enumerate(consumers)}

        rows = tools.run(TOOL, "--describe", "--group", group).rows()
        assert rows == tools.run(TOOL, "--describe", "--group", group, "--offsets").rows()
        assert {(row["GROUP"], row["TOPIC"], row["HOST"]) for row in rows} == {(group, TOPIC, "/127.0.0.1")}
        assert _by_partition(rows, "CLIENT-ID") == readers
        assert _by_partition(rows, "CONSUMER-ID") == {number: ids[reader] for number, reader in readers.items()}
        assert _by_partition(rows, "LOG-END-OFFSET") == {number: str(end) for number, end in ENDS.items()}
        # The empty partition has no records and therefore no committed offset.
        assert _by_partition(rows, "CURRENT-OFFSET") == {0: "5", 1: "3", 2: "-"}
        assert _by_partition(rows, "LAG") == {0: "0", 1: "0", 2: "-"}

        members = tools.run(TOOL, "--describe", "--group", group, "--members", "--verbose").rows()
        assert {row["CLIENT-ID"]: row["CONSUMER-ID"] for row in members} == ids
        for row in members:
            own = sorted(number for number, reader in readers.items() if reader == row["CLIENT-ID"])
            assert row["#PARTITIONS"] == str(len(own))
            assert row["CURRENT-ASSIGNMENT"] == f"{TOPIC}:{','.join(map(str, own))}"

        (state,) = tools.run(TOOL, "--describe", "--group", group, "--state").rows()
        assert (state["ASSIGNMENT-STRATEGY"], state["STATE"], state["#MEMBERS"]) == ("range", "Stable", "2")
        assert state["COORDINATOR"] in bootstrap.split(",")
        assert {"GROUP": group, "STATE": "Stable"} in tools.run(TOOL, "--list", "--state").rows()
    _until(lambda: tools.run(TOOL, "--describe", "--group", group, "--state").rows()[0]["STATE"] == "Empty")


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_changes_of_a_live_group_are_refused_with_kafkas_messages(
    tools: KafkaTools, bootstrap: str, start: int
) -> None:
    group, other = "tools-busy", "tools-groups-other"
    ConfluentClient(bootstrap).create_topic(other)
    _commit(bootstrap, group, {0: 0}, other)
    with _members(bootstrap, group, 1):
        deleted = tools.run(TOOL, "--delete", "--group", group).out
        why = "org.apache.kafka.common.errors.GroupNotEmptyException: The group is not empty."
        assert f"* Group '{group}' could not be deleted due to: {why}" in deleted

        for mode in ("--dry-run", "--execute"):
            reset = tools.run(TOOL, "--group", group, "--reset-offsets", "--to-earliest", "--topic", TOPIC, mode)
            why = f"Assignments can only be reset if the group '{group}' is inactive, but the current state is Stable."
            assert f"Error: {why}" in reset.out
            assert reset.rows() == []

        offsets = tools.run(TOOL, "--delete-offsets", "--group", group, "--topic", TOPIC)
        statuses = [row["STATUS"] for row in offsets.rows()]
        why = "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it."
        assert (
            statuses == [f"Error: org.apache.kafka.common.errors.GroupSubscribedToTopicException: {why}"] * PARTITIONS
        )
        # The offsets of a topic without a subscribed member can be deleted.
        (row,) = tools.run(TOOL, "--delete-offsets", "--group", group, "--topic", other).rows()
        assert (row["PARTITION"], row["STATUS"]) == ("0", "Successful")
        assert _committed(bootstrap, group) == {0: 5, 1: 3}
        assert _committed(bootstrap, group, other) == {}


def test_an_unknown_group_is_reported_as_not_found(tools: KafkaTools, group: str) -> None:
    unknown = f"{group}-never-made"
    why = f"org.apache.kafka.common.errors.GroupIdNotFoundException: Group {unknown} not found."
    for what in ("--offsets", "--members", "--state"):
        printed = tools.run(TOOL, "--describe", "--group", unknown, what).out
        assert printed == f"\nError: Executing consumer group command failed due to {why}\n"
    deleted = tools.run(TOOL, "--delete", "--group", unknown).out
    why = "org.apache.kafka.common.errors.GroupIdNotFoundException: The group id does not exist."
    assert f"* Group '{unknown}' could not be deleted due to: {why}" in deleted


def test_a_group_without_members_is_listed_described_and_deleted(tools: KafkaTools, bootstrap: str, group: str) -> None:
    assert {"GROUP": group, "STATE": "Empty"} in tools.run(TOOL, "--list", "--state").rows()
    assert group in [row["GROUP"] for row in tools.run(TOOL, "--list", "--state", "empty").rows()]
    assert group not in [row["GROUP"] for row in tools.run(TOOL, "--list", "--state", "stable,dead").rows()]
    assert {"GROUP": group, "TYPE": "Classic"} in tools.run(TOOL, "--list", "--type").rows()
    assert group in tools.run(TOOL, "--list").out.splitlines()

    described = tools.run(TOOL, "--describe", "--group", group)
    rows = described.rows()
    assert f"Consumer group '{group}' has no active members." in described.err
    assert _by_partition(rows, "CURRENT-OFFSET") == {0: "2", 1: "1"}
    assert _by_partition(rows, "LAG") == {0: "3", 1: "2"}
    assert {row["CONSUMER-ID"] for row in rows} == {"-"}
    assert tools.run(TOOL, "--describe", "--group", group, "--members").rows() == []
    (state,) = tools.run(TOOL, "--describe", "--group", group, "--state").rows()
    assert (state["STATE"], state["#MEMBERS"]) == ("Empty", "0")
    assert all(row in tools.run(TOOL, "--describe", "--all-groups", "--offsets").rows() for row in rows)

    deleted = tools.run(TOOL, "--delete", "--group", group).out
    assert deleted == f"Deletion of requested consumer groups ('{group}') was successful.\n"
    assert group not in tools.run(TOOL, "--list").out.splitlines()
    assert _committed(bootstrap, group) == {}


def test_offsets_are_deleted(tools: KafkaTools, bootstrap: str, group: str) -> None:
    (row,) = tools.run(TOOL, "--delete-offsets", "--group", group, "--topic", f"{TOPIC}:1").rows()
    assert (row["PARTITION"], row["STATUS"]) == ("1", "Successful")
    assert _committed(bootstrap, group) == {0: 2}
    (row,) = tools.run(TOOL, "--delete-offsets", "--group", group, "--topic", "tools-never-made").rows()
    assert "UnknownTopicOrPartitionException" in row["STATUS"]
    assert _committed(bootstrap, group) == {0: 2}


EVERYTHING = ("--topic", TOPIC)
COMMITTED = ("--topic", f"{TOPIC}:0,1")


@pytest.mark.parametrize(
    ("way", "of", "expected"),
    [
        (("--to-earliest",), EVERYTHING, {0: 0, 1: 0, 2: 0}),
        (("--to-latest",), EVERYTHING, ENDS),
        (("--to-offset", "4"), EVERYTHING, {0: 4, 1: 3, 2: 0}),
        (("--to-current",), EVERYTHING, {0: 2, 1: 1, 2: 0}),
        (("--to-current",), ("--all-topics",), {0: 2, 1: 1}),
        (("--shift-by", "2"), COMMITTED, {0: 4, 1: 3}),
        (("--shift-by", "-2"), COMMITTED, {0: 0, 1: 0}),
        (("--by-duration", "PT45M"), COMMITTED, {0: 2, 1: 2}),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, tuple) else "",
)
def test_offsets_are_reset(
    tools: KafkaTools, bootstrap: str, group: str, way: tuple[str, ...], of: tuple[str, ...], expected: dict[int, int]
) -> None:
    _reset_both_ways(tools, bootstrap, group, (*way, *of), expected)


def test_offsets_are_reset_to_a_time(tools: KafkaTools, bootstrap: str, group: str, start: int) -> None:
    between = datetime.fromtimestamp(start / 1000 + 15 * 60, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
    # Without a record at or after the time, the offset is the end.
    _reset_both_ways(tools, bootstrap, group, ("--to-datetime", between, *EVERYTHING), {0: 2, 1: 2, 2: 0})
    later = datetime.fromtimestamp(start / 1000 + 25 * 60, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
    _reset_both_ways(tools, bootstrap, group, ("--to-datetime", later, *EVERYTHING), {0: 3, 1: 3, 2: 0})


def test_offsets_are_reset_from_an_exported_file(tools: KafkaTools, bootstrap: str, group: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    exported = tools.run(TOOL, "--group", group, "--reset-offsets", "--to-latest", *COMMITTED, "--export", "--dry-run")
    plan.write_text(exported.out)
    assert sorted(exported.out.split()) == [f"{TOPIC},0,5", f"{TOPIC},1,3"]
    assert _committed(bootstrap, group) == {0: 2, 1: 1}
    _reset_both_ways(tools, bootstrap, group, ("--from-file", str(plan)), {0: 5, 1: 3})


def test_resetting_offsets_creates_a_group_that_starts_there(tools: KafkaTools, bootstrap: str, start: int) -> None:
    group = "tools-begun-by-reset"
    tools.run(TOOL, "--group", group, "--reset-offsets", "--to-offset", 2, "--topic", TOPIC, "--execute")
    assert _committed(bootstrap, group) == {0: 2, 1: 2, 2: 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "error"})
    consumer.subscribe([TOPIC])
    got = consumer.consume(4, PATIENCE)
    consumer.close()
    assert sorted((one.partition(), one.offset()) for one in got) == [(0, 2), (0, 3), (0, 4), (1, 2)]


def _reset_both_ways(
    tools: KafkaTools, bootstrap: str, group: str, how: tuple[str, ...], expected: dict[int, int]
) -> None:
    """Reset as a dry run, which changes nothing, then for real."""
    before = _committed(bootstrap, group)
    asked = ("--group", group, "--reset-offsets", *how)
    shown = {number: str(offset) for number, offset in expected.items()}
    assert _by_partition(tools.run(TOOL, *asked, "--dry-run").rows(), "NEW-OFFSET") == shown
    assert _committed(bootstrap, group) == before
    assert _by_partition(tools.run(TOOL, *asked, "--execute").rows(), "NEW-OFFSET") == shown
    assert _committed(bootstrap, group) == {**before, **expected}
