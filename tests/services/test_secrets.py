"""Passwords, tokens and keys are in no log, error, metric, trace or process list, whether they are accepted or not."""

import base64
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import httpcore
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from kafscale.security.scram import Mechanism, salted_password
from tests.servers.cluster import Cluster
from tests.services.collector import running_collector
from tests.services.conftest import MakeCluster
from tests.support.certificates import listener_settings, server_certificates
from tests.support.issuer import AUDIENCE, ISSUER, Issuer
from tests.support.shell import Shell, once

ITERATIONS, SALT = 4096, b"salt-of-bob-which-is-long"
PASSWORDS = {name: f"{name}-secret-5dfb2a7c" for name in ("admin", "ann", "bob", "wrong", "malformed")}
ADMIN_TOKEN, WRONG_ADMIN_TOKEN = "admin-token-secret-77aa", "wrong-admin-token-secret-88bb"
LOGGED_AGAIN_SECONDS = 1.1
"""Failures are logged at most once a second. Each is to be logged, so that its line could have a secret."""
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


def _settings(directory: Path, endpoint: str) -> dict[str, str]:
    return {
        **listener_settings(directory),
        "KAFSCALE_LOG_LEVEL": "debug",
        "KAFSCALE_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": (directory / "keys.json").as_uri(),
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_ISSUER": ISSUER,
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE": AUDIENCE,
        "KAFSCALE_BOOTSTRAP_USER": "admin",
        "KAFSCALE_BOOTSTRAP_PASSWORD": PASSWORDS["admin"],
        "KAFSCALE_ADMIN_TOKEN": ADMIN_TOKEN,
        "KAFSCALE_TRACING_ENDPOINT": endpoint,
        "KAFSCALE_TRACING_SAMPLE_RATIO": "1",
    }


def test_secrets_are_nowhere(make_cluster: MakeCluster, tmp_path: Path) -> None:
    directory, issuer = tmp_path / "security", Issuer()
    directory.mkdir()
    server_certificates(directory)
    (directory / "keys.json").write_bytes(issuer.document)
    tokens = [issuer.token(time.time() + 600), issuer.token(time.time() + 600, aud="billing")]
    with running_collector() as collector, make_cluster(env=_settings(directory, collector.endpoint)) as cluster:
        told = _use_passwords(cluster, directory) + _use_admin_tokens(cluster) + _use_tokens(cluster, directory, tokens)
        _send_malformed(cluster, directory, PASSWORDS["malformed"].encode())
        once("traces", lambda: len(collector.received), lambda count: count > 0)
        found = {"errors": "\n".join(told).encode(), "traces": b"".join(collector.received)}
        for process in cluster.processes:
            found[f"log of {process.name}"] = process.log.read_bytes()
            found[f"metrics of {process.name}"] = httpcore.request("GET", f"http://{process.http}/metrics").content
            found[f"command of {process.name}"] = Path(f"/proc/{process.process.pid}/cmdline").read_bytes()
        # All requests are logged, so that their contents could be.
        gateway = found[f"log of {cluster.gateways[0].name}"]
        assert all(event in gateway for event in (b"SaslAuthenticate", b"AlterUserScram", b"authentication failed"))
        key = (directory / "key.pem").read_text().splitlines()[1]
        secrets = [*PASSWORDS.values(), ADMIN_TOKEN, WRONG_ADMIN_TOKEN, *tokens, key, cluster.minio.secret_key]
        salted = salted_password(Mechanism.SHA_512, PASSWORDS["bob"].encode(), SALT, ITERATIONS)
        assert _leaks(found, [*(secret.encode() for secret in secrets), salted]) == []


def _leaks(found: Mapping[str, bytes], secrets: list[bytes]) -> list[tuple[str, bytes]]:
    """Return each place with a secret, as it is or encoded."""
    return [
        (place, secret)
        for place, content in found.items()
        for secret in secrets
        for form in (secret, base64.b64encode(secret), secret.hex().encode(), repr(secret)[2:-1].encode())
        if form in content
    ]


