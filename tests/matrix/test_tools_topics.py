"""Kafka's tools for topics, configs, offsets and brokers print correct results."""

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from minio import Minio as MinioClient

from kafscale import paths
from kafscale.topics.definitions import DEFINITIONS
from services.gateway.clients.registry import APIS
from tests.servers.cluster import Cluster
from tests.support.clients.confluent import ConfluentClient
from tests.support.kafka_tools import KafkaTools, fields

SECONDS = 30
PARTITIONS = 3
START = 1_700_000_000_000
_NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    """A name of no existing topic."""
    return f"tools-topic-{next(_NUMBERS)}"


@pytest.fixture(scope="module")
def filled(bootstrap: str) -> str:
    """A topic with five records in partition 0, three in partition 1, none in partition 2. They are a second apart."""
    topic = "tools-filled"
    ConfluentClient(bootstrap).create_topic(topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, count in ((0, 5), (1, 3)):
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=START + 1000 * number)
    assert producer.flush(SECONDS) == 0
    return topic


def _topics(bootstrap: str) -> set[str]:
    return ConfluentClient(bootstrap).topics()


def test_kafka_topics_creates_describes_extends_and_deletes_topics(
    tools: KafkaTools, bootstrap: str, name: str
) -> None:
    created = tools.run(
        "kafka-topics", "--create", "--topic", name, "--partitions", 3, "--config", "retention.ms=60000"
    )
    assert created.out == f"Created topic {name}.\n"
    known = AdminClient({"bootstrap.servers": bootstrap}).list_topics(name, timeout=SECONDS).topics[name]
    head, *lines = tools.run("kafka-topics", "--describe", "--topic", name).out.splitlines()
    shown = fields(head)
    assert (shown["PartitionCount"], shown["ReplicationFactor"], shown["Configs"]) == ("3", "1", "retention.ms=60000")
    leaders = {number: str(partition.leader) for number, partition in known.partitions.items()}
    assert {int(fields(line)["Partition"]): fields(line)["Leader"] for line in lines} == leaders
    assert all(fields(line)["Replicas"] == fields(line)["Isr"] == fields(line)["Leader"] for line in lines)

    tools.run("kafka-topics", "--alter", "--topic", name, "--partitions", 5)
    assert len(tools.run("kafka-topics", "--describe", "--topic", name).out.splitlines()) == 6
    assert name in tools.run("kafka-topics", "--list").out.splitlines()
    assert name in tools.run("kafka-topics", "--describe", "--topics-with-overrides").out
    assert tools.run("kafka-topics", "--describe", "--under-replicated-partitions").out == ""
    assert tools.run("kafka-topics", "--describe", "--unavailable-partitions").out == ""

    tools.run("kafka-topics", "--delete", "--topic", name)
    assert name not in tools.run("kafka-topics", "--list").out.splitlines()
    assert name not in _topics(bootstrap)


def test_kafka_topics_reports_refusals_with_their_reasons(
    tools: KafkaTools, bootstrap: str, filled: str, name: str
) -> None:
    def refused(*arguments: object) -> str:
        return tools.run("kafka-topics", *arguments, status=1).out

    assert f"Topic '{filled}' already exists." in refused("--create", "--topic", filled)
    assert tools.run("kafka-topics", "--create", "--topic", filled, "--if-not-exists").out == ""
    fewer = refused("--alter", "--topic", filled, "--partitions", 2)
    assert f"The topic {filled} currently has 3 partition(s); 2 would not be an increase." in fewer
    for action in ("--describe", "--delete"):
        assert f"Topic '{name}' does not exist as expected" in refused(action, "--topic", name)
    assert "unknown" in refused("--create", "--topic", name, "--config", "no.such.config=1").lower()
    assert "Topic name 'no spaces' is not a legal one." in refused("--create", "--topic", "no spaces")
    assert name not in _topics(bootstrap)


