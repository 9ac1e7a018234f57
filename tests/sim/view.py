"""The shared view of a simulation's clients: the existing partitions, and the checker for their reports."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from tests.sim.faults import Faults
from tests.sim.keys import key_of
from tests.sim.services import GatewayProcess
from tests.sim.settings import TOMBSTONES_KEPT_MS
from tests.sim.trace import Trace
from tests.support.checker import Checker, Promise, Violation
from tests.support.compacted import Compacted


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention limits of a topic; -1 means no limit."""

    ms: int = -1
    bytes: int = -1


@dataclass(frozen=True, slots=True)
class Compaction:
    """The compaction of a topic. ``keys``: how many keys its records have at a time; 0: each one its own, so that all
    stay.

    ``deletes``: its cleanup.policy includes ``delete`` too.
    """

    keys: int
    deletes: bool


@dataclass(slots=True, eq=False)
class Partition:
    """A partition of one incarnation of a topic."""

    topic: str
    topic_id: bytes
    index: int
    retention: Retention = Retention()
    compaction: Compaction | None = None
    # The deletion of its topic was requested, but may not happen.
    condemned: bool = False
    # Its topic is deleted in the metadata store. Its clients stop using it at ``gone_at``.
    doomed: bool = False
    gone_at: float = math.inf
    known_end: int = 0
    # The end of the log as its owner has shown it, by acks and to consumers. Scans of other instances may already see
    # more, while a commit of the owner is not answered.
    shown_end: int = 0
    # The number of records with keys that were made for it.
    keyed: int = 0
    # Its oldest objects were deleted by someone else.
    objects_lost: bool = False
    # The timestamp of the oldest record ever sent to it.
    oldest_ms: float = math.inf
    # The timestamps of committed records by offset, from acks and reads.
    times: dict[int, int] = field(default_factory=dict)

    @property
    def gone(self) -> bool:
        return trio.current_time() >= self.gone_at

    @property
    def loses_records(self) -> bool:
        """Whether compaction may remove records."""
        return self.compaction is not None and self.compaction.keys > 0

    @property
    def log(self) -> tuple[str, int]:
        return f"{self.topic}#{self.topic_id.hex()[:6]}", self.index


SMALL_SKEW_SECONDS = 1.0
"""The clock error that storage tolerates."""
_MOST_RECORD_BYTES = 700
"""The size of a record in the bucket, as a separate segment."""
_LATENESS_MS = (0, 0, 0, 700, 3000)


