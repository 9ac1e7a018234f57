"""Kafka's tools with TLS and SASL: users that they make, and how wrong credentials are reported."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.servers.cluster import running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.support.broker import KafscaleBroker
from tests.support.certificates import listener_settings, server_certificates
from tests.support.clients.login import Login, java_options, java_properties
from tests.support.issuer import AUDIENCE, ISSUER, Issuer
from tests.support.kafka_tools import KafkaTools, kafka_tools

Properties = Callable[..., Path]
PASSWORD = "a;b c,d=e"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("security")


@pytest.fixture(scope="module")
def authority(directory: Path) -> trustme.CA:
    """A CA, of which ca.pem is in the directory, as are cert.pem and key.pem for 127.0.0.1."""
    return server_certificates(directory)


def _tls(directory: Path, protocol: str) -> dict[str, str]:
    return {**listener_settings(directory, protocol), "KAFSCALE_TLS_CA_FILE": str(directory / "ca.pem")}


@pytest.fixture(scope="module")
def secured(directory: Path, authority: trustme.CA, etcd: Etcd, minio: Minio) -> Iterator[KafkaTools]:
    """Tools for a cluster with two gateways, SASL_SSL and the user admin."""
    (directory / "password").write_text(PASSWORD)
    env = {
        **_tls(directory, "SASL_SSL"),
        "KAFSCALE_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "KAFSCALE_BOOTSTRAP_USER": "admin",
        "KAFSCALE_BOOTSTRAP_PASSWORD_FILE": str(directory / "password"),
        "KAFSCALE_ACLS": "true",
        "KAFSCALE_SUPER_USERS": "User:admin;User:service",
        "KAFSCALE_TLS_PRINCIPAL_MAPPING_RULES": "RULE:.*O=trustme.*/service/",
        "KAFSCALE_RPC_TLS_CA_FILE": str(directory / "ca.pem"),
        "KAFSCALE_RPC_TLS_CERT_FILE": str(directory / "cert.pem"),
        "KAFSCALE_RPC_TLS_KEY_FILE": str(directory / "key.pem"),
        "KAFSCALE_RPC_TLS_CLIENT_AUTH": "required",
    }
    (directory / "cluster").mkdir()
    with (
        running_cluster(directory / "cluster", etcd=etcd, minio=minio, gateways=2, env=env) as cluster,
        kafka_tools(cluster.bootstrap) as tools,
    ):
        yield tools


@pytest.fixture(scope="module")
def properties(directory: Path) -> Properties:
    """Make a file with the settings of a Java client."""

    def make(user: str, password: str = PASSWORD, mechanism: str = "SCRAM-SHA-512") -> Path:
        file = directory / f"{user}.properties"
        _write(file, Login(directory / "ca.pem", mechanism, user, password))
        return file

    return make


def _write(file: Path, login: Login) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in java_properties(login).items()))


def _alter(tools: KafkaTools, admin: Path, user: str, *change: str) -> None:
    whose = ("--entity-type", "users", "--entity-name", user)
    tools.run("kafka-configs", "--command-config", admin, "--alter", *whose, *change)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_made_by_kafka_configs_produces_and_consumes(
    secured: KafkaTools, properties: Properties, mechanism: str
) -> None:
    admin, user = properties("admin"), f"user-{mechanism}"
    stored = "SCRAM-SHA-512" if mechanism == "PLAIN" else mechanism
    _alter(secured, admin, user, "--add-config", f"{stored}=[iterations=8192,password=first]")
    shown = secured.run("kafka-configs", "--command-config", admin, "--describe", "--entity-type", "users").out
    assert f"SCRAM credential configs for user-principal '{user}' are {stored}=iterations=8192" in shown
    theirs = properties(user, "first", mechanism)
    topic = ("--topic", f"of-{mechanism}")
    for role in (("--producer",), ("--consumer", "--group", "*")):
        secured.run(
            "kafka-acls", "--command-config", admin, "--add", "--allow-principal", f"User:{user}", *role, *topic
        )
    secured.run("kafka-console-producer", "--producer.config", theirs, *topic, stdin="one\ntwo\n")
    read = secured.run(
        "kafka-console-consumer", "--consumer.config", theirs, *topic, "--from-beginning", "--max-messages", 2
    )
    assert read.out == "one\ntwo\n"
    refused = secured.run("kafka-topics", "--list", "--command-config", properties(user, "wrong", mechanism), status=1)
    assert "SaslAuthenticationException: Authentication failed" in refused.err
    _alter(secured, admin, user, "--delete-config", stored)
    refused = secured.run("kafka-topics", "--list", "--command-config", properties(user, "first", mechanism), status=1)
    assert "SaslAuthenticationException: Authentication failed" in refused.err


def test_acls_made_by_kafka_acls(secured: KafkaTools, properties: Properties) -> None:
    admin = properties("admin")
    _alter(secured, admin, "ann", "--add-config", "SCRAM-SHA-512=[password=first]")
    ann = properties("ann", "first")
    secured.run("kafka-topics", "--create", "--topic", "pays-1", "--command-config", admin)

    def acls(*change: str) -> str:
        return secured.run("kafka-acls", "--command-config", admin, *change).out

    def described(status: int) -> str:
        printed = secured.run("kafka-topics", "--describe", "--topic", "pays-1", "--command-config", ann, status=status)
        return printed.out + printed.err

    # A tool lists only what it may describe, so it finds no such topic.
    assert "Topic 'pays-1' does not exist" in described(1)
    prefixed = ("--topic", "pays-", "--resource-pattern-type", "prefixed")
    acls("--add", "--allow-principal", "User:ann", "--operation", "Read", "--operation", "DescribeConfigs", *prefixed)
    assert "PartitionCount: 1" in described(0)
    # An idempotent producer would be refused before it sends anything.
    plainly = ("--producer.config", ann, "--producer-property", "enable.idempotence=false")
    sent = secured.run("kafka-console-producer", "--topic", "pays-1", *plainly, stdin="x\n")
    assert "Not authorized to access topics: [pays-1]" in sent.err
    refused = secured.run("kafka-acls", "--list", "--command-config", ann, status=1)
    assert "ClusterAuthorizationException" in refused.out
    acls("--add", "--deny-principal", "User:ann", "--deny-host", "127.0.0.1", "--operation", "All", "--topic", "pays-1")
    assert "Topic 'pays-1' does not exist" in described(1)
    listed = acls("--list", "--topic", "pays-1", "--resource-pattern-type", "match")
    assert "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=pays-, patternType=PREFIXED)`" in listed
    assert "(principal=User:ann, host=127.0.0.1, operation=ALL, permissionType=DENY)" in listed
    acls("--remove", "--force", "--topic", "pays-1")
    assert "PartitionCount: 1" in described(0)
    acls("--remove", "--force", *prefixed)
    assert "pays-" not in acls("--list")


def test_a_listener_that_needs_certificates(directory: Path, authority: trustme.CA) -> None:
    issued = authority.issue_cert("ann@example.org", common_name="ann")
    # Java reads only keys in PKCS #8.
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "ann.pem").write_bytes(pem + b"".join(each.bytes() for each in issued.cert_chain_pems))
    trusts = f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={directory / 'ca.pem'}\n"
    (directory / "nobody.properties").write_text(trusts)
    (directory / "ann.properties").write_text(
        f"{trusts}ssl.keystore.type=PEM\nssl.keystore.location={directory / 'ann.pem'}\n"
    )
    broker = KafscaleBroker(directory / "one", {**_tls(directory, "SSL"), "KAFSCALE_TLS_CLIENT_AUTH": "required"})
    try:
        with kafka_tools(broker.bootstrap) as tools:
            topic, ann = ("--topic", "t"), directory / "ann.properties"
            tools.run("kafka-topics", "--create", *topic, "--command-config", ann)
            tools.run("kafka-console-producer", *topic, "--producer.config", ann, stdin="one\n")
            read = tools.run(
                "kafka-console-consumer", *topic, "--consumer.config", ann, "--from-beginning", "--max-messages", 1
            )
            assert read.out == "one\n"
            nobody = ("--command-config", directory / "nobody.properties")
            refused = tools.run("kafka-topics", "--list", *nobody, status=1)
            assert "SslAuthenticationException" in refused.err
    finally:
        broker.stop()


def test_a_listener_with_tokens(directory: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    issuer, keys = Issuer("RSA", "RS256"), directory / "keys.json"
    keys.write_bytes(issuer.document)
    now = int(time.time())
    files: dict[str, dict[str, Any]] = {"good": {}, "wrong": {"aud": "billing"}}
    for name, claims in files.items():
        token = directory / f"{name}.jwt"
        token.write_text(issuer.token(now + 600, iat=now, scope="kafka", **claims))
        _write(directory / f"{name}.properties", Login(directory / "ca.pem", "OAUTHBEARER", token=token))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", *java_options(*(directory / f"{name}.jwt" for name in files)))
    env = {
        **_tls(directory, "SASL_SSL"),
        "KAFSCALE_SASL_ENABLED_MECHANISMS": "OAUTHBEARER",
        "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": keys.as_uri(),
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_ISSUER": ISSUER,
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE": AUDIENCE,
    }
    broker = KafscaleBroker(directory / "tokens", env)
    try:
        with kafka_tools(broker.bootstrap) as tools:
            topic, good = ("--topic", "t"), directory / "good.properties"
            tools.run("kafka-console-producer", *topic, "--producer.config", good, stdin="one\n")
            read = tools.run(
                "kafka-console-consumer", *topic, "--consumer.config", good, "--from-beginning", "--max-messages", 1
            )
            assert read.out == "one\n"
            wrong = ("--command-config", directory / "wrong.properties")
            refused = tools.run("kafka-topics", "--list", *wrong, status=1)
            assert 'SaslAuthenticationException: {"status":"invalid_token"}' in refused.err
    finally:
        broker.stop()
