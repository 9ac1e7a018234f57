"""kcat: a process for each call, and one that runs for each member of a group."""

import itertools
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, cast

from tests.servers.tools import tool
from tests.support.clients.interface import (
    COOPERATIVE,
    LARGEST_REQUEST,
    LINGER_MS,
    MESSAGE_TOO_LARGE,
    PLAIN,
    QUICK_HEARTBEAT_MS,
    RANGE,
    ROUND_ROBIN,
    TIMEOUT_SECONDS,
    UNKNOWN_TOPIC_OR_PARTITION,
    Abilities,
    ClientError,
    Headers,
    Member,
    Message,
    ProduceOptions,
    Received,
    Record,
    polled,
)

_CODES = {
    "Message size too large": MESSAGE_TOO_LARGE,
    "Unknown topic or partition": UNKNOWN_TOPIC_OR_PARTITION,
}
_NO_ADMIN = "kcat has no admin commands except -L"
_NO_COMMANDS = "kcat takes no commands while it consumes, only a start offset"
# No test's keys or values contain these.
_KEY_END = "\x02\x03\x02\x03"
_MESSAGE_END = "\x03\x02\x03\x02"


class KcatClient:
    name = "kcat"
    # It has no admin commands, takes no timestamps and no null header values.
    abilities = Abilities(timestamps=False, null_headers=False)

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
        output = subprocess.run([self._kcat[0], "-V"], capture_output=True, text=True, check=True).stdout
        version = re.search(r"Version (\S+) .*librdkafka (\S+)", output)
        if version is None:
            raise RuntimeError(output)
        self.version = f"{version[1]}, librdkafka {version[2]}"

    def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        command = [*self._kcat, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
        if done.returncode != 0:
            text = done.stderr.decode(errors="replace")
            raise ClientError(next((code for words, code in _CODES.items() if words in text), -1), text)
        return done.stdout

    def produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions = PLAIN) -> None:
        for (headers, null_key, null_value), group in itertools.groupby(messages, _one_call):
            arguments = ["-P", "-t", topic, "-D", _MESSAGE_END]
            arguments += [] if options.partition is None else ["-p", str(options.partition)]
            arguments += [] if null_key else ["-K", _KEY_END]
            arguments += ["-Z"] if null_value else []
            for name, value in headers:
                arguments += ["-H", f"{name}={(value or b'').decode()}"]
            if not options.defaults:
                arguments += ["-X", f"acks={options.acks}", "-X", f"message.max.bytes={LARGEST_REQUEST}"]
                arguments += ["-X", "enable.idempotence=false", "-X", f"linger.ms={LINGER_MS}", "-z", options.codec]
            lines = [
                (b"" if null_key else (message.key or b"") + _KEY_END.encode()) + (message.value or b"")
                for message in group
            ]
            self._run(*arguments, stdin=b"".join(line + _MESSAGE_END.encode() for line in lines))

    def consume(self, topic: str, *, count: int, offset: int | None = None, partition: int = 0) -> list[Received]:
        where = "beginning" if offset is None else str(offset)
        arguments = ["-C", "-t", topic, "-p", str(partition), "-o", where, "-c", str(count), "-e"]
        arguments += ["-X", f"fetch.message.max.bytes={LARGEST_REQUEST}", "-f", r"%o %T %K %S %h\n%k%s\n"]
        return _parse(self._run(*arguments))

    def offset_for_time(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        found = self._query(topic, partition, timestamp)
        return None if found < 0 else found

    def offsets(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        return self._query(topic, partition, -2), self._query(topic, partition, -1)

    def _query(self, topic: str, partition: int, timestamp: int) -> int:
        output = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp}").decode()
        match = re.search(r"offset (-?\d+)", output)
        if match is None:
            raise ClientError(-1, output)
        return int(match[1])

    def touch(self, topic: str, *, auto_create: bool) -> None:
        self._run("-C", "-t", topic, "-p", "0", "-e", "-X", f"allow.auto.create.topics={str(auto_create).lower()}")

    def topics(self) -> set[str]:
        return set(re.findall(r'topic "([^"]+)" with', self._run("-L").decode()))

    def partitions(self, topic: str) -> int:
        found = re.search(rf'topic "{re.escape(topic)}" with (\d+) partitions', self._run("-L", "-t", topic).decode())
        if found is None:
            raise RuntimeError(f"kcat lists no topic {topic}")
        return int(found[1])

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
        return cast(Member, member)  # except for the methods in `lacks`

    def close(self) -> None:
        pass


def _one_call(message: Message) -> tuple[Headers, bool, bool]:
    """Return a key: consecutive messages with equal keys are sent by one kcat, whose options apply to all of them."""
    return (message.headers, message.key is None, message.value is None)


def _parse(output: bytes) -> list[Received]:
    received = []
    at = 0
    while at < len(output):
        line_end = output.index(b"\n", at)
        offset, timestamp, key_size, value_size, headers = output[at:line_end].split(b" ", 4)
        at = line_end + 1
        parts: list[bytes | None] = []
        for size in (int(key_size), int(value_size)):
            parts.append(None if size < 0 else output[at : at + size])
            at += max(size, 0)
        at += 1
        received.append(
            Received(
                offset=int(offset),
                timestamp=int(timestamp),
                key=parts[0],
                value=parts[1],
                headers=_headers(headers.decode()),
            )
        )
    return received


def _headers(text: str) -> Headers:
    pairs = [item.split("=", 1) for item in text.split(",") if item]
    return tuple((name, None if value == "NULL" else value.encode()) for name, value in pairs)


class _Member:
    """A kcat that runs until it is closed; two threads read its output."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._records: queue.SimpleQueue[Record] = queue.SimpleQueue()
        self._assigned: set[int] = set()
        self._errors: list[str] = []
        streams = (self._process.stdout, self._take), (self._process.stderr, self._take_error)
        self._readers = [threading.Thread(target=_each_line, args=each, daemon=True) for each in streams]
        for reader in self._readers:
            reader.start()

    def _take(self, line: str) -> None:
        partition, offset, value = line.rstrip("\n").split(" ", 2)
        self._records.put(Record(int(partition), int(offset), value))

    def _take_error(self, line: str) -> None:
        self._errors.append(line)
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
            raise RuntimeError("".join(self._errors))
        return polled(self._records, seconds)

    def assigned(self) -> set[int]:
        return set(self._assigned)

    def close(self) -> None:
        """Interrupt it like a user with Ctrl-C, so it leaves the group."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(TIMEOUT_SECONDS)
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
