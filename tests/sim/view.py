"""What the clients of a simulation share: the partitions that there are, and the checker that hears of all they do."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from tests.sim.faults import Faults
from tests.sim.services import GatewayProcess
from tests.sim.trace import Trace
from tests.support.checker import Checker, Promise, Violation


@dataclass(frozen=True, slots=True)
class Retention:
    """What a topic's configs allow to be deleted; -1: nothing by this measure."""

    ms: int = -1
    bytes: int = -1


@dataclass(slots=True, eq=False)
class Partition:
    """Of one topic in one life."""

    topic: str
    topic_id: bytes
    index: int
    retention: Retention = Retention()
    # Somebody wants its topic deleted, which may never come to be.
    condemned: bool = False
    # Its topic is deleted, as far as the metadata store goes; and when its clients let go of it.
    doomed: bool = False
    gone_at: float = math.inf
    known_end: int = 0
    # Somebody has deleted its oldest objects behind the product's back.
    objects_lost: bool = False
    # The timestamp of the oldest record that was ever sent to it.
    oldest_ms: float = math.inf
    # Of records that are committed, by offset, as acks and reads told.
    times: dict[int, int] = field(default_factory=dict)

    @property
    def gone(self) -> bool:
        return trio.current_time() >= self.gone_at

    @property
    def log(self) -> tuple[str, int]:
        return f"{self.topic}#{self.topic_id.hex()[:6]}", self.index


SMALL_SKEW_SECONDS = 1.0
"""What storage takes for the right time, although its wall clock is so much ahead."""
_MOST_RECORD_BYTES = 700
"""Of one record in the bucket, where it has a segment of its own."""
_LATENESS_MS = (0, 0, 0, 700, 3000)


