"""kcat, one process a call."""

import itertools
import re
import subprocess
from collections.abc import Sequence

from tests.servers.tools import tool
from tests.support.clients.interface import (
    LARGEST_REQUEST,
    LINGER_MS,
    MESSAGE_TOO_LARGE,
    PLAIN,
    TIMEOUT_SECONDS,
    UNKNOWN_TOPIC_OR_PARTITION,
    Abilities,
    ClientError,
    Headers,
    Message,
    ProduceOptions,
    Received,
)

_CODES = {
    "Message size too large": MESSAGE_TOO_LARGE,
    "Unknown topic or partition": UNKNOWN_TOPIC_OR_PARTITION,
}
# No test's keys or values contain these.
_KEY_END = "\x02\x03\x02\x03"
_MESSAGE_END = "\x03\x02\x03\x02"


class KcatClient:
    name = "kcat"
    # It has no admin commands, takes no timestamps and no null header values.
    abilities = Abilities(timestamps=False, null_headers=False)

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._kcat = tool("kcat", "kcat")

    def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        command = [self._kcat, "-b", self._bootstrap, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
        if done.returncode != 0:
            text = done.stderr.decode(errors="replace")
            raise ClientError(next((code for words, code in _CODES.items() if words in text), -1), text)
        return done.stdout

    def produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions = PLAIN) -> None:
        for (headers, null_key, null_value), group in itertools.groupby(messages, _one_call):
            arguments = ["-P", "-t", topic, "-p", str(options.partition), "-D", _MESSAGE_END]
            arguments += [] if null_key else ["-K", _KEY_END]
            arguments += ["-Z"] if null_value else []
            for name, value in headers:
                arguments += ["-H", f"{name}={(value or b'').decode()}"]
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

    def close(self) -> None:
        pass


def _one_call(message: Message) -> tuple[Headers, bool, bool]:
    """Neighbours for which this is equal go through one kcat: its switches hold for all that it sends."""
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
