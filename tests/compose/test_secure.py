"""compose.yaml with compose.secure.yaml in operation: what users may do, who is refused, and where secrets are."""

import http.client
import json
import re
import shlex
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic
from testcontainers.compose import DockerCompose

from kafscale_tools.cli.exits import Exit
from tests.compose.project import (
    EVERYTHING,
    LONG_SECONDS,
    OURS,
    PROCESSES,
    SPARK,
    SPARK_SECONDS,
    Project,
    await_targets,
    commands,
    once,
    running_project,
)
from tests.servers.docker import ROOT

GUIDE = "docs/guides/production.md"
HEADING = "## Docker Compose"
PASSWORD = "of-orders-only"
RUN = "docker compose run --rm -T"
# Prints how each service answers over HTTPS with a certificate, HTTPS without one, and HTTP.
_PROBE = """
import json, ssl, sys, urllib.request
def ask(scheme, service, certificate):
    context = ssl.create_default_context(cafile="/etc/kafscale/tls/http-ca.pem") if scheme == "https" else None
    if context is not None:
        context.check_hostname = False
        if certificate:
            context.load_cert_chain("/etc/kafscale/tls/http.pem", "/etc/kafscale/tls/http.key")
    try:
        return urllib.request.urlopen(f"{scheme}://{service}:9093/readyz", timeout=20, context=context).status
    except OSError:
        return "refused"
ways = (("https", True), ("https", False), ("http", False))
print(json.dumps({service: [ask(scheme, service, own) for scheme, own in ways] for service in sys.argv[1:]}))
"""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The secrets that the documented commands make, by their names, and their directory as ``directory``."""
    here = tmp_path_factory.mktemp("secure")
    makes = [command for command in commands(GUIDE, HEADING) if "secrets" in command]
    subprocess.run(["bash", "-euc", "umask 022\n" + "\n".join(makes)], cwd=here, check=True, timeout=60)
    directory = here / "secrets"
    assert directory.stat().st_mode & 0o777 == 0o700
    found = {file.name: file.read_text().strip() for file in directory.iterdir()}
    assert found.keys() == {"admin-password", "admin-token"}
    return {**found, "directory": str(directory)}


@pytest.fixture(scope="module")
def project(given: dict[str, str]) -> Iterator[Project]:
    files = "compose.yaml:compose.secure.yaml"
    assert f"export COMPOSE_FILE={files}" in commands(GUIDE, HEADING)
    with running_project(COMPOSE_FILE=files, SECRETS_DIR=given["directory"]) as running:
        yield running


@pytest.fixture(scope="module")
def client(project: Project, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The settings of a client on the host, without a user, with the CA that the documented command fetches."""
    [fetch] = [command for command in commands(GUIDE, HEADING) if "kafka-ca.pem" in command and "docker" in command]
    authority = tmp_path_factory.mktemp("client") / "kafka-ca.pem"
    authority.write_text(project.shell(fetch.partition(" >")[0]))
    return {"bootstrap.servers": project.broker, "ssl.ca.location": str(authority), "log_level": 0}


@pytest.fixture(scope="module")
def admin(client: dict[str, Any], given: dict[str, str]) -> dict[str, Any]:
    return _as_user(client, "admin", given["admin-password"])


def _as_user(client: dict[str, Any], user: str, password: str) -> dict[str, Any]:
    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
    return {**client, **sasl, "sasl.username": user, "sasl.password": password}