class View:
    """``producing``: producers go on making records."""

    def __init__(
        self,
        *,
        checker: Checker,
        faults: Faults,
        trace: Trace,
        gateways: dict[str, GatewayProcess],
        now_ms: Callable[[], int],
        producer_expiry: float = math.inf,
    ) -> None:
        self.checker = checker
        self.faults = faults
        self.gateways = gateways
        self.now_ms = now_ms
        # Partitions may forget producers that were silent for so many seconds.
        self.producer_expiry = producer_expiry
        self.producing = True
        # Nothing that goes wrong now can be blamed on faults.
        self.at_ease = False
        self.partitions: list[Partition] = []
        self._trace = trace
        self._times: dict[bytes, int] = {}
        self._live: dict[str, bytes] = {}
        # Log starts asked for by topic name and not answered: a later topic of that name may be told them, too.
        self._unanswered: dict[tuple[str, int], list[int]] = {}

    def trace(self, by: str, event: str) -> None:
        self._trace.add(event, by=by)

    def named(self, topic: str, topic_id: bytes) -> None:
        """From now on this is the live topic of that name; an empty id: there is none."""
        self._live[topic] = topic_id
        for partition in self.partitions:
            self._look_whether_doomed(partition)

    def _look_whether_doomed(self, partition: Partition) -> None:
        if not partition.doomed and self._live.get(partition.topic, partition.topic_id) != partition.topic_id:
            partition.doomed = True
            partition.gone_at = trio.current_time() + self.faults.between(0.0, 1.0)

    def add(self, partition: Partition) -> None:
        self.partitions.append(partition)
        self._look_whether_doomed(partition)
        for offset in self._unanswered.get((partition.topic, partition.index), ()):
            self.checker.asks_start(partition.log, offset)

    def asks_start(self, partition: Partition, offset: int) -> None:
        """Somebody asks for this log start, and does not know yet what comes of it."""
        self._unanswered.setdefault((partition.topic, partition.index), []).append(offset)
        self.checker.asks_start(partition.log, offset)

    def start_answered(self, partition: Partition, offset: int, *, done: bool) -> None:
        """What was asked was done, or refused for good."""
        self._unanswered[(partition.topic, partition.index)].remove(offset)
        if not done:
            self.checker.start_refused(partition.log, offset)

    def loses_objects(self, partition: Partition, kept_from: int) -> None:
        """What lies below an offset is gone from the bucket, by nobody's request."""
        partition.objects_lost = True
        self.checker.may_start(partition.log, kept_from)

    def stamp(self, partition: Partition, value: bytes) -> int:
        """The timestamp of a new record. They do not rise with offsets, but where retention goes by them."""
        late = self.faults.one_of(_LATENESS_MS) if partition.retention.ms < 0 else 0
        time = self._times[value] = self.now_ms() - late
        partition.oldest_ms = min(partition.oldest_ms, time)
        return time

    def time_of(self, value: bytes) -> int:
        return self._times[value]

    def sent(self, producer: str, partition: Partition, value: bytes, promise: Promise) -> None:
        self.checker.sent(producer, partition.log, value, promise)

    def acked(self, partition: Partition, value: bytes, offset: int, *, durable: bool = True) -> None:
        self._trace.add(f"acked {partition.log} {offset} {value[:24]!r}", by="producer")
        self.checker.acked(partition.log, value, offset, now=trio.current_time())
        if durable:
            self._learn(partition, value, offset)

    def read(self, reader: str, partition: Partition, offset: int, value: bytes) -> None:
        self.checker.read(reader, partition.log, offset, value)
        self._learn(partition, value, offset)

    def seen(self, reader: str, partition: Partition, offset: int, value: bytes) -> None:
        """A record by itself, of which nobody goes on reading."""
        self.checker.moved(reader, partition.log, offset)
        self.read(reader, partition, offset, value)

    def first_at(
        self, partition: Partition, who: str, since: int, known: Sequence[int], found: int, *, none: int
    ) -> None:
        """``found`` was told as the first record that is not older; ``known`` are such ones that were there before."""
        first = min(known, default=None)
        if first is not None and (found == none or found > first):
            detail = f"{who}: {found} is told as the first that is not older than {since}; {first} is, too"
            self.checker.leaves_out(partition.log, first, detail)
        if found != none and partition.times.get(found, since) < since:
            self.complain("too-old", partition, f"{who}: {found} is of {partition.times[found]}, asked was {since}")

    def ends(self, partition: Partition, *, start: int, end: int, asked: float) -> None:
        """An answer that tells where the log begins and ends."""
        partition.known_end = max(partition.known_end, end)
        if partition.retention.bytes >= 0:
            if end < 0:
                # How much was kept cannot be told.
                return
            kept_records = partition.retention.bytes // _MOST_RECORD_BYTES
            self.checker.may_start(partition.log, max(end - kept_records, 0))
        self._expire(partition, start)
        self.checker.watermarks(partition.log, start=start, end=end, asked=asked, answered=trio.current_time())

    def expire_all(self) -> None:
        for partition in self.partitions:
            self._expire(partition, 0)

    def complain(self, kind: str, partition: Partition, detail: str) -> None:
        """What a client may never meet, told by the client itself."""
        if kind == "damaged" and partition.objects_lost and not self.at_ease:
            # Until the log start has moved over what is missing.
            return
        self.checker.violations.append(Violation(kind, partition.log, detail))

    def _learn(self, partition: Partition, value: bytes, offset: int) -> None:
        partition.known_end = max(partition.known_end, offset + 1)
        if offset >= 0 and value in self._times:
            partition.times[offset] = self._times[value]

    def _expire(self, partition: Partition, start: int) -> None:
        """Retention may take what is older than it allows, up to the first record that is known to be younger.

        Where none is, any ``start`` that is told may be: above what is known there may be records without an ack. All
        records may be such ones. Nothing goes as long as no record that was sent is old enough.
        """
        limit = self.now_ms() - partition.retention.ms + SMALL_SKEW_SECONDS * 1000
        if partition.retention.ms < 0 or partition.oldest_ms > limit:
            return
        young = [offset for offset, time in partition.times.items() if time > limit]
        for above in self.checker.starts_asked(partition.log):
            # What is below a log start that was asked for may be gone, however young it is.
            first = min((offset for offset in young if offset >= above), default=max(partition.known_end, start))
            self.checker.may_start(partition.log, first, above=above)
