"""Kafka Streams: stores are restored from their changelogs, kept by standby replicas, and reset by Kafka's tool."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ecosystem.conftest import Words
from tests.ecosystem.programs import Answering, Counting, committed, compacted, policies, until
from tests.servers.apache_kafka import SHORT_LIVED, java
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message, ProduceOptions
from tests.support.kafka_tools import kafka_tools


@pytest.fixture
def start(bootstrap: str, words: Words, name: str, tmp_path: Path) -> Callable[[], Counting]:
    """Starts the application, each time with an empty state directory."""
    runs = iter(range(9))

    def start() -> Counting:
        arguments = (bootstrap, name, str(tmp_path / f"state-{next(runs)}"), words.topic)
        return Counting(java("kafscale.streams.WordCounts", *arguments, options=SHORT_LIVED), tmp_path / "streams.log")

    return start


def test_a_killed_application_restores_its_stores_and_counts_everything_anew_after_a_reset(
    start: Callable[[], Counting], bootstrap: str, words: Words, name: str
) -> None:
    with start() as first:
        first.ready()
        words.write("a", "b", "a")
        first.counted("a", 2, 2)
        first.counted("b", 1, 1)
        for count in range(3, 11):
            words.write("a")
            until(lambda count=count: first.counts("a")[0] == count, lambda: first.counts("a"))  # type: ignore[misc]
            # Else the next one counts them once more: at least once is what Streams promises.
            read = {words.topic: count + 1, f"{name}-by-word-repartition": count + 1}
            until(lambda read=read: committed(bootstrap, name) == read, lambda: committed(bootstrap, name))  # type: ignore[misc]
    compacted(bootstrap, f"{name}-counts-changelog", f"{name}-minutes-changelog")
    with start() as second:
        second.ready()
        second.counted("b", 1, 1)
        words.write("a")
        until(lambda: second.counts("a")[0] == 11, lambda: second.counts("a"))
        # In the minute of the others, or in one of its own.
        assert sum(second.counts("a")[1:]) == 11
    assert policies(bootstrap, name) == {
        f"{name}-counts-changelog": "compact",
        f"{name}-minutes-changelog": "compact,delete",
        f"{name}-by-word-repartition": "delete",
        f"{name}-words": "",
    }
    with kafka_tools(bootstrap) as tools:
        # Without --force, the tool refuses while the group has the member that was killed.
        reset = ("--application-id", name, "--input-topics", words.topic, "--force")
        print(tools.run("kafka-streams-application-reset", *reset).out)
    assert policies(bootstrap, name) == {f"{name}-words": ""}
    with start() as third:
        third.ready()
        read = {words.topic: 12, f"{name}-by-word-repartition": 12}
        until(lambda: committed(bootstrap, name) == read, lambda: committed(bootstrap, name))
        # More if a changelog were left, and less if committed offsets were.
        assert third.counts("a")[0] == 11
        third.counted("b", 1, 1)


def test_a_standby_replica_takes_over_a_windowed_join_and_loses_no_result(
    bootstrap: str, client: ConfluentClient, name: str, tmp_path: Path
) -> None:
    orders, payments, paid = topics = [f"{name}-{what}" for what in ("orders", "payments", "paid")]
    for topic in topics:
        client.create_topic(topic, partitions=2)

    def start(instance: str) -> Answering:
        arguments = (bootstrap, name, str(tmp_path / instance), *topics)
        return Answering(java("kafscale.streams.Joins", *arguments, options=SHORT_LIVED), tmp_path / f"{instance}.log")

    def write(topic: str, numbers: range) -> None:
        for number in numbers:
            message = Message(f"{topic} {number}".encode(), key=b"%d" % number)
            client.produce(topic, [message], ProduceOptions(partition=number % 2))

    def joined() -> set[str]:
        return {(one.value or b"").decode() for each in range(2) for one in client.consume_all(paid, partition=each)}

    def expected(numbers: range) -> set[str]:
        return {f"{orders} {number} {payments} {number}" for number in numbers}

    with start("first") as first, start("second") as second:
        for each in (first, second):
            each.ready()
        for each in (first, second):
            # One active and one standby task, nothing lacking, nothing restored.
            until(lambda each=each: each.ask() == [1, 1, 0, 0], each.ask)  # type: ignore[misc]
        write(orders, range(20))
        write(payments, range(10))
        until(lambda: joined() == expected(range(10)), joined)
        # What is not committed when the instance is killed, the other one reads again.
        until(lambda: committed(bootstrap, name) == {orders: 20, payments: 10}, lambda: committed(bootstrap, name))
        for each in (first, second):
            until(lambda each=each: each.ask() == [1, 1, 0, 0], each.ask)  # type: ignore[misc]
        first.kill()
        # The payments of the killed instance's partition meet orders that only its standby has in a store.
        write(payments, range(10, 20))
        until(lambda: joined() == expected(range(20)), joined)
        assert second.ask() == [2, 0, 0, 0]
    stores = ("join-this-join-store", "join-other-join-store")
    assert policies(bootstrap, f"{name}-join") == {f"{name}-{store}-changelog": "delete" for store in stores}
