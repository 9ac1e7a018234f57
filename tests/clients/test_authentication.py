"""Real clients on a listener with TLS and SASL: each mechanism, with the right and a wrong password."""

import asyncio
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka as ck
import kafka
import pytest
from aiokafka.errors import KafkaConnectionError
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients.kafka_python_once import failure
from tests.support.broker import KafscaleBroker
from tests.support.certificates import listener_settings, server_certificates
from tests.support.clients.leaks import leaking

COMMAND = (sys.executable, "-c", "from kafscale_tools.cli.main import main; main()")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "admin", "correct horse, battery=staple"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with certificates."""
    directory = tmp_path_factory.mktemp("certificates")
    server_certificates(directory)
    return directory


@pytest.fixture(scope="module")
def broker(authority: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafscaleBroker]:
    settings = {
        **listener_settings(authority),
        "KAFSCALE_SASL_ENABLED_MECHANISMS": ",".join(MECHANISMS),
        "KAFSCALE_BOOTSTRAP_USER": USER,
        "KAFSCALE_BOOTSTRAP_PASSWORD": PASSWORD,
    }
    made = KafscaleBroker(tmp_path_factory.mktemp("broker"), settings)
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(broker: KafscaleBroker, authority: Path, mechanism: str) -> None:
    def settings(password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority / "ca.pem"),
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
            "log_level": 0,
        }

    topic = f"librdkafka-{mechanism}"
    producer = ck.Producer(settings(PASSWORD))
    for number in range(2000):
        producer.produce(topic, b"%d" % number * 100)
    assert producer.flush(30) == 0
    consumer = ck.Consumer({**settings(PASSWORD), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = 0
    while found < 2000:
        batch = consumer.consume(500, timeout=20)
        assert batch
        found += len(batch)
    consumer.close()

    errors: list[ck.KafkaError] = []
    refused = ck.Producer({**settings("wrong"), "error_cb": errors.append})
    refused.produce(topic, b"x")
    deadline = time.monotonic() + 30
    while ck.KafkaError._AUTHENTICATION not in {error.code() for error in errors}:
        assert time.monotonic() < deadline
        refused.poll(0.1)
    refused.purge()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(broker: KafscaleBroker, authority: Path, mechanism: str) -> None:
    def settings(password: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": broker.bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(authority / "ca.pem"),
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": password,
        }

    producer = kafka.KafkaProducer(**settings(PASSWORD))
    assert producer.send("kafka-python", b"v").get(30).offset >= 0
    producer.close()
    # It logs the error, but tries again until its time is over.
    logged = failure(**settings("wrong"))
    assert "SaslAuthenticationFailedError: Authentication failed" in logged
    assert "KafkaTimeoutError" in logged


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(broker: KafscaleBroker, authority: Path, mechanism: str) -> None:
    async def produce(password: str) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap,
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=str(authority / "ca.pem")),
            sasl_mechanism=mechanism,
            sasl_plain_username=USER,
            sasl_plain_password=password,
        )
        try:
            await producer.start()
            await producer.send_and_wait("aiokafka", b"v")
        finally:
            await producer.stop()

    asyncio.run(produce(PASSWORD))
    with leaking(), pytest.raises(KafkaConnectionError):
        asyncio.run(produce("wrong"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_kafscale_command(broker: KafscaleBroker, authority: Path, tmp_path: Path, mechanism: str) -> None:
    topic = f"kafscale-{mechanism}"
    admin = AdminClient(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority / "ca.pem"),
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    )
    admin.create_topics([NewTopic(topic, 2)])[topic].result(30)
    file = tmp_path / "password"

    def run(command: str, password: str) -> "subprocess.CompletedProcess[bytes]":
        file.write_text(password)
        listener = ("-b", broker.bootstrap, "--security-protocol", "SASL_SSL", "--ca-file", str(authority / "ca.pem"))
        login = ("--mechanism", mechanism, "--user", USER, "--password-file", str(file))
        line = [*COMMAND, command, topic, *listener, *login]
        return subprocess.run(line, input=b"a\nb\n", capture_output=True, check=False)

    assert run("produce", PASSWORD).returncode == 0
    assert run("consume", PASSWORD).stdout == b"a\nb\n"
    wrong = run("consume", "wrong-password")
    assert (wrong.returncode, b"authentication failed" in wrong.stderr) == (6, True)
    assert b"wrong-password" not in wrong.stderr


async def _start_plainly(broker: KafscaleBroker) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    try:
        await producer.start()
    finally:
        await producer.stop()


def test_plaintext_to_a_port_with_tls(broker: KafscaleBroker) -> None:
    with pytest.raises(ck.KafkaException, match="_TRANSPORT"):
        ck.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0}).list_topics(timeout=3)
    with leaking(), pytest.raises(KafkaConnectionError):
        asyncio.run(_start_plainly(broker))
    assert "KafkaTimeoutError" in failure(bootstrap_servers=broker.bootstrap)