def _client(cluster: Cluster, directory: Path, mechanism: str, **others: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(directory / "ca.pem"),
        "sasl.mechanism": mechanism,
        "log_level": 0,
        **others,
    }


def _with_password(cluster: Cluster, directory: Path, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return _client(cluster, directory, mechanism, **{"sasl.username": user, "sasl.password": password})


def _use_passwords(cluster: Cluster, directory: Path) -> list[str]:
    """Create a user by the command line and another one by Kafka's request. Return what everybody printed."""
    shell = Shell({"KAFSCALE_ADMIN_TOKEN": ADMIN_TOKEN}, cluster.gateways[0].address)
    done = shell.run("user set ann --password-file -", PASSWORDS["ann"])
    assert done.returncode == 0
    admin = AdminClient(_with_password(cluster, directory, "SCRAM-SHA-256", "admin", PASSWORDS["admin"]))
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    change = UserScramCredentialUpsertion("bob", credential, PASSWORDS["bob"].encode(), SALT)
    admin.alter_user_scram_credentials([change])["bob"].result(60)
    for mechanism, user in (("SCRAM-SHA-512", "bob"), ("PLAIN", "ann"), ("PLAIN", "admin")):
        _produce(_with_password(cluster, directory, mechanism, user, PASSWORDS[user]))
    told = [done.stdout, done.stderr]
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        told += _refusal(_with_password(cluster, directory, mechanism, "ann", PASSWORDS["wrong"]))
    return told


def _use_tokens(cluster: Cluster, directory: Path, tokens: list[str]) -> list[str]:
    right, wrong = (
        _client(cluster, directory, "OAUTHBEARER", oauth_cb=lambda _, token=token: (token, time.time() + 600))
        for token in tokens
    )
    _produce(right)
    return _refusal(wrong)


def _use_admin_tokens(cluster: Cluster) -> list[str]:
    told = []
    for token, status in ((ADMIN_TOKEN, True), (WRONG_ADMIN_TOKEN, False)):
        done = Shell({"KAFSCALE_ADMIN_TOKEN": token}, cluster.gateways[0].address).run("user list")
        assert (done.returncode == 0) == status
        told += [done.stdout, done.stderr]
    return told


def _produce(client: Mapping[str, Any]) -> None:
    producer = ck.Producer(dict(client))
    producer.produce("t", b"v")
    assert producer.flush(60) == 0


def _refusal(client: Mapping[str, Any]) -> list[str]:
    """Return the errors of a client until one is about authentication."""
    errors: list[ck.KafkaError] = []
    time.sleep(LOGGED_AGAIN_SECONDS)
    refused = ck.Producer({**client, "error_cb": errors.append})
    deadline = time.monotonic() + 60
    while ck.KafkaError._AUTHENTICATION not in {error.code() for error in errors}:
        assert time.monotonic() < deadline
        refused.poll(0.1)
    return [error.str() for error in errors]


def _send_malformed(cluster: Cluster, directory: Path, secret: bytes) -> None:
    """Send messages of each mechanism, and a request, that contain the secret and cannot be parsed."""
    whole = struct.pack(">i", len(secret)) + secret
    cases = [
        ("PLAIN", whole),
        ("SCRAM-SHA-512", whole),
        ("OAUTHBEARER", whole),
        ("PLAIN", struct.pack(">i", len(secret) + 1000) + secret),
    ]
    host, port = cluster.gateways[0].bootstrap.split(":")
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    for mechanism, body in cases:
        time.sleep(LOGGED_AGAIN_SECONDS)
        with (
            socket.create_connection((host, int(port)), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            named = struct.pack(">h", len(mechanism)) + mechanism.encode()
            connection.sendall(_request(SASL_HANDSHAKE, 1, named) + _request(SASL_AUTHENTICATE, 0, body))
            # The server ends the connection after its answers.
            while connection.recv(65536):
                pass


def _request(api: int, version: int, body: bytes) -> bytes:
    """Return a request without a client id (header version 1)."""
    content = struct.pack(">hhih", api, version, 1, -1) + body
    return struct.pack(">i", len(content)) + content
