"""kafka-configs.sh with client quotas, and a producer that a quota throttles."""

import pytest
from confluent_kafka import Producer

from tests.support.clients.confluent import ConfluentClient
from tests.support.kafka_tools import SECONDS, KafkaTools


def _configs(tools: KafkaTools, action: str, *entity: str, status: int = 0) -> str:
    ran = tools.run("kafka-configs", *action.split(), *entity, status=status)
    return ran.out + ran.err


@pytest.mark.parametrize(
    ("entity", "whom", "config"),
    [
        (("--entity-type", "users", "--entity-name", "ann b"), "user-principal 'ann b'", "producer_byte_rate=1024.0"),
        (("--entity-type", "users", "--entity-default"), "the default user-principal", "consumer_byte_rate=1.0E9"),
        (("--entity-type", "clients", "--entity-name", "app"), "client-id 'app'", "request_percentage=150.5"),
        (("--client-defaults",), "the default client-id", "controller_mutation_rate=1000.0"),
        (
            ("--entity-type", "users", "--entity-name", "ann", "--entity-type", "clients", "--entity-name", "app"),
            "user-principal 'ann', client-id 'app'",
            "producer_byte_rate=2048.0",
        ),
        (
            ("--entity-type", "users", "--entity-name", "ann", "--entity-type", "clients", "--entity-default"),
            "user-principal 'ann', the default client-id",
            "producer_byte_rate=4096.0",
        ),
        (("--entity-type", "ips", "--entity-name", "10.1.2.3"), "ip '10.1.2.3'", "connection_creation_rate=5.0"),
        (("--ip-defaults",), "the default ip", "connection_creation_rate=10000.0"),
    ],
)
def test_kafka_configs_sets_shows_and_removes_quotas(
    tools: KafkaTools, entity: tuple[str, ...], whom: str, config: str
) -> None:
    key, value = config.split("=")
    number = int(float(value)) if float(value).is_integer() else value
    _configs(tools, f"--alter --add-config {key}={number}", *entity)
    try:
        shown = _configs(tools, "--describe", *entity)
        assert f"Quota configs for {whom} are {config}" in shown
    finally:
        _configs(tools, f"--alter --delete-config {key}", *entity)
    assert _configs(tools, "--describe", *entity) == ""


def test_kafka_configs_reports_invalid_quotas(tools: KafkaTools) -> None:
    user = ("--entity-type", "users", "--entity-name", "ann")
    assert "InvalidRequestException: Quota producer_byte_rate must be greater than 0" in _configs(
        tools, "--alter --add-config producer_byte_rate=0", *user, status=1
    )
    assert "InvalidRequestException: consumer_byte_rate cannot be a fractional value." in _configs(
        tools, "--alter --add-config consumer_byte_rate=1.5", *user, status=1
    )


def test_a_producer_is_told_that_it_is_throttled(tools: KafkaTools, bootstrap: str) -> None:
    ConfluentClient(bootstrap).create_topic("throttled")
    client = ("--entity-type", "clients", "--entity-name", "heavy")
    # Far less than one of the batches in ten seconds, even if one gateway gets all of it.
    _configs(tools, "--alter --add-config producer_byte_rate=100000", *client)
    try:
        throttle_times: list[float] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "heavy",
                "throttle_cb": lambda event: throttle_times.append(event.throttle_time),
            }
        )
        for _ in range(12):
            producer.produce("throttled", bytes(100_000))
            producer.poll(0.1)
        assert producer.flush(SECONDS) == 0
        assert throttle_times
        assert max(throttle_times) > 0
    finally:
        _configs(tools, "--alter --delete-config producer_byte_rate", *client)
