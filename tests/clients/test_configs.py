"""librdkafka's AdminClient describes and alters configs and partitions of topics."""

from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigSource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions

from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import INVALID_CONFIG, MESSAGE_TOO_LARGE, ClientError, Message, TopicClient
from tests.support.configs import changed, described

INVALID_PARTITIONS = 37
SECONDS = 30


def test_a_topic_is_described_with_its_own_configs_and_defaults(
    bootstrap: str, makers: Mapping[str, TopicClient], topic: str
) -> None:
    own = f"{topic}-own"
    makers["confluent-kafka"].create_topic(own, configs={"retention.ms": "60000"})
    configs = described(AdminClient({"bootstrap.servers": bootstrap}), ResourceType.TOPIC, own)
    retention = configs["retention.ms"]
    assert (retention.value, ConfigSource(retention.source)) == ("60000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].is_default) == ("delete", True)
    assert not retention.is_read_only


def test_a_broker_is_described(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (broker,) = admin.list_topics(timeout=SECONDS).brokers
    configs = described(admin, ResourceType.BROKER, str(broker))
    assert bootstrap.rpartition(":")[2] in (configs["advertised.listeners"].value or "")
    assert configs["default.replication.factor"].value == "1"
    assert int(configs["num.partitions"].value or 0) >= 1


def test_changed_configs_take_effect_immediately(bootstrap: str, topic: str) -> None:
    admin, client = AdminClient({"bootstrap.servers": bootstrap}), ConfluentClient(bootstrap)
    client.produce(topic, [Message(b"x" * 11000)])
    setting = (("max.message.bytes", AlterConfigOpType.SET, "10000"), ("retention.ms", AlterConfigOpType.SET, "60000"))
    changed(admin, topic, *setting)
    assert described(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "60000"
    with pytest.raises(ClientError) as refused:
        client.produce(topic, [Message(b"x" * 11000)])
    assert refused.value.code == MESSAGE_TOO_LARGE
    changed(admin, topic, ("max.message.bytes", AlterConfigOpType.DELETE, None))
    client.produce(topic, [Message(b"x" * 11000)])
    configs = described(admin, ResourceType.TOPIC, topic)
    assert (configs["retention.ms"].value, configs["max.message.bytes"].value) == ("60000", "1048588")


def test_wrong_configs_are_refused(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wrong = [("retention.ms", "-5"), ("no.such.config", "1")]
    for name, value in [*wrong, ("cleanup.policy", "compress")]:
        with pytest.raises(KafkaException) as refused:
            changed(admin, topic, (name, AlterConfigOpType.SET, value))
        assert refused.value.args[0].code() == INVALID_CONFIG
    assert described(admin, ResourceType.TOPIC, topic)["retention.ms"].is_default


def test_a_topic_can_get_more_partitions_but_not_fewer(bootstrap: str, topic: str) -> None:
    admin, client = AdminClient({"bootstrap.servers": bootstrap}), ConfluentClient(bootstrap)
    client.produce(topic, [Message(b"before")])
    (grown,) = admin.create_partitions([NewPartitions(topic, 3)], request_timeout=SECONDS).values()
    grown.result(SECONDS)
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"after", partition=2, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0
    assert errors == [None]
    assert sorted(admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions) == [0, 1, 2]
    assert client.offsets(topic) == (0, 1)
    for fewer in (1, 3):
        (refused,) = admin.create_partitions([NewPartitions(topic, fewer)], request_timeout=SECONDS).values()
        with pytest.raises(KafkaException) as error:
            refused.result(SECONDS)
        assert error.value.args[0].code() == INVALID_PARTITIONS
