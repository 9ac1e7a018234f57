"""One face for every client of the matrix, so that each case is written once.

Unlike the scenarios of tests/clients, everything here runs with the client's defaults: what is set beside the addresses
is ``auto.offset.reset`` (earliest) and what a case names.
"""

import queue
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

SECONDS = 60
"""How long a call may take."""

QUICK_HEARTBEAT_MS = 500
"""A member hears of a rebalance by its heartbeat, every 3 seconds by default, for which each case would wait again and
again. One case for each client has its default."""
QUICK_FETCH_MS = 500
"""KafkaJS closes a consumer when the fetch under way is answered, after 5 seconds by default where nothing comes."""

RANGE, ROUND_ROBIN, STICKY, COOPERATIVE = "range", "roundrobin", "sticky", "cooperative-sticky"


class Record(NamedTuple):
    """What a member got."""

    partition: int
    offset: int
    value: str


def kafka_python_settings(
    group: str, assignors: Mapping[str, type], *, assignor: str | None, auto_commit: bool, quick: bool
) -> dict[str, object]:
    """What a member of the case is set to, in the words that aiokafka took over from kafka-python."""
    settings: dict[str, object] = {"group_id": group, "auto_offset_reset": "earliest"}
    if assignor:
        settings["partition_assignment_strategy"] = (assignors[assignor],)
    if not auto_commit:
        settings["enable_auto_commit"] = False
    if quick:
        settings["heartbeat_interval_ms"] = QUICK_HEARTBEAT_MS
    return settings


def polled(records: "queue.SimpleQueue[Record]", seconds: float) -> list[Record]:
    """What a thread has put there; waits so long at most for the first."""
    got: list[Record] = []
    try:
        got.append(records.get(timeout=seconds))
        while True:
            got.append(records.get_nowait())
    except queue.Empty:
        return got


class Member(Protocol):
    """A consumer in a group that subscribes to one topic."""

    def poll(self, seconds: float) -> list[Record]:
        """What came; waits so long at most when nothing is there."""
        ...

    def assigned(self) -> set[int]: ...

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit these offsets by their partitions, and wait for the answer."""
        ...

    def seek(self, partition: int, offset: int) -> None: ...
    def pause(self, partition: int) -> None: ...
    def resume(self, partition: int) -> None: ...
    def close(self) -> None: ...


class Driver(Protocol):
    """One client. Every method raises what the client raises when the broker refuses."""

    name: str
    version: str
    idempotent: bool  # whether its producer is by default
    assignors: Mapping[str, str]
    """Those that it has, with the names under which it offers them to the group."""
    topic_configs: Mapping[str, str]
    """What topics are set to, beside the defaults, so that it can read them."""
    lacks: Mapping[str, str]
    """Methods (of its members, too) that the client has nothing for and the driver has not, each with the reason."""

    def __init__(self, bootstrap: str) -> None: ...

    def produce(self, topic: str, values: Sequence[str], partition: int | None = None) -> None:
        """Send them in order and wait for their acks; without a partition the client chooses."""
        ...

    def member(
        self, topic: str, group: str, *, assignor: str | None = None, auto_commit: bool = True, quick: bool = False
    ) -> Member:
        """A member that begins to join. ``assignor``: instead of its own; ``quick``: quicker than by default."""
        ...

    def offsets_for_time(self, topic: str, timestamp: int) -> dict[int, int | None]:
        """For each partition the first record's offset at or after a time in ms; None or the end when there is none."""
        ...

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """What the group has committed, by partition."""
        ...

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None: ...
    def topics(self) -> set[str]: ...
    def partitions(self, topic: str) -> int: ...
    def create_partitions(self, topic: str, total: int) -> None: ...
    def delete_topic(self, topic: str) -> None: ...
    def configs(self, topic: str) -> dict[str, str | None]: ...
    def alter_config(self, topic: str, name: str, value: str) -> None: ...
    def groups(self) -> set[str]: ...

    def describe_group(self, group: str) -> tuple[str, int]:
        """Its state, lower case without separators, and how many members it has."""
        ...

    def delete_group(self, group: str) -> None: ...
    def close(self) -> None: ...