def test_compaction_is_set_by_kafka_topics_and_kafka_configs(tools: KafkaTools, name: str) -> None:
    tools.run("kafka-topics", "--create", "--topic", name, "--config", "cleanup.policy=compact")
    of_topic = ("--entity-type", "topics", "--entity-name", name)
    assert "cleanup.policy=compact " in tools.run("kafka-configs", *of_topic, "--describe").out
    for policy in ("compact,delete", "delete", "compact"):
        tools.run("kafka-configs", *of_topic, "--alter", "--add-config", f"cleanup.policy=[{policy}]")
        assert f"cleanup.policy={policy} " in tools.run("kafka-configs", *of_topic, "--describe").out
    wrong = tools.run("kafka-configs", *of_topic, "--alter", "--add-config", "cleanup.policy=keep", status=1)
    assert "InvalidConfigurationException: Invalid value keep for configuration cleanup.policy" in wrong.err


def _configs(printed: str) -> Mapping[str, str]:
    """Return the values in a description's lines."""
    return dict(re.findall(r"^  (\S+?)=(.*?) sensitive=", printed, re.MULTILINE))


def test_kafka_configs_alters_and_describes_configs_of_topics(tools: KafkaTools, bootstrap: str, name: str) -> None:
    ConfluentClient(bootstrap).create_topic(name)
    of_topic = ("--entity-type", "topics", "--entity-name", name)

    def set_now() -> Mapping[str, str]:
        return _configs(tools.run("kafka-configs", *of_topic, "--describe").out)

    assert set_now() == {}
    altered = tools.run(
        "kafka-configs", *of_topic, "--alter", "--add-config", "retention.ms=60000,max.message.bytes=9999"
    )
    assert altered.out == f"Completed updating config for topic {name}.\n"
    assert set_now() == {"retention.ms": "60000", "max.message.bytes": "9999"}
    tools.run("kafka-configs", *of_topic, "--alter", "--delete-config", "retention.ms")
    assert set_now() == {"max.message.bytes": "9999"}

    everything = tools.run("kafka-configs", *of_topic, "--describe", "--all").out
    assert set(_configs(everything)) == set(DEFINITIONS)
    assert (
        "synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=9999, DEFAULT_CONFIG:message.max.bytes=1048588}" in everything
    )
    for wrong in ("retention.ms=-5", "no.such.config=1"):
        refused = tools.run("kafka-configs", *of_topic, "--alter", "--add-config", wrong, status=1)
        assert "InvalidConfigurationException" in refused.err
    assert set_now() == {"max.message.bytes": "9999"}


def test_kafka_configs_describes_brokers(tools: KafkaTools, cluster: Cluster, bootstrap: str) -> None:
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=SECONDS).brokers
    assert len(brokers) == len(cluster.gateways)
    for broker in brokers.values():
        named = ("--entity-type", "brokers", "--entity-name", broker.id)
        shown = _configs(tools.run("kafka-configs", *named, "--describe", "--all").out)
        assert shown["advertised.listeners"] == f"PLAINTEXT://{broker.host}:{broker.port}"
        assert shown["broker.id"] == str(broker.id)
        assert tools.run("kafka-configs", *named, "--describe").out == f"Dynamic configs for broker {broker.id} are:\n"
    named = ("--entity-type", "brokers", "--entity-name", next(iter(brokers)))
    refused = tools.run("kafka-configs", *named, "--alter", "--add-config", "num.io.threads=3", status=1)
    assert "Cannot update these configs dynamically: num.io.threads" in refused.err


def test_kafka_get_offsets_returns_ends_times_and_partitions(tools: KafkaTools, filled: str) -> None:
    def offsets(*arguments: object) -> dict[int, int]:
        lines = tools.run("kafka-get-offsets", *arguments).out.splitlines()
        found = [line.split(":") for line in lines]
        assert {topic for topic, _, _ in found} <= {filled}
        return {int(partition): int(offset) for _, partition, offset in found}

    topic = ("--topic", filled)
    ends = {0: 5, 1: 3, 2: 0}
    assert offsets(*topic) == offsets(*topic, "--time", -1) == offsets(*topic, "--time", "latest") == ends
    starts = {0: 0, 1: 0, 2: 0}
    assert offsets(*topic, "--time", -2) == offsets(*topic, "--time", "earliest") == starts
    assert offsets(*topic, "--time", -4) == offsets(*topic, "--time", "earliest-local") == starts
    # The record with the largest timestamp. Without records nothing is printed, as with Kafka.
    assert offsets(*topic, "--time", -3) == offsets(*topic, "--time", "max-timestamp") == {0: 4, 1: 2}
    assert offsets(*topic, "--time", -5) == {}
    assert offsets(*topic, "--time", START + 1500) == {0: 2, 1: 2}
    assert offsets(*topic, "--time", START + 3000) == {0: 3}
    assert offsets(*topic, "--partitions", "1,2") == {1: 3, 2: 0}
    assert offsets("--topic-partitions", f"{filled}:0-1") == {0: 5}
    missing = tools.run("kafka-get-offsets", "--topic", f"{filled}-never-made", status=1)
    assert "Could not match any topic-partitions" in missing.err


