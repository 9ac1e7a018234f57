"""Programs that are asked on standard input and killed, what topics they make, and waiting for what they do."""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigSource
from confluent_kafka.admin._resource import ResourceType

from tests.support.clients.confluent import ConfluentClient
from tests.support.configs import changed, described

PATIENCE = 120.0


def until(true: Callable[[], bool], what: Callable[[], object]) -> None:
    """Wait until it is true; else fail with ``what`` there is instead."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def policies(bootstrap: str, *prefixes: str) -> dict[str, str]:
    """The topics that begin with one of these, each with the cleanup policy that it sets itself; empty: none."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = {}
    for topic in sorted(admin.list_topics(timeout=PATIENCE).topics):
        if topic.startswith(prefixes):
            policy = described(admin, ResourceType.TOPIC, topic)["cleanup.policy"]
            own = ConfigSource(policy.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
            found[topic] = str(policy.value) if own else ""
    return found


def committed(bootstrap: str, group: str) -> dict[str, int]:
    """How many records of each topic a group has committed."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = [ConsumerGroupTopicPartitions(group)]
    found: Counter[str] = Counter()
    for one in admin.list_consumer_group_offsets(asked)[group].result(PATIENCE).topic_partitions:
        found[one.topic] += max(one.offset, 0)
    return dict(found)


def compacted(bootstrap: str, *topics: str) -> None:
    """Have the topics compacted from now on, and wait until records of each are gone."""
    admin, client = AdminClient({"bootstrap.servers": bootstrap}), ConfluentClient(bootstrap)
    configs = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0"}
    for topic in topics:
        changed(admin, topic, *((name, AlterConfigOpType.SET, value) for name, value in configs.items()))
    for topic in topics:
        _shrunk(client, topic)


def _shrunk(client: ConfluentClient, topic: str) -> None:
    ends = {each: client.offsets(topic, partition=each)[1] for each in range(client.partitions(topic))}
    written = sum(ends.values())

    def left() -> int:
        return sum(len(client.consume_all(topic, partition=each)) for each, end in ends.items() if end)

    until(lambda: left() < written, left)


class Answering:
    """A program that answers each line of its standard input by a line of numbers.

    It prints READY when its state is restored. Leaving the ``with`` block kills it.
    """

    READY = "RUNNING"

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **(env or {})},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if error is not None:
            print(Path(self._log.name).read_text(errors="replace")[-8000:])

    def ready(self) -> None:
        line = self._line()
        assert line == self.READY, line

    def ask(self, question: str = "") -> list[int]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        return [int(number) for number in self._line().split()]

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


class Counting(Answering):
    """A program that counts words, and answers a word by its counts."""

    def counts(self, word: str) -> list[int]:
        """In its stores, one after the other; 0 where it does not know the word."""
        return self.ask(word)

    def counted(self, word: str, *expected: int) -> None:
        """Wait until the counts are these."""
        until(lambda: self.counts(word) == list(expected), lambda: f"{word}: {self.counts(word)}")
