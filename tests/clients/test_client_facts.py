"""Facts that clients with their defaults depend on. Other facts are tested with the gateway."""

import subprocess
from collections.abc import Mapping

import kafka
import pytest

from tests.servers.apache_kafka import java
from tests.servers.java import classpath
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import TIMEOUT_SECONDS, Client, Message


def test_the_java_client_produces_with_its_defaults(bootstrap: str, topic: str) -> None:
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath("client"), "kafscale.client.AckedProducer"]
    with subprocess.Popen(
        [*command, bootstrap, topic, "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as producer:
        assert producer.stdout is not None
        assert producer.stdin is not None
        assert producer.stdout.readline() == "0 0\n"
        producer.stdin.close()
        producer.stdout.read()
        assert producer.wait(TIMEOUT_SECONDS) == 0
    assert ConfluentClient(bootstrap).consume(topic, count=1)[0].value == b"0"


def test_kafka_python_produces_with_its_defaults(bootstrap: str, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    try:
        assert producer.config["enable_idempotence"] is True
        assert producer.send(topic, b"v", partition=0).get(TIMEOUT_SECONDS).offset == 0
    finally:
        producer.close()


@pytest.mark.parametrize("name", ["confluent-kafka", "kcat"])
def test_only_batches_have_headers_and_librdkafka_sends_batches(
    clients: Mapping[str, Client], topic: str, name: str
) -> None:
    clients[name].produce(topic, [Message(b"v", headers=(("name", b"value"),))])
    (received,) = clients["java"].consume(topic, count=1)
    assert received.headers == (("name", b"value"),)


def test_the_tools_of_kafka_4_describe_the_cluster_and_alter_configs_incrementally(
    store: str, bootstrap: str, topic: str
) -> None:
    if store == "s3":
        pytest.skip("a JVM is slow to start, and no store is asked: the same as with a local directory")
    asked = java("org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", bootstrap)
    done = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("Cluster ID: ")
    changes = ("--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "retention.ms=60000")
    change = java("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *changes)
    done = subprocess.run(change, check=True, capture_output=True, text=True, timeout=120)
    assert f"Completed updating config for topic {topic}." in done.stdout
