"""compose.yaml in operation:

README's commands, clients inside and outside, scaling, killed containers, and stored data.
"""

import json
import re
import shlex
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from testcontainers.compose import DockerCompose

from kafscale.config.settings import documented
from kafscale.config.stores import S3Settings
from kafscale_tools.documents.generate import READERS
from tests.compose.project import (
    EVERYTHING,
    LONG_SECONDS,
    OURS,
    PROCESSES,
    SERVICES,
    SPARK,
    SPARK_SECONDS,
    STACK,
    Container,
    Project,
    ask_prometheus,
    await_targets,
    commands,
    once,
    running_project,
)
from tests.servers import minio
from tests.servers.docker import IMAGE, ROOT, SPARK_IMAGE

HEADING = "## Start with Docker"
READ = {
    **{service: READERS[service] for service in PROCESSES},
    # Its script uses only the settings of S3.
    "bucket": (S3Settings,),
    "spark-demo": READERS["the `kafscale` command"],
}
"""The settings that each service reads."""
_SCRAPE = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9093/metrics', timeout=30).read().decode())"

pytestmark = pytest.mark.timeout(600)


class Log:
    """The records of a topic that one idempotent librdkafka producer wrote. Every record is acked."""

    def __init__(self, broker: str, topic: str) -> None:
        self._producer = ck.Producer({"bootstrap.servers": broker, "enable.idempotence": True, "log_level": 0})
        self._broker, self.topic = broker, topic
        self.values: list[bytes] = []
        self._failed: list[ck.KafkaError] = []

    def send(self, count: int = 20) -> None:
        """Send more records."""
        for _ in range(count):
            self.values.append(b"%d" % len(self.values))
            self._producer.produce(self.topic, self.values[-1], partition=0, on_delivery=self._delivered)
        self._producer.poll(0)

    def await_acks(self) -> None:
        assert self._producer.flush(LONG_SECONDS) == 0
        assert self._failed == []

    def read(self) -> list[bytes]:
        """Read the whole topic with a consumer on the host."""
        consumer = ck.Consumer({"bootstrap.servers": self._broker, "group.id": "none", "log_level": 0})
        try:
            consumer.assign([ck.TopicPartition(self.topic, 0, ck.OFFSET_BEGINNING)])
            found: list[bytes] = []

            def more() -> int:
                found.extend(_values(consumer))
                return len(found)

            once("all records", more, lambda count: count >= len(self.values))
            return found
        finally:
            consumer.close()

    def _delivered(self, error: ck.KafkaError | None, _: ck.Message) -> None:
        if error is not None:
            self._failed.append(error)


def _values(consumer: ck.Consumer) -> list[bytes]:
    messages = consumer.consume(1000, timeout=0.5)
    return [message.value() or b"" for message in messages if message.error() is None]


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    with running_project() as running:
        yield running


@pytest.fixture(scope="module")
def log(project: Project) -> Log:
    return Log(project.broker, "orders")


def test_the_readmes_commands_produce_and_consume_on_the_host_and_scale(project: Project) -> None:
    up, write, read, look, scale, down = commands("README.md", HEADING)
    project.shell(write)
    assert project.shell(read) == "hello\n"
    shown = project.shell(look)
    assert set(re.findall(r"^(\w+) .*\dZ  ready", shown, re.MULTILINE)) == set(OURS)
    project.shell(scale)
    counts = {service: len(project.containers(service)) for service in SERVICES}
    assert counts == {**dict.fromkeys(SERVICES, 1), "gateway": 2, "storage": 2}
    # test_all_containers_stop_with_status_0_and_the_data_survives runs these two; the fixture uses testcontainers.
    assert up.startswith("docker compose up")
    assert down == "docker compose down"


def test_the_console_shows_the_cluster_to_a_browser_on_this_machine(project: Project) -> None:
    assert "localhost:9099" in (ROOT / "README.md").read_text().partition(HEADING)[2].partition("\n## ")[0]
    host, port = STACK.get_service_host_and_port("console", 9099)
    with urllib.request.urlopen(f"http://localhost:{port}/api/topics", timeout=LONG_SECONDS) as answer:
        assert "greetings" in [topic["name"] for topic in json.loads(answer.read())["topics"]]
    assert host == "127.0.0.1"


