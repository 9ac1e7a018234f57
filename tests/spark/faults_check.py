"""The judgement of a fault run: a reader that watches throughout, and the comparison at the end."""

import itertools
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.spark.consume import Found

_MOST_OF_A_KIND = 5

Sent = Mapping[int, Sequence[tuple[bytes, bytes]]]
"""Keys and values written to each partition of the input, in order. A value is `value_of` its position."""

Pair = tuple[bytes | None, bytes | None]


def value_of(partition: int, number: int, size: int) -> bytes:
    """Return a value that contains its position in the input."""
    return f"{partition}/{number}/".encode().ljust(size, b".")


def place_of(value: bytes | None) -> tuple[int, int]:
    """Return the partition of the input and the position in it."""
    partition, number, _ = (value or b"-1/-1/").split(b"/", 2)
    return int(partition), int(number)


@dataclass(frozen=True, slots=True)
class Seen:
    at: float
    value: bytes | None


class Witness:
    """A Kafka client that reads a topic while it is written, and notes when it saw each record."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.seen: dict[tuple[int, int], Seen] = {}
        self.complaints: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "witness",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                # Show everything that a consumer can see.
                "isolation.level": "read_uncommitted",
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self._note(message.partition() or 0, message.offset() or 0, message.value())
            elif error.name() == "_AUTO_OFFSET_RESET":
                self.complaints.append(f"witness: {error.str()}")

    def _note(self, partition: int, offset: int, value: bytes | None) -> None:
        known = self.seen.setdefault((partition, offset), Seen(time.monotonic(), value))
        if known.value != value:
            self.complaints.append(f"witness: offset {offset} of {partition} was {known.value!r} and is {value!r}")

    def finish(self, records: int, seconds: float) -> None:
        """Wait until it has seen this many records, and stop."""
        deadline = time.monotonic() + seconds
        while len(self.seen) < records and time.monotonic() < deadline:
            time.sleep(0.05)
        self.end()
        if len(self.seen) < records:
            self.complaints.append(f"witness: {len(self.seen)} of {records} records within {seconds:g} s")

    def end(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self._consumer.close()


@dataclass(slots=True)
class Verdict:
    records: int = 0
    duplicates: int = 0
    lost: int = 0
    batches: int = 0
    complaints: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """``failures``: how often the query ended unexpectedly and was started again."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    drivers: int = 1
    failures: int = 0
    seconds: float = 0.0
    seen: int = 0
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def complaints(self) -> list[str]:
        return self.verdict.complaints


def line(report: Report) -> str:
    verdict = report.verdict
    kinds = ", ".join(f"{name} {count}" for name, count in sorted(report.faults.items()))
    return "; ".join(
        [
            f"seed {report.seed}: {verdict.records} records in {verdict.batches} micro-batches",
            f"{verdict.duplicates} twice, {verdict.lost} lost, {report.seen} seen on the way",
            f"{report.faults.total()} faults ({kinds})",
            f"{report.drivers} drivers, {report.failures} failed queries, {report.seconds:.0f} s",
            f"{len(verdict.complaints)} complaints",
        ]
    )


def judge(
    sent: Sent,
    given: Iterable[Found],
    found: Sequence[Found],
    witness: Witness,
    committing: Mapping[int, float],
    ends: Mapping[int, Mapping[int, int]],
) -> Verdict:
    """Compare ``given``, the contents of the input, with ``found``, those of the output.

    ``committing``: when a commit of each micro-batch was first called. ``ends``: the input offsets at which each ends.
    """
    verdict = Verdict(records=sum(map(len, sent.values())), batches=len(ends))
    complain = verdict.complaints.append
    held: dict[int, list[Pair]] = defaultdict(list)
    for record in given:
        held[record.partition].append((record.key, record.value))
    if any(held[partition] != list(records) for partition, records in sent.items()):
        complain("input: it differs from the written records")

    wanted: Counter[Pair] = Counter(pair for records in sent.values() for pair in records)
    have: Counter[Pair] = Counter((record.key, record.value) for record in found)
    verdict.duplicates, verdict.lost = (have - wanted).total(), (wanted - have).total()
    for _, value in have - wanted:
        complain(f"duplicated, or not from the input: {place_of(value)}")
    for _, value in wanted - have:
        complain(f"lost: {place_of(value)}")

    ways: dict[tuple[int, int], list[int]] = defaultdict(list)
    homes: dict[bytes | None, set[int]] = defaultdict(set)
    for record in found:
        partition, number = place_of(record.value)
        ways[partition, record.partition].append(number)
        homes[record.key].add(record.partition)
    for way, numbers in ways.items():
        turned = [pair for pair in itertools.pairwise(numbers) if pair[0] > pair[1]]
        if turned:
            complain(f"order: from {way[0]} to {way[1]}, {turned[0]} of {len(turned)}")
    scattered = [key for key, partitions in homes.items() if len(partitions) > 1]
    if scattered:
        complain(f"partitions: {len(scattered)} keys are in more than one")

    _judge_seen(witness, found, committing, ends, verdict)
    return verdict


def _judge_seen(
    witness: Witness,
    found: Sequence[Found],
    committing: Mapping[int, float],
    ends: Mapping[int, Mapping[int, int]],
    verdict: Verdict,
) -> None:
    verdict.complaints += witness.complaints
    log = {(record.partition, record.offset): record.value for record in found}
    for where, seen in witness.seen.items():
        if where not in log or log[where] != seen.value:
            verdict.complaints.append(f"seen but missing at the end: {where}, {place_of(seen.value)}")
            continue
        partition, number = place_of(seen.value)
        epoch = next((epoch for epoch in sorted(ends) if ends[epoch].get(partition, 0) > number), None)
        if epoch is None or seen.at < committing.get(epoch, float("inf")):
            verdict.complaints.append(f"seen before any commit of its micro-batch: {where}, {epoch}")


def query_id(checkpoint: Path) -> str:
    found: str = json.loads((checkpoint / "metadata").read_text())["id"]
    return found


def batch_ends(checkpoint: Path, topic: str) -> dict[int, dict[int, int]]:
    """Return the offsets of the topic at which each micro-batch of a checkpoint ends. Spark keeps the last hundred."""
    found = {}
    for path in (checkpoint / "offsets").iterdir():
        if path.name.isdigit():
            offsets: dict[str, Any] = json.loads(path.read_text().splitlines()[2])
            found[int(path.name)] = {int(number): end for number, end in offsets[topic].items()}
    return found


def shortened(complaints: Iterable[str]) -> list[str]:
    """Return the first complaints of each kind, the text before the colon, and how many more there are."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for complaint in complaints:
        kinds[complaint.partition(":")[0]].append(complaint)
    lines = []
    for kind, texts in kinds.items():
        lines += texts[:_MOST_OF_A_KIND]
        if len(texts) > _MOST_OF_A_KIND:
            lines.append(f"{kind}: {len(texts) - _MOST_OF_A_KIND} more")
    return lines
