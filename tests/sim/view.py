"""What the clients of a simulation share: the partitions that there are, and the checker that hears of all they do."""

from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from tests.sim.checker import Checker, Promise, Violation
from tests.sim.faults import Faults
from tests.sim.services import GatewayProcess
from tests.sim.trace import Trace


@dataclass(slots=True, eq=False)
class Partition:
    """Of one topic in one life."""

    topic: str
    topic_id: bytes
    index: int
    retention_ms: int = -1
    # Its topic is being deleted; it is: clients let go.
    doomed: bool = False
    gone: bool = False
    known_end: int = 0
    # Offsets that acks and reads told, with the time that their records bear.
    times: dict[int, int] = field(default_factory=dict)

    @property
    def log(self) -> tuple[str, int]:
        return f"{self.topic}#{self.topic_id.hex()[:6]}", self.index


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
    ) -> None:
        self.checker = checker
        self.faults = faults
        self.gateways = gateways
        self.now_ms = now_ms
        self.producing = True
        # Nothing that goes wrong now can be blamed on faults.
        self.at_ease = False
        self.partitions: list[Partition] = []
        self._trace = trace
        self._times: dict[bytes, int] = {}
        # What was asked to be deleted by topic name, which a later topic of that name may be told too.
        self._truncations: dict[tuple[str, int], int] = {}

    def trace(self, by: str, event: str) -> None:
        self._trace.add(event, by=by)

    def add(self, partition: Partition) -> None:
        self.partitions.append(partition)
        asked = self._truncations.get((partition.topic, partition.index), 0)
        if asked:
            self.truncates(partition, asked)

    def truncates(self, partition: Partition, offset: int) -> None:
        """Somebody asks for this log start."""
        key = (partition.topic, partition.index)
        self._truncations[key] = max(offset, self._truncations.get(key, 0))
        self.checker.may_start(partition.log, offset)

    def sent(self, producer: str, partition: Partition, value: bytes, promise: Promise) -> None:
        if partition.retention_ms >= 0:
            self._times[value] = self.now_ms()
        self.checker.sent(producer, partition.log, value, promise)

    def acked(self, partition: Partition, value: bytes, offset: int) -> None:
        self._trace.add(f"acked {partition.log} {offset} {value[:24]!r}", by="producer")
        self.checker.acked(partition.log, value, offset, now=trio.current_time())
        self._learn(partition, value, offset)

    def read(self, reader: str, partition: Partition, offset: int, value: bytes) -> None:
        self.checker.read(reader, partition.log, offset, value)
        self._learn(partition, value, offset)

    def ends(self, partition: Partition, *, start: int, end: int, asked: float) -> None:
        """An answer that tells where the log begins and ends."""
        partition.known_end = max(partition.known_end, end)
        self._expire(partition, start)
        self.checker.watermarks(partition.log, start=start, end=end, asked=asked, answered=trio.current_time())

    def expire_all(self) -> None:
        for partition in self.partitions:
            self._expire(partition, 0)

    def complain(self, kind: str, partition: Partition, detail: str) -> None:
        """What a client may never meet, told by the client itself."""
        self.checker.violations.append(Violation(kind, partition.log, detail))

    def _learn(self, partition: Partition, value: bytes, offset: int) -> None:
        partition.known_end = max(partition.known_end, offset + 1)
        if partition.retention_ms >= 0 and offset >= 0 and value in self._times:
            partition.times[offset] = self._times[value]

    def _expire(self, partition: Partition, start: int) -> None:
        """Retention may take what is older than it allows, up to the first record that is known to be younger.

        Where none is, any ``start`` that is told may be: above what is known there may be records without an ack.
        """
        if partition.retention_ms < 0 or not partition.times:
            return
        limit = self.now_ms() - partition.retention_ms
        young = min((offset for offset, time in partition.times.items() if time > limit), default=None)
        self.checker.may_start(partition.log, max(partition.known_end, start) if young is None else young)