def test_a_client_in_the_network_produces_and_consumes(project: Project, log: Log) -> None:
    log.send()
    log.await_acks()
    read = ("-C", "-b", "gateway:19092", "-t", log.topic, "-e", "-q", "-o", "beginning")
    assert project.kcat_inside(*read).split() == [value.decode() for value in log.values]
    project.kcat_inside("-P", "-b", "gateway:19092", "-t", log.topic, records="from inside\n")
    log.values.append(b"from inside")
    assert log.read() == log.values
    brokers = json.loads(project.kcat_inside("-L", "-J", "-b", "gateway:19092"))["brokers"]
    assert {broker["name"].rpartition(":")[2] for broker in brokers} == {"19092"}


def test_clients_on_the_host_discover_and_reach_a_second_gateway(project: Project) -> None:
    second = project.port + 1
    client = AdminClient({"bootstrap.servers": f"localhost:{second}", "log_level": 0})
    brokers = once("two brokers", lambda: client.list_topics(timeout=30).brokers, lambda brokers: len(brokers) == 2)
    addresses = {node_id: f"{broker.host}:{broker.port}" for node_id, broker in brokers.items()}
    assert addresses == {0: project.broker, 1: f"localhost:{second}"}
    for node_id in brokers:
        asked = ConfigResource(ConfigResource.Type.BROKER, str(node_id))
        (answer,) = client.describe_configs([asked]).values()
        # Each gateway is reached at its own address.
        assert answer.result(30)["node.id"].value == str(node_id)


def test_a_second_storage_instance_gets_its_share_of_the_partitions(project: Project) -> None:
    STACK.exec_in_container(["kafscale", "topic", "create", "wide", "--partitions", "32"], "gateway")

    def owners() -> set[str]:
        shown, _, _ = STACK.exec_in_container(["kafscale", "partition", "list", "wide", "-o", "json"], "gateway")
        return {partition["owner"] for partition in json.loads(shown)["partitions"]}

    once("owners", owners, lambda found: len(found - {""}) == 2)


def test_killed_containers_restart_and_no_acked_record_is_lost(project: Project, log: Log) -> None:
    victims = [project.containers(service)[0] for service in SERVICES]
    for victim in victims:
        log.send()
        project.kill(victim)
        log.send()
        _await(project, victim, healthy=False)
    log.await_acks()
    for victim in victims:
        _await(project, victim, healthy=True)
    assert log.read() == log.values


def _await(project: Project, killed: Container, *, healthy: bool) -> None:
    """Wait until the container has been started again and its healthcheck succeeds."""

    def again() -> Container:
        return next(each for each in project.containers() if each.id == killed.id)

    def is_back(now: Container) -> bool:
        return now.restarts > killed.restarts and (now.health == "healthy" or not healthy)

    once(f"{killed.name} again", again, is_back)


# test_secure.py runs the same job with TLS and ACLs.
@pytest.mark.long
def test_spark_writes_a_topic_and_reads_it_through_every_storage_instance(project: Project) -> None:
    up, follow = commands("docs/guides/docker.md", "**Spark.**")
    try:
        project.shell(f"{up} --scale gateway=2 --scale storage=2")
        # The command ends when the container that it follows ends.
        output = project.shell(follow, timeout=SPARK_SECONDS)
        [demo] = project.containers("spark-demo")
        assert (demo.state, demo.exit_code) == ("exited", 0)
        assert "100000 records written to the topic spark-demo, 100000 read back" in output
        for index in ("1", "2"):
            shown = project.shell(f"docker compose exec --index {index} storage python -c {shlex.quote(_SCRAPE)}")
            [scanned] = re.findall(r"^kafscale_storage_scanned_bytes_total (\S+)$", shown, re.MULTILINE)
            assert float(scanned) > 0, index
    finally:
        project.shell(f"docker compose --profile spark rm --stop --force {' '.join(SPARK)}")


