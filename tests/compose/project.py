"""compose.yaml as a project of the tests: its containers, commands from documents, and its ports.

testcontainers starts and ends it, and lists its containers, ports and logs. It runs `docker compose` in the environment
of this process, which `environment` returns.
"""

import json
import os
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from unittest import mock

from testcontainers.compose import DockerCompose

from tests.servers.docker import IMAGE, KCAT, ROOT, Engine, running_engine

LONG_SECONDS = 150.0
SPARK_SECONDS = 400.0
NAME = "kafscale-test"
SERVICES = ("gateway", "storage", "indexer", "coordinator", "etcd", "minio", "edge")
"""The services that run without a profile."""
SPARK = ("spark-demo", "spark-worker", "spark-master")
"""The services of the profile `spark`."""
STACK = DockerCompose(ROOT)
"""`docker compose` without a profile."""
EVERYTHING = DockerCompose(ROOT, profiles=["*"])
"""`docker compose` with all profiles."""
OURS = ("gateway", "storage", "indexer", "coordinator")
_LOG_LINES = 30
_FIRST_PORTS = range(9092, 9492, 10)

T = TypeVar("T")


@dataclass(frozen=True)
class Container:
    id: str
    name: str
    state: str
    health: str
    pid: int
    exit_code: int
    restarts: int


@dataclass(frozen=True)
class Project:
    """``port``: the first gateway's port on the host. Three more ports follow it."""

    engine: Engine
    port: int

    @property
    def broker(self) -> str:
        return f"localhost:{self.port}"

    def shell(self, command: str, *, timeout: float = LONG_SECONDS) -> str:
        """Run a command from a document, which may be one of `docker compose`, and return its output."""
        try:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command.replace("localhost:9092", self.broker)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as expired:
            print(f"$ {command}", (expired.stdout or b"").decode(errors="replace"), sep="\n")
            raise
        print(f"$ {command}", done.stdout, done.stderr, sep="\n")
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def containers(self, service: str = "") -> list[Container]:
        """Return the containers of ``service``, or all, including stopped ones."""
        there = EVERYTHING.get_containers(include_all=True)
        ids = [str(each.ID) for each in there if service in ("", each.Service)]
        found = json.loads(self.engine.run("inspect", *ids).stdout) if ids else []
        return [
            Container(
                id=each["Id"],
                name=each["Name"].lstrip("/"),
                state=each["State"]["Status"],
                health=each["State"].get("Health", {}).get("Status", ""),
                pid=each["State"]["Pid"],
                exit_code=each["State"]["ExitCode"],
                restarts=each["RestartCount"],
            )
            for each in found
        ]

    def kill(self, container: Container) -> None:
        """Send SIGKILL from outside Docker. After `docker kill` Docker would not restart the container."""
        program = f"import os; os.kill({container.pid}, 9)"
        image = ("--entrypoint", "python", IMAGE)
        self.engine.run("run", "--rm", "--pid=host", "--user=0", *image, "-c", program)

    def kcat_inside(self, *arguments: str, records: str = "") -> str:
        """Run kcat in a container in the project's network and return its output."""
        done = subprocess.run(
            ["docker", "run", "--rm", "--interactive", f"--network={NAME}_default", KCAT, *arguments],
            input=records,
            capture_output=True,
            text=True,
            timeout=LONG_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def show_logs() -> None:
    """Print the running containers and the end of their logs, which pytest shows for failed tests."""
    containers = EVERYTHING.get_containers(include_all=True)
    for each in containers:
        print(each.Name, each.State, each.Health, each.ExitCode)
    for service in sorted({str(each.Service) for each in containers}):
        logs, _ = EVERYTHING.get_logs(service)
        print(*logs.splitlines()[-_LOG_LINES:], sep="\n")


@contextmanager
def running_project(**variables: str) -> Iterator[Project]:
    """Start the services that run without a profile, and stop all of them at the end.

    ``variables``: what is set in addition in the environment of `docker compose`.
    """
    with running_engine() as engine, ExitStack() as ends:
        port = _free_port()
        ends.enter_context(mock.patch.dict(os.environ, {**_environment(engine, port), **variables}, clear=True))
        # A run that was killed has left its containers, which may be of services that only the other file defines.
        remove = ("compose", "--profile", "*", "down", "--volumes", "--remove-orphans")
        engine.run(*remove, check=True, **os.environ)
        ends.callback(EVERYTHING.stop)
        ends.callback(show_logs)
        STACK.start()
        yield Project(Engine(own=engine.own, environ=os.environ), port)


def _free_port() -> int:
    """Return 9092 for the first gateway unless that port is in use."""
    for first in _FIRST_PORTS:
        if not any(_listens(port) for port in range(first, first + 4)):
            return first
    raise RuntimeError("no four ports in a row are free")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def commands(document: str, heading: str) -> list[str]:
    """Return the commands of a section in a document."""
    section = (ROOT / document).read_text().partition(heading)[2].partition("\n## ")[0]
    return re.findall(r"^    (.+)$", section, re.MULTILINE)


def ask_prometheus(path: str) -> Any:
    """Return what the API of Prometheus in the project answers."""
    host, port = EVERYTHING.get_service_host_and_port("prometheus", 9090)
    with urllib.request.urlopen(f"http://{host}:{port}/api/v1/{path}", timeout=30) as reply:
        return json.loads(reply.read())["data"]


def await_targets() -> None:
    """Wait until Prometheus has scraped every service."""

    def up() -> dict[str, str]:
        targets = ask_prometheus("targets?state=active")["activeTargets"]
        return {target["labels"]["job"]: target["health"] for target in targets}

    once("targets", up, lambda found: found == {f"kafscale-{service}": "up" for service in OURS})


def _environment(engine: Engine, port: int) -> dict[str, str]:
    """Return the environment for `docker compose` with ``engine`` and the first gateway at ``port``."""
    of_settings = ("KAFSCALE_", "COMPOSE_", "PIP_", "PROMETHEUS_", "GRAFANA_")
    others = {name: value for name, value in engine.environ.items() if not name.startswith(of_settings)}
    ports = {"HOST_PORTS": f"{port}-{port + 3}", "PROMETHEUS_PORT": "0"}
    return {**others, "COMPOSE_PROJECT_NAME": NAME, "COMPOSE_PROGRESS": "plain", "IMAGE_TAG": "latest", **ports}


def once(what: str, look: Callable[[], T], there: Callable[[T], bool]) -> T:
    """Call ``look`` until ``there`` accepts its result, and return the result."""
    deadline = time.monotonic() + LONG_SECONDS
    while not there(found := look()):
        assert time.monotonic() < deadline, f"{what}: {found}"
        time.sleep(0.3)
    return found