class View:
    """The view. ``producing`` is true while producers create new records."""

    def __init__(
        self,
        *,
        checker: Checker,
        faults: Faults,
        trace: Trace,
        gateways: dict[str, GatewayProcess],
        now_ms: Callable[[], int],
        producer_expiry: float = math.inf,
        tombstones_stay: float = math.inf,
    ) -> None:
        self.checker = checker
        self.faults = faults
        self.gateways = gateways
        self.now_ms = now_ms
        # The seconds of silence after which partitions may forget producers.
        self.producer_expiry = producer_expiry
        # The seconds for which tombstones stay in a compacted log at least.
        self._tombstones_stay = tombstones_stay
        self.producing = True
        # True when faults no longer excuse errors.
        self.at_ease = False
        self.partitions: list[Partition] = []
        self._trace = trace
        self._times: dict[bytes, int] = {}
        self._live: dict[str, bytes] = {}
        # Unanswered log start requests by topic name, which may also reach a later topic of that name.
        self._unanswered: dict[tuple[str, int], list[int]] = {}

    def trace(self, by: str, event: str) -> None:
        self._trace.add(event, by=by)

    def named(self, topic: str, topic_id: bytes) -> None:
        """Set the live topic of a name. An empty id means that there is none."""
        self._live[topic] = topic_id
        for partition in self.partitions:
            self._look_whether_doomed(partition)

    def _look_whether_doomed(self, partition: Partition) -> None:
        if not partition.doomed and self._live.get(partition.topic, partition.topic_id) != partition.topic_id:
            partition.doomed = True
            partition.gone_at = trio.current_time() + self.faults.between(0.0, 1.0)

    def add(self, partition: Partition) -> None:
        self.partitions.append(partition)
        if partition.loses_records:
            self.checker.compacts(
                partition.log,
                Compacted(key_of, trio.current_time, stays=self._tombstones_stay, reading=TOMBSTONES_KEPT_MS / 1000),
            )
        self._look_whether_doomed(partition)
        for offset in self._unanswered.get((partition.topic, partition.index), ()):
            self.checker.asks_start(partition.log, offset)

    def asks_start(self, partition: Partition, offset: int) -> None:
        """Report a request for this log start, with an unknown outcome."""
        self._unanswered.setdefault((partition.topic, partition.index), []).append(offset)
        self.checker.asks_start(partition.log, offset)

    def start_answered(self, partition: Partition, offset: int, *, done: bool) -> None:
        """Report that a log start request was executed or finally rejected."""
        self._unanswered[(partition.topic, partition.index)].remove(offset)
        if not done:
            self.checker.start_refused(partition.log, offset)

    def loses_objects(self, partition: Partition, kept_from: int) -> None:
        """Report that the objects below an offset were deleted from the bucket without a request."""
        partition.objects_lost = True
        self.checker.may_start(partition.log, kept_from)

    def stamp(self, partition: Partition, value: bytes) -> int:
        """Return the timestamp of a new record. Timestamps increase with offsets only if retention uses them."""
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
            partition.shown_end = max(partition.shown_end, offset + 1)

    def read(self, reader: str, partition: Partition, offset: int, value: bytes) -> None:
        """Report a record that the owner has returned to a consumer."""
        self.scanned(reader, partition, offset, value)
        partition.shown_end = max(partition.shown_end, offset + 1)

    def scanned(self, reader: str, partition: Partition, offset: int, value: bytes) -> None:
        """Report a record that an instance has returned that need not be the owner."""
        self.checker.read(reader, partition.log, offset, value)
        self._learn(partition, value, offset)

    def passed(self, reader: str, partition: Partition, offset: int) -> None:
        """Report that a reader continues at an offset, because there are no more records below it."""
        self.checker.passed(reader, partition.log, offset)

    def seen(self, reader: str, partition: Partition, offset: int, value: bytes) -> None:
        """Report a single record whose reader does not continue after it, as `scanned`."""
        self.checker.moved(reader, partition.log, offset)
        self.scanned(reader, partition, offset, value)

    def first_at(
        self, partition: Partition, who: str, since: int, known: Sequence[int], found: int, *, none: int
    ) -> None:
        """Report ``found`` as the first record since a time. ``known`` are such records before the request."""
        earlier = [offset for offset in sorted(known) if found == none or found > offset]
        for first in earlier if partition.loses_records else earlier[:1]:
            detail = f"{who}: {found} was returned as the first since {since}, but {first} is earlier"
            self.leaves_out(partition, first, detail)
        if found != none and partition.times.get(found, since) < since:
            self.complain(
                "too-old", partition, f"{who}: {found} has time {partition.times[found]}, requested was {since}"
            )

    def leaves_out(self, partition: Partition, offset: int, detail: str) -> None:
        """Report that an answer omitted the record at ``offset``, which retention may have removed by now."""
        self._expire(partition, 0)
        self.checker.leaves_out(partition.log, offset, detail)

    def ends(self, partition: Partition, *, start: int, end: int, asked: float) -> None:
        """Report an answer with log start and end."""
        partition.known_end = max(partition.known_end, end)
        if partition.retention.bytes >= 0:
            if end < 0:
                # The amount of retained data is unknown.
                return
            kept_records = partition.retention.bytes // _MOST_RECORD_BYTES
            self.checker.may_start(partition.log, max(end - kept_records, 0))
        self._expire(partition, start)
        self.checker.watermarks(partition.log, start=start, end=end, asked=asked, answered=trio.current_time())

    def expire_all(self) -> None:
        for partition in self.partitions:
            self._expire(partition, 0)

    def complain(self, kind: str, partition: Partition, detail: str) -> None:
        """Add a violation that a client detected itself."""
        if kind == "damaged" and partition.objects_lost and not self.at_ease:
            # Excused until the log start has passed the missing objects.
            return
        self.checker.violations.append(Violation(kind, partition.log, detail))

    def _learn(self, partition: Partition, value: bytes, offset: int) -> None:
        partition.known_end = max(partition.known_end, offset + 1)
        if offset >= 0 and value in self._times:
            partition.times[offset] = self._times[value]

    def _expire(self, partition: Partition, start: int) -> None:
        """Allow the log starts that retention by time may have reached: up to the first record known to be young.

        Without such a record any reported ``start`` is allowed, because there may be unacked records above the known
        ones. Nothing is allowed until a sent record is old enough.
        """
        limit = self.now_ms() - partition.retention.ms + SMALL_SKEW_SECONDS * 1000
        if partition.retention.ms < 0 or partition.oldest_ms > limit:
            return
        young = [offset for offset, time in partition.times.items() if time > limit]
        for above in self.checker.starts_asked(partition.log):
            # Records below a requested log start may be gone, even if they are young.
            first = min((offset for offset in young if offset >= above), default=max(partition.known_end, start))
            self.checker.may_start(partition.log, first, above=above)
