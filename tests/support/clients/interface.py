"""One face for five Kafka clients, so that each scenario is written once.

Nothing here uses groups: consuming means assigning a partition and seeking in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Headers = tuple[tuple[str, bytes | None], ...]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# Kafka's error codes that the scenarios name.
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_CONFIG = 40
INVALID_RECORD = 87

TIMEOUT_SECONDS = 60
# No client may hold back a message for its size: the broker's limits are what is tested.
LARGEST_REQUEST = 16 * 1024 * 1024
# Long enough that what one call produces travels in one batch.
LINGER_MS = 50


@dataclass(frozen=True, slots=True)
class Message:
    """What is produced; ``timestamp`` in ms since 1970, None: the client's clock."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """What was consumed."""

    offset: int
    timestamp: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        return (self.key, self.value, self.headers)


class ClientError(Exception):
    """The broker refused; ``code`` is Kafka's error code, -1 when the client does not tell."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a client lacks is not asked of it."""

    codecs: Sequence[str] = CODECS
    timestamps: bool = True  # sets a record's timestamp
    null_headers: bool = True  # header values may be null


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    partition: int = 0
    codec: str = "none"
    acks: str = "all"


PLAIN = ProduceOptions()


class Client(Protocol):
    """Idempotence is off. Every method raises ``ClientError`` when the broker refuses."""

    name: str
    abilities: Abilities

    def __init__(self, bootstrap: str) -> None: ...

    def produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions = PLAIN) -> list[int] | None:
        """Sends the messages in order and waits for their acks. Returns their offsets where the client tells them."""
        ...

    def consume(self, topic: str, *, count: int, offset: int | None = None, partition: int = 0) -> list[Received]:
        """``count`` records from ``offset`` on (None: the beginning), fewer only when no more came in time."""
        ...

    def offset_for_time(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        """The offset of the first record at or after a time in ms, None when there is none."""
        ...

    def offsets(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        """The first offset and the one after the last."""
        ...

    def close(self) -> None: ...


class TopicClient(Client, Protocol):
    """One that makes and removes topics."""

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None: ...
    def delete_topic(self, topic: str) -> None: ...


class AskingClient(Client, Protocol):
    """One that says with each request for metadata whether it may create the topic."""

    def touch(self, topic: str, *, auto_create: bool) -> None:
        """Asks for the topic's metadata as a consumer does, with or without leave to create it."""
        ...
