"""Kafka's own Java client, in one JVM that answers commands (tests/java/client)."""

import base64
import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from tests.servers.java import classpath
from tests.support.clients.interface import (
    INVALID_CONFIG,
    INVALID_TOPIC,
    LARGEST_REQUEST,
    LINGER_MS,
    MESSAGE_TOO_LARGE,
    PLAIN,
    TIMEOUT_SECONDS,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    Abilities,
    ClientError,
    Message,
    ProduceOptions,
    Received,
)

_CODES = {
    "InvalidConfigurationException": INVALID_CONFIG,
    "InvalidTopicException": INVALID_TOPIC,
    "RecordTooLargeException": MESSAGE_TOO_LARGE,
    "TopicExistsException": TOPIC_ALREADY_EXISTS,
    "UnknownTopicOrPartitionException": UNKNOWN_TOPIC_OR_PARTITION,
}


class JavaClient:
    name = "java"
    abilities = Abilities()

    def __init__(self, bootstrap: str) -> None:
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", classpath("client"), "kafscale.client.Driver", bootstrap]
        self._jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _call(self, op: str, **arguments: object) -> dict[str, Any]:
        stdin, stdout = self._jvm.stdin, self._jvm.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the JVM was started without pipes")
        stdin.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
        stdin.flush()
        reply: dict[str, Any] = json.loads(stdout.readline())
        if "error" in reply:
            raise ClientError(_CODES.get(reply["error"], -1), f"{reply['error']}: {reply['message']}")
        return reply

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self._call("create_topic", topic=topic, partitions=partitions, configs=dict(configs or {}))

    def init_transactions(self, transactional_id: str) -> None:
        self._call("init_transactions", config={"transactional.id": transactional_id})

    def delete_topic(self, topic: str) -> None:
        self._call("delete_topic", topic=topic)

    def produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions = PLAIN) -> list[int]:
        records = [
            {
                "key": _text(message.key),
                "value": _text(message.value),
                "headers": [[name, _text(value)] for name, value in message.headers],
                "timestamp": message.timestamp,
            }
            for message in messages
        ]
        config = {
            "acks": options.acks,
            "compression.type": options.codec,
            "enable.idempotence": False,
            "linger.ms": LINGER_MS,
            "batch.size": LARGEST_REQUEST // 16,
            "max.request.size": LARGEST_REQUEST,
        }
        reply = self._call("produce", topic=topic, partition=options.partition, records=records, config=config)
        return list(reply["offsets"])

    def consume(self, topic: str, *, count: int, offset: int | None = None, partition: int = 0) -> list[Received]:
        config = {"auto.offset.reset": "none", "fetch.max.bytes": LARGEST_REQUEST}
        reply = self._call(
            "consume",
            topic=topic,
            partition=partition,
            count=count,
            offset=offset,
            timeout_seconds=TIMEOUT_SECONDS,
            config=config,
        )
        return [
            Received(
                offset=record["offset"],
                timestamp=record["timestamp"],
                value=_bytes(record["value"]),
                key=_bytes(record["key"]),
                headers=tuple((name, _bytes(value)) for name, value in record["headers"]),
            )
            for record in reply["records"]
        ]

    def offset_for_time(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        reply = self._call("offset_for_time", topic=topic, partition=partition, timestamp=timestamp)
        return None if reply["offset"] < 0 else int(reply["offset"])

    def offsets(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        reply = self._call("offsets", topic=topic, partition=partition)
        return reply["earliest"], reply["latest"]

    def touch(self, topic: str, *, auto_create: bool) -> None:
        config = {"allow.auto.create.topics": auto_create}
        if not self._call("partitions", topic=topic, config=config)["partitions"]:
            raise ClientError(UNKNOWN_TOPIC_OR_PARTITION, "no such topic")

    def close(self) -> None:
        self._jvm.communicate()


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
