"""The producers and readers of a chaos run. Each is a process whose output lines are kept and counted."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import trio

from tests.servers.java import classpath
from tests.support.chaos.history import RECONNECTING, RETRYING
from tests.support.chaos.workload import KEYS, Logs
from tests.support.checker import IDEMPOTENT, UNORDERED, Promise

TOPIC = "chaos"
PARTITIONS = 4
LOGS = Logs([TOPIC], PARTITIONS)
DELIVERY_MS = 600_000
"""The delivery timeout of producers."""
COMMITTED_BY_CLIENT = ("enable.auto.commit=true", "auto.commit.interval.ms=500")
"""Settings of groups whose client library commits and repeats failed commits, which it does not report as errors."""
_RATE = "150"
_REWIND_SECONDS = "7"
LAST_READER = "librdkafka-last"
"""The name of the checker's witness, the last of the `last_readers`."""
_JAVA = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
_READ_BYTES = 1 << 16


@dataclass(eq=False)
class Client:
    """`run` starts the process and reads its lines. `stop` lets it finish its current work."""

    name: str
    argv: Sequence[str]
    directory: Path
    logs: Logs = LOGS
    acked: dict[int, int] = field(default_factory=dict)
    """Acks by log."""
    highest: dict[int, int] = field(default_factory=dict)
    """The offset after the highest one acked or the last one read, by log."""
    given: dict[int, int] = field(default_factory=dict)
    """Numbers of partitions by member of a group."""
    read: int = 0
    status: int | None = None
    _process: trio.Process | None = None
    _ended: trio.Event = field(default_factory=trio.Event)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until the process has ended. Report started when the process has started."""
        with (self.directory / f"{self.name}.stderr").open("wb") as errors:
            self._process = process = await trio.lowlevel.open_process(
                list(self.argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        try:
            task_status.started()
            await self._take_lines(process)
            self.status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        await stream.aclose()
            self._ended.set()

    async def stop(self) -> None:
        """Close its standard input, which asks it to finish."""
        if self._process is not None and self._process.stdin is not None:
            await self._process.stdin.aclose()

    async def wait(self) -> None:
        await self._ended.wait()

    async def end(self) -> None:
        """Kill it if it was started."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._ended.wait()

    async def _take_lines(self, process: trio.Process) -> None:
        assert process.stdout is not None
        rest = b""
        with (self.directory / f"{self.name}.history").open("wb") as history:
            async for data in process.stdout:
                whole, newline, rest = (rest + data).rpartition(b"\n")
                history.write(whole + newline)
                for line in whole.splitlines():
                    self._count(line.split(maxsplit=4))

    def _count(self, words: list[bytes]) -> None:
        letter = words[1]
        if letter == b"a":
            partition = int(words[2])
            self.acked[partition] = self.acked.get(partition, 0) + 1
            self.highest[partition] = max(self.highest.get(partition, 0), int(words[4]) + 1)
        elif letter == b"r":
            self.read += 1
            self.highest[int(words[2])] = int(words[3]) + 1
        elif letter == b"g":
            member = int(words[2])
            self.given[member] = self.given.get(member, 0) + int(words[3])


