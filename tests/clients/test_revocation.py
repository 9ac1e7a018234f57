"""What open connections of librdkafka may still do when a user, an ACL or a certificate is no longer valid."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
import trustme
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from tests.support.broker import KafscaleBroker
from tests.support.certificates import listener_settings, server_certificates

ADMIN, PASSWORD = "admin", "correct horse, battery=staple"
SESSION_MS = 4000
SECONDS = 60


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(directory: Path) -> trustme.CA:
    return server_certificates(directory)


@pytest.fixture(scope="module")
def broker(
    authority: trustme.CA, directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafscaleBroker]:
    settings = {
        **listener_settings(directory),
        "KAFSCALE_SASL_MAX_REAUTH_MS": str(SESSION_MS),
        "KAFSCALE_BOOTSTRAP_USER": ADMIN,
        "KAFSCALE_BOOTSTRAP_PASSWORD": PASSWORD,
        "KAFSCALE_ACLS": "true",
        "KAFSCALE_SUPER_USERS": f"User:{ADMIN};User:gone",
        "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
    made = KafscaleBroker(tmp_path_factory.mktemp("broker"), settings)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def settings(broker: KafscaleBroker, directory: Path) -> Callable[..., dict[str, Any]]:
    def make(user: str, **others: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(directory / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORD,
            "log_level": 0,
            **others,
        }

    return make


@pytest.fixture(scope="module")
def admin(settings: Callable[..., dict[str, Any]]) -> AdminClient:
    return AdminClient(settings(ADMIN))


def _create_user(admin: AdminClient, name: str) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(name, credential, PASSWORD.encode())
    admin.alter_user_scram_credentials([change])[name].result(SECONDS)


def _create_topic(admin: AdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(SECONDS)


def _produced(producer: ck.Producer, topic: str) -> int | None:
    """Produce a record. Return the code of the error, or None."""
    found: list[ck.KafkaError | None] = []
    producer.produce(topic, b"v", on_delivery=lambda error, _: found.append(error))
    assert producer.flush(SECONDS) == 0
    return found[0].code() if found[0] else None


def _awaited(consumer: ck.Consumer) -> ck.Message:
    message = consumer.poll(SECONDS)
    assert message is not None
    return message


def test_a_deleted_user_loses_its_connection_when_its_session_ends(
    settings: Callable[..., dict[str, Any]], admin: AdminClient
) -> None:
    _create_user(admin, "gone")
    _create_topic(admin, "left")
    errors: list[ck.KafkaError] = []
    producer = ck.Producer(settings("gone", error_cb=errors.append))
    deadline = time.monotonic() + 2 * SESSION_MS / 1000
    while time.monotonic() < deadline:
        # Its sessions are renewed as long as it exists.
        assert _produced(producer, "left") is None
        time.sleep(0.5)
    assert errors == []
    deletion = UserScramCredentialDeletion("gone", ScramMechanism.SCRAM_SHA_512)
    admin.alter_user_scram_credentials([deletion])["gone"].result(SECONDS)
    # Its open session continues.
    assert _produced(producer, "left") is None
    deadline = time.monotonic() + SECONDS
    while ck.KafkaError._AUTHENTICATION not in {error.code() for error in errors}:
        assert time.monotonic() < deadline
        producer.poll(0.1)


def _allowed(kind: ResourceType, name: str, operation: AclOperation) -> tuple[Any, ...]:
    """Return what defines the ACL that allows ann this."""
    return kind, name, ResourcePatternType.LITERAL, "User:ann", "*", operation, AclPermissionType.ALLOW


def test_a_revoked_acl_denies_the_next_request_of_open_clients(
    settings: Callable[..., dict[str, Any]], admin: AdminClient
) -> None:
    _create_user(admin, "ann")
    _create_topic(admin, "orders")
    write, read = (_allowed(ResourceType.TOPIC, "orders", each) for each in (AclOperation.WRITE, AclOperation.READ))
    join = _allowed(ResourceType.GROUP, "readers", AclOperation.READ)
    for created in admin.create_acls([AclBinding(*each) for each in (write, read, join)]).values():
        created.result(SECONDS)
    producer = ck.Producer(settings("ann"))
    consumer = ck.Consumer(settings("ann", **{"group.id": "readers", "fetch.wait.max.ms": 100}))
    consumer.assign([ck.TopicPartition("orders", 0, 0)])
    assert _produced(producer, "orders") is None
    assert _awaited(consumer).value() == b"v"

    for deleted in admin.delete_acls([AclBindingFilter(*each) for each in (write, read)]).values():
        assert len(deleted.result(SECONDS)) == 1
    assert _produced(producer, "orders") == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED
    denied = _awaited(consumer).error()
    assert denied is not None
    assert denied.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()


def test_an_expired_certificate_is_refused_at_the_next_handshake(
    authority: trustme.CA, directory: Path, tmp_path: Path
) -> None:
    broker = KafscaleBroker(
        tmp_path / "broker",
        {
            **listener_settings(directory, "SSL"),
            "KAFSCALE_TLS_CA_FILE": str(directory / "ca.pem"),
            "KAFSCALE_TLS_CLIENT_AUTH": "required",
        },
    )
    expires = datetime.now(UTC) + timedelta(seconds=8)
    issued = authority.issue_cert("ann@example.org", common_name="ann", not_after=expires)
    (tmp_path / "ann.key").write_bytes(issued.private_key_pem.bytes())
    (tmp_path / "ann.pem").write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    errors: list[ck.KafkaError] = []
    client = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(directory / "ca.pem"),
        "ssl.certificate.location": str(tmp_path / "ann.pem"),
        "ssl.key.location": str(tmp_path / "ann.key"),
        "log_level": 0,
    }
    try:
        producer = ck.Producer(client)
        assert _produced(producer, "t") is None
        time.sleep(max(0.0, (expires - datetime.now(UTC)).total_seconds()) + 1)
        # Open connections stay.
        assert _produced(producer, "t") is None
        refused = ck.Producer({**client, "error_cb": errors.append})
        refused.produce("t", b"v")
        deadline = time.monotonic() + SECONDS
        while not any("expired" in error.str() for error in errors):
            assert time.monotonic() < deadline, errors
            refused.poll(0.1)
        refused.purge()
    finally:
        broker.stop()
