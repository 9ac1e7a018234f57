"""Real clients on a listener with OAUTHBEARER: valid and other tokens, and new keys of the issuer."""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka as ck
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from click.testing import CliRunner

from kafscale_tools.cli.exits import Exit
from kafscale_tools.cli.main import main
from tests.clients.kafka_python_once import Provider as PythonProvider
from tests.clients.kafka_python_once import failure
from tests.support.broker import KafscaleBroker
from tests.support.certificates import listener_settings, server_certificates
from tests.support.clients.leaks import leaking
from tests.support.issuer import AUDIENCE, ISSUER, Issuer
from tests.support.key_endpoint import KeyEndpoint, key_endpoint

LIFETIME = 600
WRONG: dict[str, dict[str, Any]] = {"audience": {"aud": "billing"}, "issuer": {"iss": "https://other.test"}}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with certificates."""
    directory = tmp_path_factory.mktemp("certificates")
    server_certificates(directory)
    return directory


@pytest.fixture(scope="module")
def endpoint(directory: Path) -> Iterator[KeyEndpoint]:
    with key_endpoint(Issuer("RSA", "RS256"), directory) as made:
        yield made


@pytest.fixture(scope="module")
def broker(
    directory: Path, endpoint: KeyEndpoint, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafscaleBroker]:
    settings = {
        **listener_settings(directory),
        "KAFSCALE_SASL_ENABLED_MECHANISMS": "OAUTHBEARER",
        "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": endpoint.url,
        "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_CA_FILE": str(endpoint.ca_file),
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_ISSUER": ISSUER,
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE": AUDIENCE,
        "KAFSCALE_ACLS": "true",
        "KAFSCALE_SUPER_USERS": "User:ann",
        "KAFSCALE_ALLOW_EVERYONE_IF_NO_ACL_FOUND": "true",
    }
    made = KafscaleBroker(tmp_path_factory.mktemp("broker"), settings)
    try:
        yield made
    finally:
        made.stop()


def token(issuer: Issuer, **claims: Any) -> str:
    return issuer.token(time.time() + LIFETIME, **claims)


def librdkafka(
    broker: KafscaleBroker, directory: Path, made: Callable[[str], tuple[str, float]], **others: Any
) -> dict[str, Any]:
    """Return the configuration of a client that gets its tokens from ``made``."""
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(directory / "ca.pem"),
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": made,
        "log_level": 0,
        **others,
    }


def test_librdkafka(broker: KafscaleBroker, endpoint: KeyEndpoint, directory: Path) -> None:
    settings = librdkafka(broker, directory, lambda _: (token(endpoint.issuer), time.time() + LIFETIME))
    producer = ck.Producer(settings)
    for number in range(2000):
        producer.produce("librdkafka", b"%d" % number * 100)
    assert producer.flush(30) == 0
    consumer = ck.Consumer({**settings, "group.id": "librdkafka", "auto.offset.reset": "earliest"})
    consumer.subscribe(["librdkafka"])
    found = 0
    while found < 2000:
        batch = consumer.consume(500, timeout=20)
        assert batch
        found += len(batch)
    consumer.close()


@pytest.mark.parametrize("wrong", WRONG)
def test_librdkafka_with_a_wrong_token(
    broker: KafscaleBroker, endpoint: KeyEndpoint, directory: Path, wrong: str
) -> None:
    errors: list[ck.KafkaError] = []
    made = token(endpoint.issuer, **WRONG[wrong])
    refused = ck.Producer(
        librdkafka(broker, directory, lambda _: (made, time.time() + LIFETIME), error_cb=errors.append)
    )
    refused.produce("librdkafka", b"x")
    deadline = time.monotonic() + 30
    while ck.KafkaError._AUTHENTICATION not in {error.code() for error in errors}:
        assert time.monotonic() < deadline
        refused.poll(0.1)
    refused.purge()
    assert any("invalid_token" in error.str() for error in errors)
    assert made not in repr([error.str() for error in errors])


class Provider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, made: str) -> None:
        self._made = made

    async def token(self) -> str:
        return self._made


async def produce(broker: KafscaleBroker, directory: Path, made: str) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_SSL",
        ssl_context=ssl.create_default_context(cafile=str(directory / "ca.pem")),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(made),
    )
    try:
        await producer.start()
        await producer.send_and_wait("aiokafka", b"v")
    finally:
        await producer.stop()


def test_aiokafka(broker: KafscaleBroker, endpoint: KeyEndpoint, directory: Path) -> None:
    asyncio.run(produce(broker, directory, token(endpoint.issuer)))
    for claims in WRONG.values():
        with leaking(), pytest.raises(KafkaConnectionError):
            asyncio.run(produce(broker, directory, token(endpoint.issuer, **claims)))


def test_kafka_python(broker: KafscaleBroker, endpoint: KeyEndpoint, directory: Path) -> None:
    settings = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(directory / "ca.pem"),
        "sasl_mechanism": "OAUTHBEARER",
    }
    provider = PythonProvider(token(endpoint.issuer))
    producer = kafka.KafkaProducer(**settings, sasl_oauth_token_provider=provider)
    assert producer.send("kafka-python", b"v").get(30).offset >= 0
    producer.close()
    refused = token(endpoint.issuer, **WRONG["audience"])
    logged = failure(**settings, token=refused)
    assert 'SaslAuthenticationFailedError: {"status":"invalid_token"}' in logged
    assert refused not in logged


def test_sessions_are_renewed_with_new_tokens(broker: KafscaleBroker, endpoint: KeyEndpoint, directory: Path) -> None:
    made: list[str] = []

    def expiring(_: str) -> tuple[str, float]:
        # It is accepted for another 3 seconds, because clocks may differ by 30.
        made.append(endpoint.issuer.token(time.time() - 27))
        return made[-1], time.time() + 2

    def delivered(error: ck.KafkaError | None, _: object) -> None:
        errors.append(error)

    producer = ck.Producer(librdkafka(broker, directory, expiring))
    errors: list[ck.KafkaError | None] = []
    deadline = time.monotonic() + 60
    while len(made) < 5:
        assert time.monotonic() < deadline
        producer.produce("renewed", b"v", on_delivery=delivered)
        assert producer.flush(20) == 0
        time.sleep(0.2)
    assert not any(errors)


def test_new_keys_of_the_issuer_are_used(broker: KafscaleBroker, endpoint: KeyEndpoint, directory: Path) -> None:
    former, endpoint.issuer = endpoint.issuer, Issuer("second")
    producer = ck.Producer(librdkafka(broker, directory, lambda _: (token(endpoint.issuer), time.time() + LIFETIME)))
    producer.produce("librdkafka", b"x")
    # Keys are read again at most once in 10 seconds.
    assert producer.flush(30) == 0
    with leaking(), pytest.raises(KafkaConnectionError):
        asyncio.run(produce(broker, directory, token(former)))


def test_the_kafscale_command_is_the_user_of_its_token(broker: KafscaleBroker, endpoint: KeyEndpoint) -> None:
    def run(made: str, *arguments: str) -> int:
        variables = {"KAFSCALE_ADMIN_SERVER": broker.rpc, "KAFSCALE_ADMIN_TOKEN": made}
        found = CliRunner().invoke(main, arguments, env=variables)
        assert made not in found.output
        return found.exit_code

    ann, bob = (token(endpoint.issuer, sub=name) for name in ("ann", "bob"))
    denial = ("acl", "create", "User:bob", "--topic", "secret", "--operation", "describe", "--deny")
    assert run(ann, *denial) == 0
    assert run(bob, "topic", "describe", "other") == Exit.NOT_FOUND
    assert run(bob, "topic", "describe", "secret") == Exit.DENIED
    assert run(ann, "topic", "describe", "secret") == Exit.NOT_FOUND
    assert run(endpoint.issuer.token(time.time() - LIFETIME), "topic", "list") == Exit.DENIED
    assert run("another-admin-token", "topic", "list") == Exit.DENIED
