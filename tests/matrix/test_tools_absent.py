"""Kafka's tools for features without support here: ACLs, replica moves, transactions and KRaft."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.clients.confluent import ConfluentClient
from tests.support.kafka_tools import SECONDS, KafkaTools


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> str:
    """A topic of two partitions whose min.insync.replicas is above the one replica that clients see."""
    ConfluentClient(bootstrap).create_topic("absent", partitions=2, configs={"min.insync.replicas": "2"})
    return "absent"


def _leaders(bootstrap: str, topic: str) -> dict[int, int]:
    shown = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=SECONDS).topics[topic]
    return {number: partition.leader for number, partition in shown.partitions.items()}


def test_kafka_topics_does_not_list_partitions_as_under_min_isr(tools: KafkaTools, topic: str) -> None:
    for which in ("--under-min-isr-partitions", "--under-replicated-partitions"):
        assert tools.run("kafka-topics", "--describe", which).out == ""
    shown = tools.run("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", topic).out
    assert "  min.insync.replicas=1 " in shown
    assert "DYNAMIC_TOPIC_CONFIG:min.insync.replicas=2" in shown


def test_kafka_acls_reports_that_there_is_no_authorizer(tools: KafkaTools, topic: str) -> None:
    reader = ("--allow-principal", "User:a", "--operation", "Read", "--topic", topic)
    for command in (("--list",), ("--add", *reader), ("--remove", "--force", *reader)):
        refused = tools.run("kafka-acls", *command, status=1)
        assert "SecurityDisabledException: No Authorizer is configured" in refused.out + refused.err


def test_kafka_reassign_partitions_accepts_the_current_replicas(
    tools: KafkaTools, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    leaders = _leaders(bootstrap, topic)
    brokers = set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=SECONDS).brokers)

    def moving(replicas: dict[int, int]) -> Path:
        partitions = [
            {"topic": topic, "partition": number, "replicas": [broker]} for number, broker in replicas.items()
        ]
        file = tmp_path / "moves.json"
        file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return file

    def run(action: str, file: Path, status: int = 0) -> str:
        return tools.run("kafka-reassign-partitions", action, "--reassignment-json-file", file, status=status).out

    assert tools.run("kafka-reassign-partitions", "--list").out == "No partition reassignments found.\n"
    there = moving(leaders)
    assert "Successfully started partition reassignments" in run("--execute", there)
    assert "Clearing topic-level throttles" in run("--verify", there)
    assert "None of the specified partition reassignments are active." in run("--cancel", there)
    elsewhere = moving({0: next(iter(brokers - {leaders[0]}))})
    assert "Replicas cannot be reassigned" in run("--execute", elsewhere, status=1)
    assert _leaders(bootstrap, topic) == leaders


def test_kafka_leader_election_finds_nothing_to_elect(tools: KafkaTools, topic: str) -> None:
    for which in ("preferred", "unclean"):
        kind = ("--election-type", which)
        assert tools.run("kafka-leader-election", *kind, "--all-topic-partitions").out == ""
        one = tools.run("kafka-leader-election", *kind, "--topic", topic, "--partition", 0).out
        assert "Valid replica already elected" in one


def test_kafka_configs_shows_no_client_metrics(tools: KafkaTools) -> None:
    shown = tools.run("kafka-configs", "--describe", "--entity-type", "client-metrics")
    assert (shown.out, shown.err) == ("", "")


def test_kafka_configs_finds_no_credential_to_delete(tools: KafkaTools) -> None:
    whose = ("--entity-type", "users", "--entity-name", "a")
    refused = tools.run("kafka-configs", "--alter", *whose, "--delete-config", "SCRAM-SHA-256", status=1)
    assert "ResourceNotFoundException: Attempt to delete a user credential that does not exist" in refused.err


def test_kafka_configs_lists_no_group_configs_and_no_log_levels(tools: KafkaTools, bootstrap: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "configured"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    broker = next(iter(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=SECONDS).brokers))
    for kind, name in (("groups", "configured"), ("broker-loggers", broker)):
        shown = tools.run("kafka-configs", "--describe", "--entity-type", kind, "--entity-name", name)
        assert len(shown.out.splitlines()) == 1, "more than the heading"
    every = tools.run("kafka-configs", "--describe", "--entity-type", "groups").out.splitlines()
    assert "Dynamic configs for group configured are:" in every
    assert all(line.startswith("Dynamic configs for group ") for line in every), "more than headings"


def test_a_tool_with_sasl_settings_reports_that_the_listener_has_no_sasl(tools: KafkaTools, tmp_path: Path) -> None:
    settings = tmp_path / "sasl.properties"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=a password=b;\n"
    )
    refused = tools.run("kafka-topics", "--list", "--command-config", settings, status=1)
    assert "IllegalSaslStateException: Unexpected handshake request with client mechanism PLAIN" in refused.err


def test_kafka_client_metrics_lists_nothing(tools: KafkaTools) -> None:
    for action in ("--list", "--describe"):
        assert tools.run("kafka-client-metrics", action).out.strip() == ""


def test_kafka_transactions_lists_none(tools: KafkaTools, bootstrap: str, topic: str) -> None:
    where = ("--topic", topic, "--partition", 0)
    broker = _leaders(bootstrap, topic)[0]
    for command in (("list",), ("describe-producers", *where), ("find-hanging", "--broker-id", broker)):
        assert len(tools.run("kafka-transactions", *command).out.splitlines()) == 1, "more than the heading"
    refused = tools.run("kafka-transactions", "describe", "--transactional-id", "a", status=1)
    assert refused.err.startswith("Failed to describe transaction state of transactional-id `a`")
    hanging = tools.run("kafka-transactions", "abort", *where, "--start-offset", 0, status=1)
    assert "Could not find any open transactions" in hanging.err


def test_kafka_metadata_quorum_reports_that_there_is_none(tools: KafkaTools) -> None:
    for which in ("--status", "--replication"):
        refused = tools.run("kafka-metadata-quorum", "describe", which, status=1)
        assert "UnsupportedVersionException: There is no KRaft quorum" in refused.out + refused.err


def test_kafka_features_shows_the_metadata_version(tools: KafkaTools) -> None:
    (line,) = tools.run("kafka-features", "describe").out.splitlines()
    assert line.startswith("Feature: metadata.version\t")
    assert "FinalizedVersionLevel: 4.1-IV1" in line


def test_kafkas_tools_do_not_send_unsupported_requests(tools: KafkaTools) -> None:
    upgrade = tools.run("kafka-features", "upgrade", "--feature", "group.version=1", status=1)
    assert "Could not upgrade group.version to 1. The node does not support UPDATE_FEATURES" in upgrade.out
    unregister = tools.run("kafka-cluster", "unregister", "--id", 7)
    assert unregister.out == "The target cluster does not support the broker unregistration API.\n"
