"""Kafka's console, performance and verifiable producers and consumers, with their defaults."""

import itertools
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.servers.apache_kafka import SHORT_LIVED, java
from tests.servers.process import ServerProcess
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message, ProduceOptions
from tests.support.kafka_tools import MAINS, SECONDS, KafkaTools

PARTITIONS = 2
_NUMBERS = itertools.count()
GROUPS = "kafka-consumer-groups"


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A new topic with two partitions."""
    name = f"tools-client-{next(_NUMBERS)}"
    ConfluentClient(bootstrap).create_topic(name, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    return name


def _ends(bootstrap: str, topic: str) -> list[int]:
    client = ConfluentClient(bootstrap)
    return [client.offsets(topic, partition=number)[1] for number in range(PARTITIONS)]


def _own_process(tool: str, *arguments: object) -> list[str]:
    """Return the command line of a tool that runs in its own process, so that its exit can be checked."""
    return java(MAINS[tool], *map(str, arguments), options=SHORT_LIVED)


def test_the_console_producer_writes_keys_and_headers(tools: KafkaTools, bootstrap: str, topic: str) -> None:
    lines = "a:1,b:2\tk1\tfirst\na:3\tk2\tsecond\na:4\tk1\tNULL\n"
    properties = [f"--property=parse.{part}=true" for part in ("key", "headers")]
    tools.run("kafka-console-producer", "--topic", topic, *properties, "--property", "null.marker=NULL", stdin=lines)
    client = ConfluentClient(bootstrap)
    ends = _ends(bootstrap, topic)
    got = [one for number, end in enumerate(ends) for one in client.consume(topic, count=end, partition=number)]
    assert sorted((one.key, one.value, one.headers) for one in got if one.key == b"k2") == [
        (b"k2", b"second", (("a", b"3"),)),
    ]
    # The same key goes to the same partition, in order.
    assert [(one.value, one.headers) for one in got if one.key == b"k1"] == [
        (b"first", (("a", b"1"), ("b", b"2"))),
        (None, (("a", b"4"),)),
    ]
    assert len(got) == 3


def test_the_console_consumer_prints_all_records(tools: KafkaTools, bootstrap: str, topic: str) -> None:
    client = ConfluentClient(bootstrap)
    stamp = 1_700_000_000_000
    client.produce(
        topic, [Message(b"one", key=b"k", headers=(("h", b"v"), ("e", b"")), timestamp=stamp), Message(b"two")]
    )
    client.produce(topic, [Message(b"three")], ProduceOptions(partition=1))
    shown = [f"--property=print.{part}=true" for part in ("key", "headers", "timestamp", "partition", "offset")]
    everything = ("--from-beginning", "--max-messages", 3, "--timeout-ms", 1000 * SECONDS)
    lines = tools.run("kafka-console-consumer", "--topic", topic, *everything, *shown).out.splitlines()
    assert f"CreateTime:{stamp}\tPartition:0\tOffset:0\th:v,e:\tk\tone" in lines
    assert [line.split("\t")[1:] for line in lines if "two" in line] == [
        ["Partition:0", "Offset:1", "NO_HEADERS", "null", "two"]
    ]
    assert sorted(line.split("\t")[-1] for line in lines) == ["one", "three", "two"]

    one = ("--topic", topic, "--max-messages", 1, "--timeout-ms", 1000 * SECONDS)
    placed = [((0, 1), "two"), ((1, 0), "three"), ((0, "earliest"), "one")]
    for (partition, offset), value in placed:
        place = ("--partition", partition, "--offset", offset)
        assert tools.run("kafka-console-consumer", *one, *place).out == f"{value}\n"


def test_the_console_consumer_continues_where_its_group_stopped(tools: KafkaTools, bootstrap: str, topic: str) -> None:
    group = f"{topic}-group"
    ConfluentClient(bootstrap).produce(topic, [Message(b"%d" % number) for number in range(10)])

    def read(count: int) -> list[str]:
        limits = ("--max-messages", count, "--timeout-ms", 1000 * SECONDS)
        asked = ("--topic", topic, "--group", group, "--from-beginning", *limits)
        return tools.run("kafka-console-consumer", *asked).out.splitlines()

    def committed() -> str:
        rows = tools.run(GROUPS, "--describe", "--group", group).rows()
        return next(row["CURRENT-OFFSET"] for row in rows if row["PARTITION"] == "0")

    # Records that were fetched after the last printed line are not committed.
    assert read(3) == ["0", "1", "2"]
    assert committed() == "3"
    assert read(7) == ["3", "4", "5", "6", "7", "8", "9"]
    assert committed() == "10"


def test_a_console_consumer_is_a_live_group_member_until_it_is_stopped(
    tools: KafkaTools, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    group = f"{topic}-live"
    asked = ("--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning")
    producer = Producer({"bootstrap.servers": bootstrap})

    def printed(value: str) -> Callable[[str], bool | None]:
        return lambda line: True if line == f"{value}\n" else None

    with ServerProcess(_own_process("kafka-console-consumer", *asked), log=tmp_path / "consumer.log") as consumer:
        for number in range(4):
            producer.produce(topic, b"line %d" % number, partition=number % PARTITIONS)
            assert producer.flush(SECONDS) == 0
            consumer.wait_for(printed(f"line {number}"), timeout=SECONDS)
        (member,) = tools.run(GROUPS, "--describe", "--group", group, "--members", "--verbose").rows()
        assert (member["CLIENT-ID"], member["#PARTITIONS"]) == ("console-consumer", "2")
        assert member["CURRENT-ASSIGNMENT"] == f"{topic}:0,1"
        (state,) = tools.run(GROUPS, "--describe", "--group", group, "--state").rows()
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
    rows = tools.run(GROUPS, "--describe", "--group", group).rows()
    assert [(row["CURRENT-OFFSET"], row["LAG"], row["CONSUMER-ID"]) for row in rows] == [("2", "0", "-")] * 2
    (state,) = tools.run(GROUPS, "--describe", "--group", group, "--state").rows()
    assert (state["STATE"], state["#MEMBERS"]) == ("Empty", "0")


def test_the_performance_tools_write_and_read_the_requested_number_of_records(
    tools: KafkaTools, bootstrap: str, topic: str
) -> None:
    count, size = 5000, 200
    settings = ("--topic", topic, "--num-records", count, "--record-size", size, "--throughput", -1)
    written = tools.run_plain(
        "kafka-producer-perf-test", *map(str, settings), "--producer-props", f"bootstrap.servers={bootstrap}"
    )
    assert f"{count} records sent" in written.out
    assert sum(_ends(bootstrap, topic)) == count
    read = tools.run("kafka-consumer-perf-test", "--topic", topic, "--messages", count, "--timeout", 1000 * SECONDS)
    names, counters = (re.split(r", (?!\d\d:)", line) for line in read.out.splitlines())
    row = dict(zip((name.strip() for name in names), counters, strict=False))
    assert row["data.consumed.in.nMsg"] == str(count)
    assert row["data.consumed.in.MB"] == f"{count * size / 2**20:.4f}"


def _events(tool: str, *arguments: object) -> list[dict[str, object]]:
    done = subprocess.run(
        _own_process(tool, *arguments), capture_output=True, text=True, timeout=2 * SECONDS, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_verifiable_producer_and_consumer_agree(tools: KafkaTools, bootstrap: str, topic: str) -> None:
    count, group = 200, f"{topic}-verified"
    common = ("--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", count)
    written = _events("kafka-verifiable-producer", *common)
    sent = [event for event in written if event["name"] == "producer_send_success"]
    assert {event["value"] for event in sent} == {str(number) for number in range(count)}
    for number, end in enumerate(_ends(bootstrap, topic)):
        assert [event["offset"] for event in sent if event["partition"] == number] == list(range(end))
    (summary,) = (event for event in written if event["name"] == "tool_data")
    assert (summary["sent"], summary["acked"]) == (count, count)

    read = _events("kafka-verifiable-consumer", *common, "--group-id", group, "--verbose")
    values = [str(event["value"]) for event in read if event["name"] == "record_data"]
    assert sorted(values, key=int) == [str(number) for number in range(count)]
    assert {event["success"] for event in read if event["name"] == "offsets_committed"} == {True}
    names = [event["name"] for event in read]
    assert names.index("partitions_assigned") < names.index("partitions_revoked") < names.index("shutdown_complete")
    rows = tools.run(GROUPS, "--describe", "--group", group).rows()
    assert sum(int(row["CURRENT-OFFSET"]) for row in rows) == count
    assert {row["LAG"] for row in rows} == {"0"}