def _written(settings: dict[str, Any], topic: str) -> ck.KafkaError | None:
    """Write one record and return the error, or None."""
    outcome: list[ck.KafkaError | None] = []
    producer = ck.Producer(settings)
    producer.produce(topic, b"hello", on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(LONG_SECONDS) == 0
    return outcome[0]


def _status(command: str) -> int:
    return subprocess.run(
        shlex.split(command), cwd=ROOT, capture_output=True, timeout=LONG_SECONDS, check=False
    ).returncode


def test_a_user_reads_and_writes_only_what_acls_allow(
    project: Project, client: dict[str, Any], admin: dict[str, Any]
) -> None:
    kafka = AdminClient(admin)
    for made in kafka.create_topics([NewTopic("orders", 1), NewTopic("payments", 1)]).values():
        made.result(LONG_SECONDS)
    project.shell(f"echo {PASSWORD} | {RUN} cli user set orders --password-file -")
    allowed = [
        AclBinding(kind, "orders", ResourcePatternType.LITERAL, "User:orders", "*", operation, AclPermissionType.ALLOW)
        for kind, operation in (
            (ResourceType.TOPIC, AclOperation.WRITE),
            (ResourceType.TOPIC, AclOperation.READ),
            (ResourceType.GROUP, AclOperation.READ),
        )
    ]
    for created in kafka.create_acls(allowed).values():
        created.result(LONG_SECONDS)
    orders = _as_user(client, "orders", PASSWORD)

    assert _written(orders, "orders") is None
    consumer = ck.Consumer({**orders, "group.id": "orders", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    try:
        read = once("the record", lambda: consumer.poll(1), lambda found: found is not None)
        assert read is not None
        assert read.error() is None
        assert read.value() == b"hello"
    finally:
        consumer.close()

    denied = _written(orders, "payments")
    assert denied is not None
    assert denied.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED
    lines, _ = EVERYTHING.get_logs("gateway")
    access = [json.loads(line[line.index("{") :]) for line in lines.splitlines() if '"event": "access"' in line]
    decisions = {(each["principal"], each["resource"], each["decision"]) for each in access}
    assert ("User:orders", "TOPIC:payments", "denied") in decisions
    assert ("User:admin", "CLUSTER:kafka-cluster", "allowed") in decisions
    # The checks of haproxy complete their handshakes.
    assert '"event": "TLS handshake failed"' not in lines


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL", "PLAINTEXT"])
def test_clients_with_a_wrong_password_or_none_are_refused(client: dict[str, Any], protocol: str) -> None:
    refused = {**_as_user(client, "admin", "wrong"), "security.protocol": protocol}
    if protocol != "SASL_SSL":
        refused = {name: value for name, value in refused.items() if not name.startswith("sasl.")}
    errors: list[ck.KafkaError] = []
    producer = ck.Producer({**refused, "error_cb": errors.append})

    def codes() -> list[int]:
        producer.poll(1)
        return [error.code() for error in errors]

    expected = ck.KafkaError._AUTHENTICATION if protocol == "SASL_SSL" else ck.KafkaError._ALL_BROKERS_DOWN
    once("an error", codes, lambda found: expected in found)
    with pytest.raises(ck.KafkaException):
        producer.list_topics(timeout=5)


def test_calls_need_a_certificate_and_the_token(project: Project) -> None:
    [documented] = [command for command in commands(GUIDE, HEADING) if "cli cluster" in command]
    assert set(re.findall(r"^(\w+) .*\dZ  ready", project.shell(documented), re.MULTILINE)) == set(OURS)
    without_certificate = "-e KAFSCALE_RPC_TLS_CERT_FILE= -e KAFSCALE_RPC_TLS_KEY_FILE="
    assert _status(f"{RUN} {without_certificate} cli topic list --timeout 20") == Exit.UNAVAILABLE
    assert _status(f"{RUN} -e KAFSCALE_ADMIN_TOKEN_FILE= cli user list") == Exit.DENIED
    plain = "-e KAFSCALE_RPC_TLS_CA_FILE= -e KAFSCALE_RPC_TLS_SERVER_NAME="
    assert _status(f"{RUN} {without_certificate} {plain} cli topic list --timeout 20") == Exit.UNAVAILABLE


def test_health_is_shown_only_over_https_to_clients_with_a_certificate(project: Project) -> None:
    shown = project.shell(f"docker compose exec -T gateway python -c {shlex.quote(_PROBE)} {' '.join(PROCESSES)}")
    assert json.loads(shown) == {service: [200, "refused", "refused"] for service in PROCESSES}


def test_browsers_reach_the_console_by_https_and_sign_in_with_the_token(
    project: Project, given: dict[str, str], tmp_path: Path
) -> None:
    [fetch] = [command for command in commands(GUIDE, HEADING) if "console-ca.pem" in command]
    authority = tmp_path / "console-ca.pem"
    authority.write_text(project.shell(fetch.partition(" >")[0]))
    place = f"localhost:{_console_port()}"
    connection = http.client.HTTPSConnection(
        place, timeout=LONG_SECONDS, context=ssl.create_default_context(cafile=authority)
    )

    def ask(method: str, path: str, body: str = "", **headers: str) -> tuple[int, str]:
        connection.request(method, path, body or None, {"origin": f"https://{place}", **headers})
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.getheader("set-cookie", "")

    assert ask("GET", "/api/topics")[0] == 401
    assert ask("POST", "/api/session", json.dumps({"token": "not-the-right-token"}))[0] == 403
    status, cookie = ask("POST", "/api/session", json.dumps({"token": given["admin-token"]}))
    assert (status, "; Secure" in cookie) == (200, True)
    assert ask("GET", "/api/topics", cookie=cookie.partition(";")[0])[0] == 200
    connection.close()


def _console_port() -> int:
    return int(EVERYTHING.get_service_host_and_port("console", 9099)[1] or 0)


def test_etcd_refuses_clients_without_a_certificate(project: Project) -> None:
    ask = "docker compose exec -T etcd etcdctl --command-timeout=5s --cacert=/tls/etcd-ca.pem"
    own = "--cert=/tls/etcd.pem --key=/tls/etcd.key"
    project.shell(f"{ask} {own} --endpoints=https://127.0.0.1:2379 get --prefix kafscale --limit 1")
    assert _status(f"{ask} --endpoints=https://127.0.0.1:2379 get --prefix kafscale --limit 1") != 0
    assert _status(f"{ask} --endpoints=http://127.0.0.1:2379 get --prefix kafscale --limit 1") != 0


def test_secrets_are_neither_in_the_configuration_of_containers_nor_in_logs(
    project: Project, given: dict[str, str]
) -> None:
    made = project.shell("docker compose run --rm -T credentials cat /authorities/s3/password").strip()
    everywhere = project.engine.run("inspect", *[each.id for each in project.containers()]).stdout
    everywhere += "".join(EVERYTHING.get_logs())
    assert "/run/secrets/admin-password" in everywhere
    for secret in (given["admin-password"], given["admin-token"], made, PASSWORD, "kafscale-secret"):
        assert secret
        assert secret not in everywhere


def test_ports_are_published_only_on_the_loopback_interface(project: Project) -> None:
    services = EVERYTHING.get_config()["services"]
    published = {(name, port["host_ip"]) for name, each in services.items() for port in each.get("ports", [])}
    assert published == {(name, "127.0.0.1") for name in ("edge", "console", "prometheus", "grafana")}


def test_a_spark_job_with_its_own_certificate_needs_acls(project: Project) -> None:
    run = [command for command in commands(GUIDE, HEADING) if "spark" in command]
    *allow, up, follow = [command.replace("docker compose run --rm", RUN) for command in run]
    try:
        project.shell(up, timeout=SPARK_SECONDS)
        denied = project.shell(follow, timeout=SPARK_SECONDS)
        assert "User:CN=kafscale-spark needs CREATE on CLUSTER or CREATE on TOPIC" in denied
        for command in [*allow, up]:
            project.shell(command, timeout=SPARK_SECONDS)
        shown = project.shell(follow, timeout=SPARK_SECONDS)
        assert "100000 records written to the topic spark-demo, 100000 read back" in shown
    finally:
        project.shell(f"docker compose --profile spark rm --stop --force {' '.join(SPARK)}")


def test_prometheus_scrapes_every_service_with_its_certificate(project: Project) -> None:
    DockerCompose(ROOT, services=["prometheus"]).start()
    await_targets()


def test_renewed_certificates_are_used_without_a_restart(project: Project, admin: dict[str, Any]) -> None:
    [renew] = [command for command in commands(GUIDE, HEADING) if command.startswith("RENEW=")]

    def presented() -> set[str]:
        """Return the certificates of a Kafka listener, of the console and of MinIO."""
        program = "import ssl; print(ssl.get_server_certificate(('minio', 9000)))"
        of_minio = project.shell(f"docker compose exec -T storage python -c {shlex.quote(program)}")
        ports = (project.port, _console_port())
        return {*(ssl.get_server_certificate(("localhost", port)) for port in ports), of_minio}

    before = presented()
    project.shell(renew)
    once("renewed certificates", presented, lambda now: now.isdisjoint(before))
    assert _written(admin, "orders") is None
    assert _status(f"{RUN} cli topic list") == 0
    assert {each.restarts for each in project.containers()} == {0}
