"""One interface for every Kafka client under test, so that each scenario and each case is written once.

The scenarios of tests/clients set what they depend on; the cases of tests/matrix run with each client's defaults.
"""

import queue
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

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
"""How long a call may take."""
# No client may refuse a message because of its size: the broker's limits are under test.
LARGEST_REQUEST = 16 * 1024 * 1024
# Long enough that all messages of one call are in one batch.
LINGER_MS = 50

QUICK_HEARTBEAT_MS = 500
"""A member learns of a rebalance by its heartbeat, every 3 seconds by default. Each case would wait that long several
times, so only one case for each client uses the default."""
QUICK_FETCH_MS = 500
"""KafkaJS closes a consumer when its fetch in flight is answered: after 5 seconds by default without records."""

RANGE, ROUND_ROBIN, STICKY, COOPERATIVE = "range", "roundrobin", "sticky", "cooperative-sticky"


@dataclass(frozen=True, slots=True)
class Message:
    """A record to produce. ``timestamp`` is in ms since 1970; the client's clock if it is None."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """A consumed record."""

    offset: int
    timestamp: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        return (self.key, self.value, self.headers)


class Record(NamedTuple):
    """A record that a member of a group received."""

    partition: int
    offset: int
    value: str


class ClientError(Exception):
    """The broker refused a request. ``code`` is Kafka's error code, or -1 if the client does not report it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a client can do. Scenarios that need more are skipped for it."""

    codecs: Sequence[str] = CODECS
    timestamps: bool = True  # sets a record's timestamp
    null_headers: bool = True  # header values may be null


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """``partition`` None: the client chooses. ``defaults``: the client's own settings, whatever else is set here.

    Without ``defaults`` idempotence is off.
    """

    partition: int | None = 0
    codec: str = "none"
    acks: str = "all"
    defaults: bool = False


PLAIN = ProduceOptions()


class Client(Protocol):
    """A client that reads and writes partitions. Every method raises ClientError when the broker refuses."""

    name: str
    abilities: Abilities

    def __init__(self, bootstrap: str) -> None: ...

    def produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions = PLAIN) -> list[int] | None:
        """Send the messages in order and wait for their acks. Return their offsets if the client reports them."""
        ...

    def consume(self, topic: str, *, count: int, offset: int | None = None, partition: int = 0) -> list[Received]:
        """Return ``count`` records from ``offset`` on (None: the start), or fewer if no more arrive in time."""
        ...

    def offset_for_time(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        """Return the offset of the first record at or after a time in ms. None if there is none."""
        ...

    def offsets(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        """Return the first offset and the one after the last."""
        ...

    def close(self) -> None: ...


class TopicClient(Client, Protocol):
    """A client that creates and deletes topics."""

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None: ...
    def delete_topic(self, topic: str) -> None: ...


class AskingClient(Client, Protocol):
    """A client whose metadata requests can forbid the creation of the topic."""

    def touch(self, topic: str, *, auto_create: bool) -> None:
        """Request the topic's metadata as a consumer does."""
        ...


class Member(Protocol):
    """A consumer in a group that subscribes to one topic."""

    def poll(self, seconds: float) -> list[Record]:
        """Return records that have arrived; wait at most ``seconds`` for the first."""
        ...

    def assigned(self) -> set[int]: ...

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit offsets by partition, and wait for the answer."""
        ...

    def seek(self, partition: int, offset: int) -> None: ...
    def pause(self, partition: int) -> None: ...
    def resume(self, partition: int) -> None: ...
    def close(self) -> None: ...


class MatrixClient(Protocol):
    """A client of the matrix: it has members in groups and administers topics and groups, with its defaults."""

    name: str
    version: str
    idempotent: bool  # whether its producer is by default
    assignors: Mapping[str, str]
    """The assignors that it has, with the names under which it offers them to the group."""
    topic_configs: Mapping[str, str]
    """Configs that topics need so that it can read them."""
    lacks: Mapping[str, str]
    """Methods (of its members, too) that the client cannot do, each with the reason."""

    def __init__(self, bootstrap: str) -> None: ...

    def produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions = PLAIN) -> list[int] | None: ...

    def member(
        self, topic: str, group: str, *, assignor: str | None = None, auto_commit: bool = True, quick: bool = False
    ) -> Member:
        """Return a member that begins to join. ``quick`` shortens heartbeats; ``assignor`` replaces the default."""
        ...

    def offset_for_time(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None: ...

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offsets of the group by partition."""
        ...

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None: ...
    def topics(self) -> set[str]: ...
    def partitions(self, topic: str) -> int: ...
    def create_partitions(self, topic: str, total: int) -> None: ...
    def delete_topic(self, topic: str) -> None: ...
    def configs(self, topic: str) -> dict[str, str | None]: ...
    def alter_config(self, topic: str, name: str, value: str) -> None: ...
    def groups(self) -> set[str]: ...

    def describe_group(self, group: str) -> tuple[str, int]:
        """Return the group's state, in lower case without separators, and the number of its members."""
        ...

    def delete_group(self, group: str) -> None: ...
    def close(self) -> None: ...


def kafka_python_settings(
    group: str, assignors: Mapping[str, type], *, assignor: str | None, auto_commit: bool, quick: bool
) -> dict[str, object]:
    """Return the settings of a member as kafka-python and aiokafka name them."""
    settings: dict[str, object] = {"group_id": group, "auto_offset_reset": "earliest"}
    if assignor:
        settings["partition_assignment_strategy"] = (assignors[assignor],)
    if not auto_commit:
        settings["enable_auto_commit"] = False
    if quick:
        settings["heartbeat_interval_ms"] = QUICK_HEARTBEAT_MS
    return settings


def polled(records: "queue.SimpleQueue[Record]", seconds: float) -> list[Record]:
    """Return the records that a thread has put there; wait at most ``seconds`` for the first."""
    got: list[Record] = []
    try:
        got.append(records.get(timeout=seconds))
        while True:
            got.append(records.get_nowait())
    except queue.Empty:
        return got
