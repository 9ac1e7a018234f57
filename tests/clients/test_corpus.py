"""100 MB of real text, line by line, produced by kcat and consumed by confluent-kafka and kcat, stay identical."""

import hashlib
import subprocess
import time
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.clients.corpus import write_corpus
from tests.servers.tools import tool
from tests.support.clients.confluent import ConfluentClient


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    path = tmp_path_factory.mktemp("corpus") / "lines"
    return path, write_corpus(path)


def _digest_of_log(bootstrap: str, topic: str, lines: int) -> str:
    """Return a digest of each record's value and a newline, in the order of offsets, read with confluent-kafka."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = ck.Consumer({**settings, "auto.offset.reset": "error"})
    digest = hashlib.sha256()
    offset = 0
    deadline = time.monotonic() + 240
    try:
        consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
        while offset < lines and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=1):
                assert message.error() is None
                assert message.offset() == offset
                digest.update((message.value() or b"") + b"\n")
                offset += 1
    finally:
        consumer.close()
    assert offset == lines
    return digest.hexdigest()


@pytest.mark.timeout(600)
def test_100_mb_of_text_are_consumed_as_they_were_produced(
    bootstrap: str, topic: str, corpus: tuple[Path, int]
) -> None:
    path, lines = corpus
    with path.open("rb") as text:
        wanted = hashlib.file_digest(text, "sha256").hexdigest()
    produce = [tool("kcat", "kcat"), "-P", "-b", bootstrap, "-t", topic, "-p", "0", "-X", "acks=all", "-l", str(path)]
    subprocess.run(produce, check=True, timeout=300)
    assert ConfluentClient(bootstrap).offsets(topic) == (0, lines)
    assert _digest_of_log(bootstrap, topic, lines) == wanted

    consume = ["kcat", "-C", "-q", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-e", "-f", r"%s\n"]
    digest = hashlib.sha256()
    with subprocess.Popen(consume, stdout=subprocess.PIPE) as reader:
        if reader.stdout is None:
            raise RuntimeError("kcat was started without a pipe")
        while chunk := reader.stdout.read(1 << 20):
            digest.update(chunk)
    assert reader.returncode == 0
    assert digest.hexdigest() == wanted
