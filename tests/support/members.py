"""Actions of several group members, within bounded time."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tests.support.clients.interface import MatrixClient, Member, Message, ProduceOptions, Record

PARTITIONS = 4
EACH = 10
"""The number of records in each partition."""
PATIENCE = 60.0
QUIET_SECONDS = 1.5
"""The time for which `quiet` waits for unexpected records."""


def write(client: MatrixClient, topic: str, values: Iterable[str], partition: int | None = None) -> None:
    """Produce values with the client's defaults. Without a partition the client chooses."""
    messages = [Message(value.encode()) for value in values]
    client.produce(topic, messages, ProduceOptions(partition=partition, defaults=True))


def fill(driver: MatrixClient, topic: str, first: int = 0) -> set[str]:
    """Produce ten records to each partition and return their values."""
    values = set()
    for partition in range(PARTITIONS):
        batch = [f"{partition}:{first + number}" for number in range(EACH)]
        write(driver, topic, batch, partition)
        values.update(batch)
    return values


@contextlib.contextmanager
def joined(member: Member) -> Iterator[Member]:
    """Close the member on exit, even if the case fails."""
    try:
        yield member
    finally:
        member.close()


def eventually(true: Callable[[], bool]) -> None:
    """Wait for a condition, because a gateway learns of another's changes a moment later, like Kafka's brokers."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def until(done: Callable[[list[Record]], bool], *members: Member) -> list[Record]:
    """Poll the members in turn until ``done``. Return the records that they received."""
    got: list[Record] = []
    deadline = time.monotonic() + PATIENCE
    while not done(got):
        assert time.monotonic() < deadline, f"{Counter(got)}, {[member.assigned() for member in members]}"
        for member in members:
            got += member.poll(0.1)
    return got


def read(count: int, member: Member) -> list[Record]:
    """Read ``count`` records, or more if they arrive together."""
    return until(lambda got: len(got) >= count, member)


def quiet(member: Member) -> list[Record]:
    """Return what arrives within a time in which nothing should."""
    got: list[Record] = []
    deadline = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < deadline:
        got += member.poll(0.2)
    return got
