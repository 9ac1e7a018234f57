"""A client of another language: a program that reads commands as JSON lines and answers a line to each."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.clients.interface import (
    COOPERATIVE,
    PLAIN,
    QUICK_FETCH_MS,
    QUICK_HEARTBEAT_MS,
    RANGE,
    ROUND_ROBIN,
    STICKY,
    Message,
    ProduceOptions,
    Record,
)

ALL_ASSIGNORS: Mapping[str, str] = {name: name for name in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE)}


class PipedError(Exception):
    """The error message of the client."""


class PipedClient:
    """Starts ``command`` with the brokers' addresses as its last argument. It uses the client's defaults.

    ``security``: what it needs for TLS and SASL, as JSON in the variable CLIENT_SECURITY.

    It answers ``{"op": "seek", "member": 1, ...}`` with ``{"result": ...}``, or ``{"error": ...}`` with the client's
    message.
    """

    topic_configs: Mapping[str, str] = {}
    lacks: Mapping[str, str] = {}

    def __init__(self, command: Sequence[str], bootstrap: str, security: Mapping[str, str] | None = None) -> None:
        env = {**os.environ, **({"CLIENT_SECURITY": json.dumps(dict(security))} if security else {})}
        self._process = subprocess.Popen([*command, bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self._members = 0

    def call(self, op: str, **arguments: object) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the program was started without pipes")
        stdin.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} exited with status {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise PipedError(answer["error"])
        return answer["result"]

    def produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions = PLAIN) -> list[int] | None:
        values = [(message.value or b"").decode() for message in messages]
        self.call("produce", topic=topic, values=values, partition=options.partition)
        return None

    def member(
        self, topic: str, group: str, *, assignor: str | None = None, auto_commit: bool = True, quick: bool = False
    ) -> "PipedMember":
        self._members += 1
        self.call(
            "open",
            member=self._members,
            topic=topic,
            group=group,
            assignor=assignor,
            auto_commit=auto_commit,
            heartbeat_ms=QUICK_HEARTBEAT_MS if quick else None,
            fetch_ms=QUICK_FETCH_MS if quick else None,
        )
        return PipedMember(self, self._members)

    def offset_for_time(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        found: int | None = self.call("offsets_for_time", topic=topic, at=timestamp)[str(partition)]
        return found

    def committed(self, group: str, topic: str) -> dict[int, int]:
        return {int(partition): at for partition, at in self.call("committed", group=group, topic=topic).items()}

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self.call("create_topic", topic=topic, partitions=partitions, configs=dict(configs or {}))

    def topics(self) -> set[str]:
        return set(self.call("topics"))

    def partitions(self, topic: str) -> int:
        return int(self.call("partitions", topic=topic))

    def create_partitions(self, topic: str, total: int) -> None:
        self.call("create_partitions", topic=topic, total=total)

    def delete_topic(self, topic: str) -> None:
        self.call("delete_topic", topic=topic)

    def configs(self, topic: str) -> dict[str, str | None]:
        return dict(self.call("configs", topic=topic))

    def alter_config(self, topic: str, name: str, value: str) -> None:
        self.call("alter_config", topic=topic, name=name, value=value)

    def groups(self) -> set[str]:
        return set(self.call("groups"))

    def describe_group(self, group: str) -> tuple[str, int]:
        state, members = self.call("describe_group", group=group)
        return str(state).lower(), int(members)

    def delete_group(self, group: str) -> None:
        self.call("delete_group", group=group)

    def close(self) -> None:
        """Close the input of the program, which then exits."""
        self._process.communicate(timeout=60)


class PipedMember:
    """A member, which the program identifies by a number."""

    def __init__(self, client: PipedClient, number: int) -> None:
        self._client = client
        self._number = number

    def _call(self, op: str, **arguments: object) -> Any:
        return self._client.call(op, member=self._number, **arguments)

    def poll(self, seconds: float) -> list[Record]:
        return [Record(*record) for record in self._call("poll", ms=int(1000 * seconds))]

    def assigned(self) -> set[int]:
        return set(self._call("assigned"))

    def commit(self, offsets: Mapping[int, int]) -> None:
        self._call("commit", offsets={str(partition): offset for partition, offset in offsets.items()})

    def seek(self, partition: int, offset: int) -> None:
        self._call("seek", partition=partition, offset=offset)

    def pause(self, partition: int) -> None:
        self._call("pause", partition=partition)

    def resume(self, partition: int) -> None:
        self._call("resume", partition=partition)

    def close(self) -> None:
        self._call("close")
