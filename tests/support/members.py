"""Operations on the members of a group, each with a timeout."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tests.support.clients.interface import MatrixClient, Member, Message, ProduceOptions, Record

PARTITIONS = 4
EACH = 10
"""Records in each partition."""
PATIENCE = 60.0
QUIET_SECONDS = 1.5
"""The time without records that shows that none are coming."""


def fill(driver: Driver, topic: str, first: int = 0) -> set[str]:
    """Produce ten records to each partition and return their values."""
    values = set()
    for partition in range(PARTITIONS):
        batch = [f"{partition}:{first + number}" for number in range(EACH)]
        write(driver, topic, batch, partition)
        values.update(batch)
    return values


@contextlib.contextmanager
def joined(member: Member) -> Iterator[Member]:
    """Close the member at the end of a case, also if the case fails."""
    try:
        yield member
    finally:
        member.close()


def eventually(true: Callable[[], bool]) -> None:
    """Wait until a condition holds, because gateways, like Kafka's brokers, learn of a change a moment later."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def until(done: Callable[[list[Record]], bool], *members: Member) -> list[Record]:
    """Let the members poll in turn until ``done``, and return the records they got."""
    got: list[Record] = []
    deadline = time.monotonic() + PATIENCE
    while not done(got):
        assert time.monotonic() < deadline, f"{Counter(got)}, {[member.assigned() for member in members]}"
        for member in members:
            got += member.poll(0.1)
    return got


def read(count: int, member: Member) -> list[Record]:
    """Return at least ``count`` records."""
    return until(lambda got: len(got) >= count, member)


def quiet(member: Member) -> list[Record]:
    """Return the records that arrive during a while in which none should."""
    got: list[Record] = []
    deadline = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < deadline:
        got += member.poll(0.2)
    return got
