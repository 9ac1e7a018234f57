"""Every client's defaults without groups: producing, offsets by time, and admin requests."""

import time

import pytest

from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import MatrixClient, Message, ProduceOptions
from tests.support.members import EACH, PARTITIONS, eventually, fill, joined, read, write
from tests.support.wire import gateways_partitions, producer_id


def test_produced_records_are_in_the_log_once_and_in_order(
    driver: MatrixClient, judge: ConfluentClient, bootstrap: str, topic: str
) -> None:
    fill(driver, topic)
    free = [f"free:{number}" for number in range(EACH)]
    write(driver, topic, free)
    with joined(judge.member(topic, f"{topic}-judge")) as reader:
        got = sorted(read((PARTITIONS + 1) * EACH, reader))
    for partition in range(PARTITIONS):
        here = [record.value for record in got if record.partition == partition]
        assert here[:EACH] == [f"{partition}:{number}" for number in range(EACH)]
        assert (producer_id(bootstrap, topic, partition) >= 0) == driver.idempotent
    assert sorted(record.value for record in got if record.value.startswith("free")) == free


@pytest.mark.uses("offset_for_time")
def test_offsets_are_found_by_time(driver: MatrixClient, judge: ConfluentClient, topic: str) -> None:
    begin = int(time.time() * 1000) - 1_000_000
    for partition in (0, 1):
        times = [begin + 1000 * (number + partition) for number in range(EACH)]
        judge.produce(topic, [Message(b"", timestamp=each) for each in times], ProduceOptions(partition=partition))
    assert [driver.offset_for_time(topic, begin, partition=partition) for partition in (0, 1)] == [0, 0]
    assert [driver.offset_for_time(topic, begin + 4500, partition=partition) for partition in (0, 1)] == [5, 4]
    assert driver.offset_for_time(topic, begin + 100_000) in (None, EACH)


def test_topics_are_listed_and_described(driver: MatrixClient, topic: str) -> None:
    assert topic in driver.topics()
    assert driver.partitions(topic) == PARTITIONS


@pytest.mark.uses("create_topic", "create_partitions", "delete_topic")
def test_topics_are_created_extended_and_deleted(
    driver: MatrixClient, judge: ConfluentClient, bootstrap: str, name: str
) -> None:
    driver.create_topic(name, partitions=2, configs={"retention.ms": "60000"})
    eventually(lambda: gateways_partitions(bootstrap, name) == {2})
    assert judge.partitions(name) == driver.partitions(name) == 2
    assert judge.configs(name)["retention.ms"] == "60000"
    driver.create_partitions(name, 3)
    eventually(lambda: gateways_partitions(bootstrap, name) == {3})
    assert judge.partitions(name) == 3
    write(driver, name, ["in the new one"], 2)
    driver.delete_topic(name)
    eventually(lambda: gateways_partitions(bootstrap, name) == {0})
    assert name not in judge.topics() | driver.topics()


@pytest.mark.uses("configs", "alter_config")
def test_configs_are_described_and_altered(driver: MatrixClient, judge: ConfluentClient, topic: str) -> None:
    configs = driver.configs(topic)
    assert configs["cleanup.policy"] == "delete"
    assert configs["max.message.bytes"] == "1048588"
    driver.alter_config(topic, "retention.ms", "3600000")
    eventually(lambda: driver.configs(topic)["retention.ms"] == judge.configs(topic)["retention.ms"] == "3600000")


@pytest.mark.uses("groups", "describe_group", "committed")
def test_groups_are_listed_and_described(driver: MatrixClient, judge: ConfluentClient, topic: str) -> None:
    group = f"{topic}-group"
    fill(judge, topic)
    with joined(driver.member(topic, group, quick=True)) as member:
        read(PARTITIONS * EACH, member)
        assert group in driver.groups()
        assert driver.describe_group(group) == ("stable", 1)
        member.poll(0.1)
    assert driver.describe_group(group) == ("empty", 0)
    assert driver.committed(group, topic) == dict.fromkeys(range(PARTITIONS), EACH)


@pytest.mark.uses("delete_group")
def test_a_group_is_deleted(driver: MatrixClient, judge: ConfluentClient, topic: str) -> None:
    group = f"{topic}-group"
    fill(judge, topic)
    with joined(driver.member(topic, group, quick=True)) as member:
        read(PARTITIONS * EACH, member)
        with pytest.raises(Exception, match=r"(?i)non.?empty|is not empty"):
            driver.delete_group(group)
        member.poll(0.1)
    assert group in judge.groups()
    driver.delete_group(group)
    assert group not in judge.groups()
