"""Only the classic group protocol is served. A consumer that uses Kafka 4's is refused with an error that it shows."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError

from tests.servers.apache_kafka import AGAINST_APACHE
from tests.support.kafka_tools import kafka_tools

pytestmark = pytest.mark.skipif(AGAINST_APACHE, reason="Apache Kafka has the consumer protocol")

PATIENCE_SECONDS = 60


def test_librdkafka_stops_with_a_fatal_error(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "new", "group.protocol": "consumer"})
    consumer.subscribe(["t"])
    try:
        give_up = time.monotonic() + PATIENCE_SECONDS
        error = None
        while error is None and time.monotonic() < give_up:
            message = consumer.poll(1)
            error = message.error() if message is not None else None
        assert error is not None, "no error was reported"
        assert error.code() == KafkaError._FATAL
        assert "ConsumerGroupHeartbeat" in error.str()
    finally:
        consumer.close()


def test_the_java_client_stops_with_an_exception_that_names_the_reason(bootstrap: str, tmp_path: Path) -> None:
    settings = tmp_path / "consumer.properties"
    settings.write_text("group.protocol=consumer\n")
    with kafka_tools(bootstrap) as tools:
        printed = tools.run("kafka-console-consumer", "--topic", "t", "--group", "new", "--consumer.config", settings)
    assert "UnsupportedVersionException" in printed.err
    assert "group.protocol=classic" in printed.err
