"""Kafka Connect in distributed mode: what its workers know is in three compacted topics."""

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from tests.ecosystem.programs import PATIENCE, compacted, policies, until
from tests.servers.apache_kafka import SHORT_LIVED, java
from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess
from tests.support.clients.confluent import ConfluentClient

# Six JVMs start and stop.
pytestmark = pytest.mark.timeout(900)

# Kafka's config/connect-distributed.properties with another address, other names, and less waiting.
WORKER = """\
bootstrap.servers={bootstrap}
group.id={name}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=true
value.converter.schemas.enable=true
offset.storage.topic={name}-offsets
offset.storage.replication.factor=1
config.storage.topic={name}-configs
config.storage.replication.factor=1
status.storage.topic={name}-status
status.storage.replication.factor=1
offset.flush.interval.ms=200
session.timeout.ms=6000
heartbeat.interval.ms=1000
scheduled.rebalance.max.delay.ms=0
plugin.discovery=service_load
listeners=HTTP://127.0.0.1:{port}
"""

CONFLICT = 409
"""The answer of a worker while the group rebalances."""


class Worker:
    """A process of the group, and its REST interface. Leaving the ``with`` block kills it."""

    def __init__(self, bootstrap: str, name: str, directory: Path) -> None:
        (port,) = free_ports(1)
        self.id = f"127.0.0.1:{port}"
        settings = directory / f"worker-{port}.properties"
        settings.write_text(WORKER.format(bootstrap=bootstrap, name=name, port=port))
        command = java("org.apache.kafka.connect.cli.ConnectDistributed", str(settings), options=SHORT_LIVED)
        self.process = ServerProcess(command, log=directory / f"worker-{port}.log")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        print(self.process.tail())

    def get(self, path: str) -> Any:
        """None where there is no answer yet."""
        with contextlib.suppress(urllib.error.URLError, ConnectionError), self._open(path) as reply:
            return json.load(reply)
        return None

    def configure(self, connector: str, config: Mapping[str, str]) -> None:
        """Create the connector, or change its config."""
        until(lambda: self._put(f"/connectors/{connector}/config", config), self.process.tail)

    def _put(self, path: str, body: object) -> bool:
        try:
            with self._open(path, json.dumps(body).encode()):
                return True
        except urllib.error.HTTPError as error:
            if error.code != CONFLICT:
                raise
            return False

    def _open(self, path: str, body: bytes | None = None) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.id}{path}", body, headers, method="PUT" if body else "GET")
        return urllib.request.urlopen(request, timeout=PATIENCE)

    def position(self, source: str) -> int:
        """How many bytes of its file the connector has read, by the offset that it has stored."""
        found = self.get(f"/connectors/{source}/offsets")
        return sum(each["offset"]["position"] for each in found["offsets"]) if found else 0


@contextmanager
def _workers(bootstrap: str, name: str, directory: Path) -> Iterator[tuple[Worker, Worker]]:
    with Worker(bootstrap, name, directory) as one, Worker(bootstrap, name, directory) as other:
        for each in (one, other):
            until(lambda each=each: each.get("/connectors") is not None, each.process.tail)  # type: ignore[misc]
        yield one, other


def _run(tasks: Mapping[str, int], *workers: Worker) -> None:
    """Wait until all connectors and their tasks run, on each of the workers and on no other."""

    def parts() -> list[tuple[str, str]]:
        found = [workers[0].get(f"/connectors/{connector}/status") for connector in tasks]
        if not all(found) or [len(each["tasks"]) for each in found] != [*tasks.values()]:
            return []
        return [(part["state"], part["worker_id"]) for each in found for part in (each["connector"], *each["tasks"])]

    until(lambda: set(parts()) == {("RUNNING", worker.id) for worker in workers}, parts)


def test_connectors_move_from_a_killed_worker_and_survive_the_end_of_all_workers_and_of_the_broker(
    bootstrap: str, client: ConfluentClient, name: str, tmp_path: Path, restart_broker: Callable[[], None]
) -> None:
    topic, sink = f"{name}-lines", tmp_path / "sink.txt"
    files = {source: tmp_path / f"{source}.txt" for source in ("left", "right")}
    tasks = {"left": 1, "right": 1, "sink": 2}
    lines: list[str] = []

    def write() -> None:
        """Ten lines for each source."""
        for source, file in files.items():
            more = [f"{source} {number}" for number in range(len(lines), len(lines) + 10)]
            with file.open("a") as out:
                out.writelines(f"{line}\n" for line in more)
            lines.extend(more)

    def written() -> list[str]:
        """The sink writes again what it had not committed."""
        return sorted(set(sink.read_text().splitlines())) if sink.exists() else []

    def moved(worker: Worker) -> None:
        """Wait until the lines are in the sink's file, and the positions of the sources are stored."""
        until(lambda: written() == sorted(lines), written)
        for source, file in files.items():
            until(lambda source=source, file=file: worker.position(source) == file.stat().st_size, worker.process.tail)  # type: ignore[misc]

    source = {
        "connector.class": "FileStreamSource",
        "topic": topic,
        "topic.creation.default.partitions": "2",
        "topic.creation.default.replication.factor": "-1",
    }
    to_file = {"connector.class": "FileStreamSink", "topics": topic, "file": str(sink)}
    with _workers(bootstrap, name, tmp_path) as (killed, other):
        write()
        for connector, file in files.items():
            killed.configure(connector, {**source, "file": str(file)})
        # A sink would have the topic created automatically, with one partition.
        until(lambda: topic in client.topics(), killed.process.tail)
        other.configure("sink", to_file)
        other.configure("sink", {**to_file, "tasks.max": "2"})
        _run(tasks, killed, other)
        moved(other)
        write()
        moved(other)
        killed.process.kill()
        _run(tasks, other)
        write()
        moved(other)
        # A last segment is not compacted, so the replaced configs stay until there are others.
        other.configure("sink", {**to_file, "tasks.max": "2"})
    # Of the three positions of a source, only the first one.
    compacted(bootstrap, *(f"{name}-{what}" for what in ("offsets", "configs", "status")))
    restart_broker()
    with _workers(bootstrap, name, tmp_path) as (one, other):
        _run(tasks, one, other)
        assert one.get("/connectors/sink/config") == {**to_file, "tasks.max": "2", "name": "sink"}
        write()
        moved(one)
    # The sources have read each line once.
    assert sum(client.offsets(topic, partition=each)[1] for each in range(2)) == len(lines)
    assert policies(bootstrap, name) == {
        f"{name}-configs": "compact",
        f"{name}-lines": "",
        f"{name}-offsets": "compact",
        f"{name}-status": "compact",
    }
