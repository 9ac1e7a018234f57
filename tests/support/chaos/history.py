"""Events of the clients of a chaos run, as files, and how they are passed to the checker.

Each client writes a file of lines: the time (seconds of the machine's monotonic clock), a letter, a partition and more.
If there are several topics, a partition is the number of a log (`tests.support.chaos.workload`).
A record's name is "PRODUCER/PARTITION/NUMBER", the first word of its value.

    s PARTITION NUMBER              a producer is about to send it for the first time
    a PARTITION NUMBER OFFSET       it was acked
    f PARTITION NUMBER ERROR        the client failed it; it may be in the log or not
    r PARTITION OFFSET NAME         a reader received it, directly after its previous record
    m PARTITION OFFSET              the reader continues from there
    c PARTITION OFFSET              a group's commit of this offset was acknowledged
    g MEMBER NUMBER                 a group member was assigned (or, if negative, lost) this many partitions
    w PARTITION START END ASKED     the ends of the log, as answered to a request sent at a time; -1: not requested
    n ERROR TEXT                    the client reported an error to its application and recovers from it
    e TEXT                          an error that no fault excuses: it ended the client or made it skip records
"""

import heapq
import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.checker import IDEMPOTENT, Checker, Promise
from tests.support.compacted import Compacted, Key

RECONNECTING = Promise(durable=True, once=True, ordered=False)
"""acks=all without retries. A record that failed on one connection may be appended after the first of the next."""
RETRYING = Promise(durable=True, once=False, ordered=False)
"""acks=all with retries and several requests in flight. A batch that is acked slowly is sent again."""

RECONNECTS = {"_TRANSPORT", "_ALL_BROKERS_DOWN"}
"""Errors that librdkafka may report when connections end; it reconnects."""

Event = tuple[float, str, list[str]]
"""Time, client, words."""


@dataclass(slots=True)
class ProducerSums:
    """The outcome of one producer's records."""

    sent: int = 0
    acked: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    """The number of failed records by the first word of the error."""
    longest_wait: float = 0.0
    """The longest time without an ack while it ran, in seconds."""
    last_at: float | None = None

    def record_ack(self, time: float) -> None:
        """The producer started, or got an ack, at ``time``."""
        if self.last_at is not None:
            self.longest_wait = max(self.longest_wait, time - self.last_at)
        self.last_at = time


@dataclass(slots=True)
class Verdict:
    """The complaints of the checker and the clients, and the amounts checked."""

    complaints: list[str]
    producers: dict[str, ProducerSums]
    read: dict[str, int]
    """The number of records by reader."""
    in_log: int
    longest_wait: float
    """Seconds in which no producer got an ack."""
    noted: dict[str, set[str]] = field(default_factory=dict)
    """By client, the errors that it reported to its application and recovered from."""


def events(directory: Path) -> Iterator[Event]:
    """All events of the clients, in the order of time."""
    return heapq.merge(*(_of_client(path) for path in sorted(directory.glob("*.history"))))


def _of_client(path: Path) -> Iterator[Event]:
    with path.open() as lines:
        for line in lines:
            time, *words = line.split()
            yield float(time), path.stem, words


def judge(
    record_ack: Iterable[Event],
    promises: Mapping[str, Promise],
    *,
    last_reader: str,
    repeating: Container[str] = (),
    committing: Container[str] = (),
    compacted: Collection[str] = (),
    key_of: Callable[[bytes], Key] = lambda name: Key(name, False),
) -> Verdict:
    """Return the verdict. ``promises`` names the producers; ``last_reader`` read everything after the run.

    ``repeating``: readers of everything that may read records again, but skip none. ``committing``: groups that never
    read below an acknowledged commit. ``compacted``: partitions that need to keep only the last record of each key.
    ``key_of`` returns the key of a record by its name. There are no tombstones.
    """
    judging = _Judging(promises, last_reader, repeating, committing)
    judging.compacts(compacted, key_of)
    for event in record_ack:
        judging.hear(event)
    return judging.finish()