def test_kafka_delete_records_moves_the_log_start(tools: KafkaTools, bootstrap: str, name: str, tmp_path: Path) -> None:
    client = ConfluentClient(bootstrap)
    client.create_topic(name, partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce(name, b"%d" % number, partition=number % 2)
    assert producer.flush(SECONDS) == 0

    def delete(*offsets: tuple[int, int]) -> list[str]:
        partitions = [{"topic": name, "partition": number, "offset": offset} for number, offset in offsets]
        file = tmp_path / "offsets.json"
        file.write_text(json.dumps({"partitions": partitions, "version": 1}))
        return tools.run("kafka-delete-records", "--offset-json-file", file).out.splitlines()[2:]

    assert sorted(delete((0, 4), (1, -1))) == [
        f"partition: {name}-0\tlow_watermark: 4",
        f"partition: {name}-1\tlow_watermark: 10",
    ]
    assert [client.offsets(name, partition=number) for number in (0, 1)] == [(4, 10), (10, 10)]
    assert client.consume(name, count=1)[0].value == b"8"
    (beyond,) = delete((0, 11))
    assert "OffsetOutOfRangeException" in beyond
    assert client.offsets(name) == (4, 10)


def test_kafka_log_dirs_reports_the_sizes_in_the_bucket(tools: KafkaTools, cluster: Cluster, filled: str) -> None:
    lines = tools.run("kafka-log-dirs", "--describe", "--topic-list", filled).out.splitlines()
    brokers = json.loads(lines[2])["brokers"]
    assert len(brokers) == len(cluster.gateways)
    namespace, bucket = cluster.env["KAFSCALE_S3_NAMESPACE"], cluster.env["KAFSCALE_S3_BUCKET"]
    assert {directory["logDir"] for broker in brokers for directory in broker["logDirs"]} == {namespace}
    partitions = [shown for broker in brokers for directory in broker["logDirs"] for shown in directory["partitions"]]
    sizes = {shown["partition"]: shown["size"] for shown in partitions}
    assert len(partitions) == len(sizes) == PARTITIONS

    minio = cluster.minio
    store = MinioClient(minio.endpoint.removeprefix("http://"), minio.access_key, minio.secret_key, secure=False)
    for number in range(PARTITIONS):
        prefix = paths.partition_prefix(namespace, filled, number)
        objects = store.list_objects(bucket, prefix, recursive=True)
        stored = [found.size for found in objects if found.object_name.endswith(".kfs")]
        assert sizes[f"{filled}-{number}"] == sum(stored)
        assert bool(stored) == (number < 2)


def test_kafka_broker_api_versions_lists_each_gateway_with_its_versions(tools: KafkaTools, cluster: Cluster) -> None:
    shown: dict[str, dict[int, tuple[int, int]]] = {}
    for line in tools.run("kafka-broker-api-versions").out.splitlines():
        if head := re.match(r"(\S+) \(id: ", line):
            versions = shown[head[1]] = {}
        elif api := re.match(r"\t\w+\((\d+)\): (\d+)(?: to (\d+))? \[usable: ", line):
            versions[int(api[1])] = int(api[2]), int(api[3] or api[2])
    registered = {api.key: (api.versions[0], api.versions[-1]) for api in APIS.values()}
    assert shown == {gateway.bootstrap: registered for gateway in cluster.gateways}


def test_kafka_cluster_reports_the_id_and_the_brokers(tools: KafkaTools, cluster: Cluster, bootstrap: str) -> None:
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=SECONDS)
    assert tools.run("kafka-cluster", "cluster-id").out == f"Cluster ID: {metadata.cluster_id}\n"
    rows = tools.run("kafka-cluster", "list-endpoints").rows()
    assert {f"{row['HOST']}:{row['PORT']}" for row in rows} == {gateway.bootstrap for gateway in cluster.gateways}
    assert {row["STATE"] for row in rows} == {"unfenced"}
