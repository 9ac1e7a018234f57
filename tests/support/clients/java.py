"""Kafka's own Java client, in one JVM that answers commands (tests/java/client)."""

import base64
from collections.abc import Sequence
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
from tests.support.clients.login import Login, java_options, java_properties
from tests.support.clients.piped import ALL_ASSIGNORS, PipedClient, PipedError

_CODES = {
    "InvalidConfigurationException": INVALID_CONFIG,
    "InvalidTopicException": INVALID_TOPIC,
    "RecordTooLargeException": MESSAGE_TOO_LARGE,
    "TopicExistsException": TOPIC_ALREADY_EXISTS,
    "UnknownTopicOrPartitionException": UNKNOWN_TOPIC_OR_PARTITION,
}


class JavaClient(PipedClient):
    name = "java"
    abilities = Abilities()
    idempotent = True
    assignors = ALL_ASSIGNORS

    def __init__(self, bootstrap: str, login: Login | None = None) -> None:
        jvm = [
            "java",
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *java_options(login.token if login else None),
        ]
        command = [*jvm, "-cp", classpath("client"), "kafscale.client.Driver"]
        super().__init__(command, bootstrap, java_properties(login))
        self.version = str(self.call("version"))

    def call(self, op: str, **arguments: object) -> Any:
        try:
            return super().call(op, **arguments)
        except PipedError as error:
            raise ClientError(_CODES.get(str(error).partition(":")[0], -1), str(error)) from error

    def init_transactions(self, transactional_id: str) -> None:
        self.call("init_transactions", config={"transactional.id": transactional_id})

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
        used = {} if options.defaults else config
        return list(self.call("produce", topic=topic, partition=options.partition, records=records, config=used))

    def consume(self, topic: str, *, count: int, offset: int | None = None, partition: int = 0) -> list[Received]:
        config = {"auto.offset.reset": "none", "fetch.max.bytes": LARGEST_REQUEST}
        records = self.call(
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
            for record in records
        ]

    def offsets(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        earliest, latest = self.call("offsets", topic=topic, partition=partition)
        return earliest, latest

    def touch(self, topic: str, *, auto_create: bool) -> None:
        if not self.call("touch", topic=topic, config={"allow.auto.create.topics": auto_create}):
            raise ClientError(UNKNOWN_TOPIC_OR_PARTITION, "no such topic")


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