def test_the_default_target_of_a_build_is_the_services_image() -> None:
    stages = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert stages[-1] == "kafscale"


def test_compose_builds_the_image_of_make_image(project: Project) -> None:
    """The image has all optional packages that settings may need, and the version's tag, which k8s/ names."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert project.engine.image_id(f"kafscale:{version}") == project.engine.image_id(IMAGE) != ""
    assert project.engine.image_id(SPARK_IMAGE)
    try:
        project.shell("IMAGE_TAG=built-by-compose docker compose build gateway")
        assert _content(project, "kafscale:built-by-compose") == _content(project, IMAGE)
    finally:
        project.engine.run("image", "rm", "kafscale:built-by-compose", check=False)
    STACK.exec_in_container(["python", "-c", "import kafscale.process.otel"], "gateway")


def _content(project: Project, image: str) -> dict[str, Any]:
    """Return the layers of an image and its run configuration."""
    (found,) = json.loads(project.engine.run("image", "inspect", image).stdout)
    names = ("Cmd", "Entrypoint", "Env", "Healthcheck", "User", "WorkingDir")
    return {"files": found["RootFS"]["Layers"], **{name: found["Config"].get(name) for name in names}}


def test_all_containers_stop_with_status_0_and_the_data_survives(project: Project, log: Log) -> None:
    with socket.create_connection(("localhost", project.port)):
        DockerCompose(ROOT, services=["gateway"]).stop(down=False)
        STACK.stop(down=False)
    ended = {each.name: each.exit_code for service in PROCESSES for each in project.containers(service)}
    assert set(ended.values()) == {0}, ended
    project.shell(commands("README.md", HEADING)[-1])
    assert project.containers() == []
    project.shell(commands("README.md", HEADING)[0])
    assert log.read() == log.values
    log.send()
    log.await_acks()


def test_prometheus_loads_the_rules_and_scrapes_every_service(project: Project) -> None:
    DockerCompose(ROOT, services=["prometheus"]).start()
    check = ["promtool", "check", "config", "/etc/prometheus/prometheus.yaml"]
    EVERYTHING.exec_in_container(check, "prometheus")
    await_targets()

    def health() -> list[str]:
        return [rule["health"] for group in ask_prometheus("rules")["groups"] for rule in group["rules"]]

    # Each rule is "unknown" until its first evaluation.
    rules = once("rules", health, lambda found: "unknown" not in found)
    assert rules == ["ok"] * (ROOT / "monitoring" / "alerts.yaml").read_text().count("- alert:")


def test_minio_in_a_container_passes_the_contract_of_conditional_puts(project: Project) -> None:
    assert EVERYTHING.get_config()["services"]["minio"]["image"] == minio.IMAGE
    started = ("--since", f"{time.time():.3f}", "--filter", "event=start", "--filter", f"image={minio.IMAGE}")
    # The engine keeps its last 256 events only, so they are read while the tests run.
    with subprocess.Popen(
        ["docker", "events", *started], env=project.engine.environ, stdout=subprocess.PIPE, text=True
    ) as events:
        try:
            project.shell(
                f"KAFSCALE_TEST_CONTAINERS=1 {sys.executable} -m pytest -q -k s3 tests/contract/objects/test_puts.py"
            )
        finally:
            events.terminate()
        lines, _ = events.communicate()
    assert len(lines.splitlines()) == 1


def test_every_variable_and_file_of_compose_exists(project: Project) -> None:
    config = EVERYTHING.get_config()
    for name, service in config["services"].items():
        variables = {variable for variable in service.get("environment") or {} if variable.startswith("KAFSCALE_")}
        read = {declared.env for _, found in documented(READ.get(name, ())) for declared in found}
        assert variables <= read, name
    mounts = [
        mount for each in config["services"].values() for mount in each.get("volumes", ()) if mount["type"] == "bind"
    ]
    assert mounts
    for mount in mounts:
        assert (ROOT / mount["source"]).exists(), mount
    for name in (*PROCESSES, *SPARK):
        service = config["services"][name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}
