"""kcat: a process for each call, and one that runs for each member of a group."""

import queue
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, cast

from tests.servers.tools import tool
from tests.support.drivers.interface import (
    COOPERATIVE,
    QUICK_HEARTBEAT_MS,
    RANGE,
    ROUND_ROBIN,
    SECONDS,
    Member,
    Record,
    polled,
)

_NO_ADMIN = "kcat has no admin commands but -L"
_NO_COMMANDS = "kcat takes no commands while it consumes: a start offset is all that it is told"


class KcatDriver:
    name = "kcat"
    idempotent = False
    assignors: Mapping[str, str] = {RANGE: RANGE, ROUND_ROBIN: ROUND_ROBIN, COOPERATIVE: COOPERATIVE}
    topic_configs: Mapping[str, str] = {}
    lacks: Mapping[str, str] = {
        **dict.fromkeys(("commit", "seek", "pause", "resume"), _NO_COMMANDS),
        **dict.fromkeys(
            ("create_topic", "create_partitions", "delete_topic", "configs", "alter_config", "committed"), _NO_ADMIN
        ),
        **dict.fromkeys(("groups", "describe_group", "delete_group"), _NO_ADMIN),
    }

    def __init__(self, bootstrap: str) -> None:
        self._kcat = [tool("kcat", "kcat"), "-b", bootstrap]
        told = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
        version = re.search(r"Version (\S+) .*librdkafka (\S+)", told)
        if version is None:
            raise RuntimeError(told)
        self.version = f"{version[1]}, librdkafka {version[2]}"

    def _run(self, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [*self._kcat, *arguments], input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout

    def produce(self, topic: str, values: Sequence[str], partition: int | None = None) -> None:
        to = [] if partition is None else ["-p", str(partition)]
        self._run("-P", "-t", topic, *to, stdin="".join(f"{value}\n" for value in values))

    def member(
        self, topic: str, group: str, *, assignor: str | None = None, auto_commit: bool = True, quick: bool = False
    ) -> Member:
        settings = ["-X", "auto.offset.reset=earliest"]
        if assignor:
            settings += ["-X", f"partition.assignment.strategy={assignor}"]
        if not auto_commit:
            settings += ["-X", "enable.auto.commit=false"]
        if quick:
            settings += ["-X", f"heartbeat.interval.ms={QUICK_HEARTBEAT_MS}"]
        member = _Member([*self._kcat, *settings, "-u", "-f", r"%p %o %s\n", "-G", group, topic])
        return cast(Member, member)  # but for what `lacks` names

    def offsets_for_time(self, topic: str, timestamp: int) -> dict[int, int | None]:
        asked = [word for number in range(self.partitions(topic)) for word in ("-t", f"{topic}:{number}:{timestamp}")]
        found = re.findall(r"\[(\d+)\] offset (-?\d+)", self._run("-Q", *asked))
        return {int(partition): None if int(offset) < 0 else int(offset) for partition, offset in found}

    def topics(self) -> set[str]:
        return set(re.findall(r'topic "([^"]+)" with', self._run("-L")))

    def partitions(self, topic: str) -> int:
        found = re.search(rf'topic "{re.escape(topic)}" with (\d+) partitions', self._run("-L", "-t", topic))
        if found is None:
            raise RuntimeError(f"kcat lists no topic {topic}")
        return int(found[1])

    def close(self) -> None:
        pass


class _Member:
    """A kcat that runs until it is closed; what it prints is read by two threads."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._records: queue.SimpleQueue[Record] = queue.SimpleQueue()
        self._assigned: set[int] = set()
        self._said: list[str] = []
        streams = (self._process.stdout, self._take), (self._process.stderr, self._hear)
        self._readers = [threading.Thread(target=_each_line, args=each, daemon=True) for each in streams]
        for reader in self._readers:
            reader.start()

    def _take(self, line: str) -> None:
        partition, offset, value = line.rstrip("\n").split(" ", 2)
        self._records.put(Record(int(partition), int(offset), value))

    def _hear(self, line: str) -> None:
        self._said.append(line)
        change = re.match(r"% Group \S+ rebalanced.*?(assign|revoke)", line)
        if change is None:
            return
        partitions = {int(number) for number in re.findall(r"\[(\d+)\]", line)}
        if change[1] == "assign":
            self._assigned |= partitions
        else:
            self._assigned -= partitions

    def poll(self, seconds: float) -> list[Record]:
        if self._process.poll() is not None:
            raise RuntimeError("".join(self._said))
        return polled(self._records, seconds)

    def assigned(self) -> set[int]:
        return set(self._assigned)

    def close(self) -> None:
        """As its user does, with Ctrl-C: it leaves the group."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            for reader in self._readers:
                reader.join()
            for stream in (self._process.stdout, self._process.stderr):
                if stream is not None:
                    stream.close()


def _each_line(stream: IO[str] | None, take: Callable[[str], None]) -> None:
    for line in stream or ():
        take(line)
