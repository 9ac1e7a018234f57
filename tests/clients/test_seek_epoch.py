"""Clients that seek with leader epoch 0, the first epoch of a topic in Kafka, keep their position."""

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import TIMEOUT_SECONDS, Message
from tests.support.kafka_tools import kafka_tools


@pytest.mark.parametrize("epoch", [0, -1])
def test_librdkafka_continues_at_the_offset_it_sought(bootstrap: str, topic: str, epoch: int) -> None:
    ConfluentClient(bootstrap).produce(topic, [Message(b"%d" % number) for number in range(6)])
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "seeks", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        first = consumer.poll(TIMEOUT_SECONDS)
        assert first is not None
        assert first.offset() == 0
        consumer.seek(TopicPartition(topic, 0, 4, leader_epoch=epoch))
        found = consumer.poll(TIMEOUT_SECONDS)
        assert found is not None
        assert (found.error(), found.offset()) == (None, 4)
    finally:
        consumer.close()


def test_the_java_client_continues_at_an_offset_committed_with_epoch_0(bootstrap: str, topic: str) -> None:
    ConfluentClient(bootstrap).produce(topic, [Message(b"%d" % number) for number in range(6)])
    group = f"{topic}-committed"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4, leader_epoch=0)], asynchronous=False)
    consumer.close()
    read = ("--topic", topic, "--group", group, "--max-messages", 1, "--from-beginning")
    with kafka_tools(bootstrap) as tools:
        assert tools.run("kafka-console-consumer", *read).out == "4\n"