def producers(bootstrap: str, directory: Path, logs: Logs = LOGS) -> dict[Client, Promise]:
    """Producers with and without idempotence, otherwise with default settings, and what each may rely on.

    Records of the same key are those of idempotent producers, so that what a compacted log may lack is known exactly.
    Only their delivery timeouts are longer, and librdkafka's pauses shorter, so that a slow machine does not cause
    failures. Only Java shows that nothing is repeated: even with retries=0, librdkafka 2.16 sends requests in flight
    again if Metadata no longer lists their broker, because it considers them unwritten.
    """
    where = [bootstrap, ",".join(logs.topics), str(logs.count)]
    librdkafka = [sys.executable, "-m", "tests.support.chaos.librdkafka", "produce", *where]
    java = [*_JAVA, classpath("client"), "kafscale.client.NumberedProducer", *where]
    soon = "reconnect.backoff.max.ms=1000"
    once = [
        "acks=all",
        "enable.idempotence=false",
        "retries=0",
        "delivery.timeout.ms=30000",
        "request.timeout.ms=15000",
    ]
    kinds: dict[str, tuple[list[str], list[str], Promise]] = {
        "librdkafka": (librdkafka, ["enable.idempotence=true", soon, f"message.timeout.ms={DELIVERY_MS}"], IDEMPOTENT),
        "librdkafka-plain": (librdkafka, ["acks=all", soon, f"message.timeout.ms={DELIVERY_MS}"], UNORDERED),
        "java": (java, [f"delivery.timeout.ms={DELIVERY_MS}", f"max.block.ms={DELIVERY_MS}"], IDEMPOTENT),
        "java-once": (java, once, RECONNECTING),
    }
    return {
        Client(name, [*program, name, _RATE, str(shared_keys(promise)), *settings], directory, logs): promise
        for name, (program, settings, promise) in kinds.items()
    }


def shared_keys(promise: Promise) -> int:
    """Return how many keys the records of such a producer share, besides those of their own."""
    return KEYS if promise == IDEMPOTENT else 0


def default_producers(bootstrap: str, directory: Path) -> dict[Client, Promise]:
    """Producers with default settings, and librdkafka also with idempotence, which is Java's default.

    Without idempotence librdkafka keeps no order: it sends more batches while a refused one waits for its retry, to
    Kafka as well.
    """
    where = [bootstrap, TOPIC, str(PARTITIONS)]
    librdkafka = [sys.executable, "-m", "tests.support.chaos.librdkafka", "produce", *where]
    java = [*_JAVA, classpath("client"), "kafscale.client.NumberedProducer", *where]
    kinds: dict[str, tuple[list[str], list[str], Promise]] = {
        "librdkafka": (librdkafka, [], RETRYING),
        "librdkafka-idempotent": (librdkafka, ["enable.idempotence=true"], IDEMPOTENT),
        "java": (java, [], IDEMPOTENT),
    }
    return {
        Client(name, [*program, name, _RATE, "0", *settings], directory): promise
        for name, (program, settings, promise) in kinds.items()
    }


def groups(bootstrap: str, directory: Path, *settings: str) -> list[Client]:
    """Two groups of two members, with default settings except for ``settings``."""
    librdkafka = [sys.executable, "-m", "tests.support.chaos.librdkafka", "join", bootstrap, TOPIC, "librdkafka-group"]
    java = [*_JAVA, classpath("client"), "kafscale.client.GroupReader", bootstrap, TOPIC, "java-group"]
    return [
        Client("librdkafka-group", [*librdkafka, *settings], directory),
        Client("java-group", [*java, *settings], directory),
    ]


def readers(bootstrap: str, directory: Path, logs: Logs = LOGS) -> list[Client]:
    """The readers during the faults. The first one now and then starts again from earlier offsets."""
    where = [bootstrap, ",".join(logs.topics), str(logs.count)]
    librdkafka = [sys.executable, "-m", "tests.support.chaos.librdkafka", "read", *where, _REWIND_SECONDS]
    java = [*_JAVA, classpath("client"), "kafscale.client.AssignedReader", "read", *where]
    return [Client("librdkafka-reader", librdkafka, directory, logs), Client("java-reader", java, directory, logs)]


def last_readers(bootstrap: str, directory: Path, logs: Logs = LOGS) -> list[Client]:
    """The readers that read everything once at the end. The last of them is the checker's witness."""
    where = [bootstrap, ",".join(logs.topics), str(logs.count)]
    java = [*_JAVA, classpath("client"), "kafscale.client.AssignedReader", "reread", *where]
    librdkafka = [sys.executable, "-m", "tests.support.chaos.librdkafka", "reread", *where]
    return [Client("java-last", java, directory, logs), Client(LAST_READER, librdkafka, directory, logs)]
