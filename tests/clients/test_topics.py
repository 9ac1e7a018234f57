"""Topics are created, refused and deleted as Kafka's clients expect."""

import contextlib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.conftest import MakeBroker
from tests.servers.apache_kafka import java
from tests.support.clients import ASKERS, MAKERS
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import (
    INVALID_CONFIG,
    INVALID_TOPIC,
    MESSAGE_TOO_LARGE,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    AskingClient,
    Client,
    ClientError,
    Message,
    TopicClient,
)


@pytest.mark.parametrize("maker", sorted(MAKERS))
def test_a_topic_that_is_deleted_and_created_again_starts_empty_at_offset_0(
    clients: Mapping[str, Client], makers: Mapping[str, TopicClient], topic: str, maker: str
) -> None:
    client = makers[maker]
    for name, writer in clients.items():
        writer.produce(topic, [Message(b"old, by " + name.encode())])
    assert client.offsets(topic) == (0, len(clients))
    client.delete_topic(topic)
    client.create_topic(topic)
    assert client.offsets(topic) == (0, 0)
    client.produce(topic, [Message(b"new")])
    for name, reader in clients.items():
        received = reader.consume(topic, count=1)
        assert [(record.offset, record.value) for record in received] == [(0, b"new")], name


@pytest.mark.parametrize("maker", sorted(MAKERS))
def test_an_existing_topic_is_not_created_again(makers: Mapping[str, TopicClient], topic: str, maker: str) -> None:
    with pytest.raises(ClientError) as refused:
        makers[maker].create_topic(topic)
    assert refused.value.code == TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("maker", sorted(MAKERS))
def test_deleting_an_unknown_topic_is_refused(makers: Mapping[str, TopicClient], topic: str, maker: str) -> None:
    with pytest.raises(ClientError) as refused:
        makers[maker].delete_topic(f"{topic}-never-made")
    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("maker", ["confluent-kafka", "java"])
def test_illegal_names_and_configs_are_refused(makers: Mapping[str, TopicClient], topic: str, maker: str) -> None:
    with pytest.raises(ClientError) as refused:
        makers[maker].create_topic("no spaces, please")
    assert refused.value.code == INVALID_TOPIC
    with pytest.raises(ClientError) as refused:
        makers[maker].create_topic(f"{topic}-odd", configs={"no.such.config": "1"})
    assert refused.value.code == INVALID_CONFIG


def test_a_batch_above_max_message_bytes_is_refused(
    makers: Mapping[str, TopicClient], client: Client, topic: str
) -> None:
    small = f"{topic}-small"
    makers["confluent-kafka"].create_topic(small, configs={"max.message.bytes": "10000"})
    client.produce(small, [Message(b"x" * 9000)])
    with pytest.raises(ClientError) as refused:
        client.produce(small, [Message(b"x" * 11000)])
    assert refused.value.code == MESSAGE_TOO_LARGE
    assert client.offsets(small) == (0, 1)


@pytest.mark.parametrize("asker", sorted(ASKERS))
def test_a_topic_is_auto_created_only_when_the_client_allows(
    askers: Mapping[str, AskingClient], bootstrap: str, topic: str, asker: str
) -> None:
    missing = f"{topic}-{asker}"
    with pytest.raises(ClientError) as refused:
        askers[asker].touch(missing, auto_create=False)
    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION
    assert missing not in ConfluentClient(bootstrap).topics()
    # Kafka may answer the request that creates the topic with "unknown".
    with contextlib.suppress(ClientError):
        askers[asker].touch(missing, auto_create=True)
    assert missing in ConfluentClient(bootstrap).topics()


def test_a_topic_is_auto_created_only_when_the_broker_allows(make_broker: MakeBroker) -> None:
    with make_broker(auto_create=False) as bootstrap:
        client = ASKERS["java"](bootstrap)
        try:
            with pytest.raises(ClientError) as refused:
                client.touch("missing", auto_create=True)
        finally:
            client.close()
        assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION
        assert ConfluentClient(bootstrap).topics() == set()


def test_producing_creates_a_missing_topic(clients: Mapping[str, Client], client: Client, topic: str) -> None:
    missing = f"{topic}-made-by-{client.name}"
    client.produce(missing, [Message(b"first")])
    assert client.consume(missing, count=1)[0].value == b"first"


def test_deleting_records_moves_the_log_start_and_keeps_later_records(bootstrap: str, topic: str) -> None:
    client = ConfluentClient(bootstrap)
    client.produce(topic, [Message(b"%d" % number) for number in range(10)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (done,) = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    assert done.result().low_watermark == 4
    assert client.offsets(topic) == (4, 10)
    assert [record.value for record in client.consume(topic, count=6)] == [b"%d" % number for number in range(4, 10)]


def test_kafkas_own_tool_deletes_records(bootstrap: str, topic: str, tmp_path: Path) -> None:
    client = ConfluentClient(bootstrap)
    client.produce(topic, [Message(b"%d" % number) for number in range(10)])
    asked = tmp_path / "offsets.json"
    asked.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1}))
    tool = java(
        "org.apache.kafka.tools.DeleteRecordsCommand",
        "--bootstrap-server",
        bootstrap,
        "--offset-json-file",
        str(asked),
    )
    done = subprocess.run(tool, check=True, capture_output=True, text=True, timeout=120)
    assert f"partition: {topic}-0\tlow_watermark: 4" in done.stdout
    assert client.offsets(topic) == (4, 10)