class _Judging:
    def __init__(
        self,
        promises: Mapping[str, Promise],
        last_reader: str,
        repeating: Container[str],
        committing: Container[str],
    ) -> None:
        self._promises = promises
        self._last_reader = last_reader
        self._repeating = repeating
        self._committing = committing
        self._committed: dict[tuple[str, str], int] = {}
        self._next: dict[tuple[str, str], int] = {}
        self._checker = Checker()
        self._verdict = Verdict([], {name: ProducerSums() for name in promises}, {}, 0, 0.0)
        self._anybody = ProducerSums()
        # What the last reader read, by partition.
        self._offsets: dict[str, array[int]] = defaultdict(lambda: array("q"))
        self._names: dict[str, list[bytes]] = defaultdict(list)
        self._ends: dict[str, tuple[int, int]] = {}
        self._compacted: Container[str] = ()
        self._now = 0.0

    def compacts(self, partitions: Collection[str], key_of: Callable[[bytes], Key]) -> None:
        self._compacted = partitions
        for partition in partitions:
            self._checker.compacts(partition, Compacted(key_of, lambda: self._now, stays=math.inf, reading=0.0))

    def hear(self, event: Event) -> None:
        time, client, (letter, *words) = event
        self._now = time
        if letter in "saf":
            self._hear_producer(event)
        elif letter in "mr":
            self._hear_reader(client, letter, words)
        elif letter == "e":
            self._verdict.complaints.append(f"{client}: {' '.join(words)}")
        elif letter == "n":
            self._verdict.noted.setdefault(client, set()).add(words[0])
        elif letter == "c":
            if client in self._committing:
                self._committed[client, words[0]] = int(words[1])
        elif letter == "w":
            start, end = int(words[1]), int(words[2])
            self._checker.watermarks(words[0], start=start, end=end, asked=float(words[3]), answered=time)
            if client == self._last_reader:
                before = self._ends.get(words[0], (-1, -1))
                self._ends[words[0]] = (max(start, before[0]), max(end, before[1]))

    def _hear_reader(self, client: str, letter: str, words: list[str]) -> None:
        if letter == "m":
            self._checker.moved(client, words[0], int(words[1]))
            return
        offset, name = int(words[1]), words[2].encode()
        self._verdict.read[client] = self._verdict.read.get(client, 0) + 1
        if client in self._repeating:
            due = self._next.get((client, words[0]), 0)
            self._next[client, words[0]] = offset + 1
            self._checker.moved(client, words[0], min(due, offset))
        committed = self._committed.get((client, words[0]), 0)
        if offset < committed:
            self._verdict.complaints.append(
                f"commit-lost: {words[0]}: {client} read {offset} again after its commit of {committed}"
            )
        self._checker.read(client, words[0], offset, name)
        if client == self._last_reader:
            self._offsets[words[0]].append(offset)
            self._names[words[0]].append(name)

    def _hear_producer(self, event: Event) -> None:
        time, client, (letter, partition, number, *words) = event
        name = f"{client}/{partition}/{number}".encode()
        sums = self._verdict.producers[client]
        if letter == "s":
            sums.sent += 1
            self._checker.sent(client, partition, name, self._promises[client])
        elif letter == "a":
            sums.acked += 1
            self._checker.acked(partition, name, int(words[0]), now=time)
        else:
            sums.failed[words[0]] = sums.failed.get(words[0], 0) + 1
            if self._promises[client] == IDEMPOTENT:
                self._verdict.complaints.append(f"{client} gave up {name.decode()}: {' '.join(words)}")
        for waiting in (sums, self._anybody):
            if letter == "a" or waiting.last_at is None:
                waiting.record_ack(time)

    def finish(self) -> Verdict:
        verdict = self._verdict
        for partition, (start, end) in self._ends.items():
            self._checker.finish(
                partition,
                start=start,
                end=end,
                records=zip(self._offsets[partition], self._names[partition], strict=True),
                # The last segment is never compacted.
                last_segment=end - 1 if partition in self._compacted else 0,
            )
            verdict.in_log += end - start
        verdict.complaints += map(str, self._checker.violations)
        verdict.longest_wait = self._anybody.longest_wait
        if not self._ends:
            verdict.complaints.append("nobody read the log at the end")
        return verdict
