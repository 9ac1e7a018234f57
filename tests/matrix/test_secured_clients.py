"""KafkaJS, franz-go and the Java client with TLS and SASL, and what clients call a denial by ACLs."""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka as ck
import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from tests.support.broker import KafscaleBroker
from tests.support.certificates import listener_settings, server_certificates
from tests.support.clients.interface import ClientError, Member, Message
from tests.support.clients.java import JavaClient
from tests.support.clients.login import Login
from tests.support.clients.piped import PipedClient, PipedError
from tests.support.clients.programs import FranzGoClient, KafkaJsClient
from tests.support.issuer import AUDIENCE, ISSUER, Issuer
from tests.support.members import read

Kind = type[JavaClient] | type[KafkaJsClient] | type[FranzGoClient]
ADMIN, ANN, PASSWORD, WRONG = "admin", "ann", "correct horse, battery=staple", "wrong"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SESSION_MS = 4000
REFUSED = {
    KafkaJsClient: "KafkaJSSASLAuthenticationError",
    FranzGoClient: "SASL_AUTHENTICATION_FAILED",
    JavaClient: "SaslAuthenticationException",
}
"""What each client calls failed authentication."""
REFUSED_TOKEN = {
    # It takes the refusal for success, and its next request ends the connection, as with Apache Kafka.
    KafkaJsClient: "Closed connection",
    FranzGoClient: "unexpected data in oauth response",
    JavaClient: "SaslAuthenticationException",
}
CASES = [(kind, each) for kind in REFUSED for each in MECHANISMS]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with certificates, the keys of an issuer, and two tokens of it."""
    directory, issuer = tmp_path_factory.mktemp("secured"), Issuer()
    server_certificates(directory)
    (directory / "keys.json").write_bytes(issuer.document)
    (directory / "right.jwt").write_text(issuer.token(time.time() + 600, sub=ADMIN))
    (directory / "wrong.jwt").write_text(issuer.token(time.time() + 600, sub=ADMIN, aud="billing"))
    return directory


@pytest.fixture(scope="module")
def broker(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafscaleBroker]:
    settings = {
        **listener_settings(directory),
        "KAFSCALE_SASL_ENABLED_MECHANISMS": ",".join(MECHANISMS),
        "KAFSCALE_SASL_MAX_REAUTH_MS": str(SESSION_MS),
        "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": (directory / "keys.json").as_uri(),
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_ISSUER": ISSUER,
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE": AUDIENCE,
        "KAFSCALE_BOOTSTRAP_USER": ADMIN,
        "KAFSCALE_BOOTSTRAP_PASSWORD": PASSWORD,
        "KAFSCALE_ACLS": "true",
        "KAFSCALE_SUPER_USERS": f"User:{ADMIN};User:gone",
        # KafkaJS reads Snappy only with a plug-in.
        "KAFSCALE_COMPRESSION_CODEC": "producer",
        "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
    made = KafscaleBroker(tmp_path_factory.mktemp("broker"), settings)
    try:
        yield made
    finally:
        made.stop()


def _librdkafka(broker: KafscaleBroker, directory: Path, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(directory / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": PASSWORD,
        "log_level": 0,
    }


@pytest.fixture(scope="module")
def admin(broker: KafscaleBroker, directory: Path) -> AdminClient:
    return AdminClient(_librdkafka(broker, directory, ADMIN))


def _create_user(admin: AdminClient, name: str) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    [done] = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(name, credential, PASSWORD.encode())]
    ).values()
    done.result(30)


def _login(directory: Path, mechanism: str, *, right: bool) -> Login:
    ca = directory / "ca.pem"
    if mechanism == "OAUTHBEARER":
        return Login(ca, mechanism, token=directory / ("right.jwt" if right else "wrong.jwt"))
    return Login(ca, mechanism, ADMIN, PASSWORD if right else WRONG)


@pytest.mark.parametrize(("kind", "mechanism"), CASES)
def test_right_credentials(broker: KafscaleBroker, directory: Path, kind: Kind, mechanism: str) -> None:
    topic = f"{kind.name}-{mechanism}"
    with closing(kind(broker.bootstrap, _login(directory, mechanism, right=True))) as client:
        client.create_topic(topic)
        client.produce(topic, [Message(b"one"), Message(b"two")])
        with closing(client.member(topic, topic, quick=True)) as member:
            assert [record.value for record in read(2, member)] == ["one", "two"]


@pytest.mark.parametrize(("kind", "mechanism"), CASES)
def test_wrong_credentials(broker: KafscaleBroker, directory: Path, kind: Kind, mechanism: str) -> None:
    expected = (REFUSED_TOKEN if mechanism == "OAUTHBEARER" else REFUSED)[kind]
    with (
        closing(kind(broker.bootstrap, _login(directory, mechanism, right=False))) as client,
        pytest.raises((PipedError, ClientError), match=expected),
    ):
        client.topics()


def _briefly(client: PipedClient) -> None:
    """Java tries for a minute by default."""
    client.call("touch", topic="t", config={"default.api.timeout.ms": 5000, "request.timeout.ms": 5000})


@pytest.mark.parametrize(
    ("kind", "ask", "expected"),
    [
        (KafkaJsClient, PipedClient.topics, "Closed connection"),
        (FranzGoClient, PipedClient.topics, "TLS"),
        (JavaClient, _briefly, "TimeoutException"),
    ],
)
def test_plaintext_to_a_port_with_tls(
    broker: KafscaleBroker, kind: Kind, ask: Callable[[PipedClient], object], expected: str
) -> None:
    with closing(kind(broker.bootstrap)) as client, pytest.raises((PipedError, ClientError), match=expected):
        ask(client)


async def _aiokafka(broker: KafscaleBroker, directory: Path) -> None:
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_SSL",
        ssl_context=ssl.create_default_context(cafile=str(directory / "ca.pem")),
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username=ANN,
        sasl_plain_password=PASSWORD,
    ) as producer:
        await producer.send_and_wait("secret", b"v")


def test_a_denial_is_an_error_of_its_own_kind(broker: KafscaleBroker, directory: Path, admin: AdminClient) -> None:
    _create_user(admin, ANN)
    admin.create_topics([NewTopic("secret", 1, 1)])["secret"].result(30)

    found: list[ck.KafkaError | None] = []
    producer = ck.Producer(_librdkafka(broker, directory, ANN))
    producer.produce("secret", b"v", on_delivery=lambda error, _: found.append(error))
    assert producer.flush(30) == 0
    assert [error and error.code() for error in found] == [ck.KafkaError.TOPIC_AUTHORIZATION_FAILED]

    with pytest.raises(TopicAuthorizationFailedError):
        asyncio.run(_aiokafka(broker, directory))

    kinds: dict[Kind, str] = {
        KafkaJsClient: "TOPIC_AUTHORIZATION_FAILED: Not authorized to access topics",
        FranzGoClient: "TOPIC_AUTHORIZATION_FAILED: Not authorized to access topics",
        JavaClient: r"TopicAuthorizationException: Not authorized to access topics: \[secret\]",
    }
    for kind, expected in kinds.items():
        login = Login(directory / "ca.pem", "SCRAM-SHA-512", ANN, PASSWORD)
        with (
            closing(kind(broker.bootstrap, login)) as client,
            pytest.raises((PipedError, ClientError), match=expected),
        ):
            client.produce("secret", [Message(b"v")])


def test_a_deleted_user_of_java_loses_its_connection_when_its_session_ends(
    broker: KafscaleBroker, directory: Path, admin: AdminClient
) -> None:
    _create_user(admin, "gone")
    with closing(JavaClient(broker.bootstrap, Login(directory / "ca.pem", "SCRAM-SHA-512", "gone", PASSWORD))) as java:
        java.create_topic("left")
        java.produce("left", [Message(b"one")])
        member = java.member("left", "left")
        assert [record.value for record in read(1, member)] == ["one"]
        deletion = UserScramCredentialDeletion("gone", ScramMechanism.SCRAM_SHA_512)
        [done] = admin.alter_user_scram_credentials([deletion]).values()
        done.result(30)
        with pytest.raises(ClientError, match="SaslAuthenticationException"):
            _poll_for_a_minute(member)


def _poll_for_a_minute(member: Member) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        member.poll(1)
