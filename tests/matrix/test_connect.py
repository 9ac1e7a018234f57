"""Kafka Connect in standalone mode copies lines of a file through a topic into another file."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers.apache_kafka import SHORT_LIVED, java
from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess
from tests.support.clients.confluent import ConfluentClient
from tests.support.kafka_tools import KafkaTools, Row

TOPIC = "connect-test"
GROUP = "connect-local-file-sink"
PATIENCE = 120.0

# Kafka's config/connect-standalone.properties, connect-file-source.properties and connect-file-sink.properties, with
# changed addresses and paths.
WORKER = """\
bootstrap.servers={bootstrap}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=true
value.converter.schemas.enable=true
offset.storage.file.filename={directory}/connect.offsets
offset.flush.interval.ms=10000
listeners=HTTP://127.0.0.1:{port}
"""
SOURCE = """\
name=local-file-source
connector.class=FileStreamSource
tasks.max=1
file={directory}/test.txt
topic=connect-test
"""
SINK = """\
name=local-file-sink
connector.class=FileStreamSink
tasks.max=1
file={directory}/test.sink.txt
topics=connect-test
"""


class Files:
    """The source file and the sink file."""

    def __init__(self, directory: Path) -> None:
        self._source, self._sink = directory / "test.txt", directory / "test.sink.txt"

    def write(self, *lines: str) -> None:
        with self._source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def written(self) -> list[str]:
        return self._sink.read_text().splitlines() if self._sink.exists() else []


@pytest.fixture
def worker(bootstrap: str, tmp_path: Path) -> list[str]:
    """Return the command line of a worker with both connectors."""
    (port,) = free_ports(1)
    settings = []
    for name, text in {"worker": WORKER, "source": SOURCE, "sink": SINK}.items():
        file = tmp_path / f"{name}.properties"
        file.write_text(text.format(bootstrap=bootstrap, directory=tmp_path, port=port))
        settings.append(str(file))
    return java("org.apache.kafka.connect.cli.ConnectStandalone", *settings, options=SHORT_LIVED)


@contextmanager
def _running(worker: list[str], directory: Path) -> Iterator[None]:
    with ServerProcess(worker, log=directory / "connect.log") as process:
        try:
            yield
        finally:
            print(process.tail())


def _until(true: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def test_connect_copies_lines_and_continues_after_a_restart(
    tools: KafkaTools, bootstrap: str, worker: list[str], tmp_path: Path
) -> None:
    files = Files(tmp_path)
    lines = [f"line {number}" for number in range(30)]

    def described(*what: str) -> Row:
        (row,) = tools.run("kafka-consumer-groups", "--describe", "--group", GROUP, *what).rows()
        return row

    files.write(*lines[:10])
    with _running(worker, tmp_path):
        _until(lambda: files.written() == lines[:10], files.written)
        files.write(*lines[10:20])
        _until(lambda: files.written() == lines[:20], files.written)
        assert (described("--state")["STATE"], described("--state")["#MEMBERS"]) == ("Stable", "1")
        assert described("--members", "--verbose")["CURRENT-ASSIGNMENT"] == f"{TOPIC}:0"
    assert ConfluentClient(bootstrap).offsets(TOPIC) == (0, 20)
    # A worker commits its sink's offsets when it stops.
    assert (described()["CURRENT-OFFSET"], described()["LAG"], described()["CONSUMER-ID"]) == ("20", "0", "-")

    files.write(*lines[20:])
    with _running(worker, tmp_path):
        _until(lambda: len(files.written()) >= len(lines), files.written)
    assert files.written() == lines
    assert ConfluentClient(bootstrap).offsets(TOPIC) == (0, 30)
    assert (described()["CURRENT-OFFSET"], described()["LAG"]) == ("30", "0")
