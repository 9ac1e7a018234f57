"""Kafka Connect in distributed mode: what its workers know is in three compacted topics."""

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ecosystem.programs import PATIENCE, compacted, policies, until
from tests.servers.apache_kafka import SHORT_LIVED, java
from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess
from tests.support.clients.confluent import ConfluentClient

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


class Rest:
    """A worker's REST interface."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> Any:
        """None where there is no answer yet."""
        with contextlib.suppress(urllib.error.URLError, ConnectionError), self._open(path) as reply:
            return json.load(reply)
        return None

    def create(self, connector: str, **config: str) -> None:
        body = json.dumps(
            {"name": connector, "config": {name.replace("_", "."): text for name, text in config.items()}}
        )
        with self._open("/connectors", body.encode()) as reply:
            assert reply.status == 201

    def _open(self, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(f"{self._base}{path}", body, {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=PATIENCE)

    def states(self, connector: str) -> list[str]:
        """Of the connector, then of its tasks."""
        status = self.get(f"/connectors/{connector}/status")
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])] if status else []


@contextmanager
def _worker(bootstrap: str, name: str, directory: Path) -> Iterator[tuple[ServerProcess, Rest]]:
    (port,) = free_ports(1)
    settings = directory / "worker.properties"
    settings.write_text(WORKER.format(bootstrap=bootstrap, name=name, port=port))
    command = java("org.apache.kafka.connect.cli.ConnectDistributed", str(settings), options=SHORT_LIVED)
    with ServerProcess(command, log=directory / "connect.log") as process:
        rest = Rest(port)
        try:
            until(lambda: rest.get("/connectors") is not None, process.tail)
            yield process, rest
        finally:
            print(process.tail())


def test_a_worker_goes_on_with_connectors_and_offsets_where_a_killed_one_was(
    bootstrap: str, client: ConfluentClient, name: str, tmp_path: Path
) -> None:
    source, sink, topic = tmp_path / "source.txt", tmp_path / "sink.txt", f"{name}-lines"
    lines = [f"line {number}" for number in range(30)]

    def write(*some: str) -> None:
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in some)

    def written() -> list[str]:
        return sink.read_text().splitlines() if sink.exists() else []

    write(*lines[:10])
    with _worker(bootstrap, name, tmp_path) as (process, rest):
        rest.create("source", connector_class="FileStreamSource", tasks_max="1", file=str(source), topic=topic)
        rest.create("sink", connector_class="FileStreamSink", tasks_max="1", file=str(sink), topics=topic)
        until(lambda: written() == lines[:10], written)
        for stored, begin in enumerate(range(10, 20, 2), 2):
            write(*lines[begin : begin + 2])
            until(lambda end=begin + 2: written() == lines[:end], written)  # type: ignore[misc]
            # The source's position is stored.
            until(
                lambda stored=stored: (  # type: ignore[misc]
                    sum(client.offsets(f"{name}-offsets", partition=each)[1] for each in range(25)) >= stored
                ),
                written,
            )
        process.kill()
    compacted(bootstrap, f"{name}-offsets", f"{name}-configs", f"{name}-status")
    with _worker(bootstrap, name, tmp_path) as (process, rest):
        until(lambda: [rest.states(each) for each in ("source", "sink")] == [["RUNNING"] * 2] * 2, process.tail)
        write(*lines[20:])
        until(lambda: written()[-1:] == lines[-1:], written)
        # The sink may write again what it had not committed; the source has read each line once.
        assert list(dict.fromkeys(written())) == lines
        assert client.offsets(topic) == (0, 30)
    assert policies(bootstrap, name) == {
        f"{name}-configs": "compact",
        f"{name}-lines": "",
        f"{name}-offsets": "compact",
        f"{name}-status": "compact",
    }
