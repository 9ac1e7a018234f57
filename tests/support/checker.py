"""The checker of a history: it is fed every attempt, ack and read, and reports violations of the product's promises.

It is pure and independent of how the history was made, so simulations and tests on real processes share it. Call the
methods in the order of the events. Times are in seconds of any single clock. Each record has a unique value, which
identifies it. A retry of a record is not reported again.

The checks (INVARIANTS.md names the promise of the product behind each):

- An acked record is in the log at the end, at the offset of its ack, unless the log starts above it. If its ack has no
  offset, the record is in the log too, unless it can have been below the log start.
- No two records have the same offset, according to acks, all readers, and the log at the end.
- A record that a reader saw is at the same offset at the end. Readers see no gaps and no records that nobody sent.
- No record is below a high watermark that was reported before the record was first sent.
- A record of an idempotent producer is in the log at most once, acked or not, and in the order of sending.
- The high watermark and the log start never decrease between an answer and a later request.
- No answer omits a record that it must include, unless the log start is above that record at the end.
- Leader epochs increase with offsets. If an epoch was reported to end at an offset, none of its records that existed
  then is at or above that offset, and none of a later epoch is below. If instances have intakes, only the former is
  checked, because a new owner raises the epoch of the records that it recovers.
- The log starts at 0, at an offset that a request asked for and that was not rejected, or at most where retention
  allows.

If a log is compacted, records may be missing below its last segment, as far as `tests.support.compacted` allows it.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.by_offset import ByOffset
from tests.support.compacted import Compacted

_MOST_VIOLATIONS = 1000
_NOWHERE = -1
"""The offset of a record that nobody saw, and of an ack without an offset."""
_UNACKED = -2

Log = Hashable
"""A partition of one incarnation of a topic, for example topic id and index."""


@dataclass(frozen=True, slots=True)
class Promise:
    """The guarantees for a producer.

    ``durable``: acked records are not lost. ``once``: a record is in the log at most once, acked or not, and at the
    offset of its ack. ``ordered``: its acked records are in the log in the order of sending. ``unacked_too``: all its
    records are.
    """

    durable: bool
    once: bool
    ordered: bool
    unacked_too: bool = False


IDEMPOTENT = Promise(durable=True, once=True, ordered=True, unacked_too=True)
"""enable.idempotence, acks=all."""
UNREPEATED = Promise(durable=True, once=True, ordered=True)
"""acks=all without retries, on one connection for the lifetime of the producer."""
REPEATED = Promise(durable=True, once=False, ordered=True)
"""acks=all with retries and one request in flight. A retry may duplicate a record."""
UNORDERED = Promise(durable=True, once=False, ordered=False)
"""acks=all with retries and several requests in flight."""
LEADER = Promise(durable=False, once=True, ordered=True)
"""acks=1 without retries, on one connection. An ack has the offset of the record, but the record may be lost."""
UNANSWERED = Promise(durable=False, once=True, ordered=False)
"""acks=0, on one connection."""


@dataclass(frozen=True, slots=True)
class Violation:
    """``kind`` is one of a few words, for counting. ``detail`` is for people."""

    kind: str
    log: Log
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.log}: {self.detail}"


class _Sender(NamedTuple):
    producer: str
    promise: Promise


def _integers() -> "array[int]":
    return array("q")


@dataclass(slots=True)
class _Records:
    """The records of a log. The order of sending numbers them from 0, and each column has an item for each.

    Values that nobody sent are numbered from -1 downwards and have no items.
    """

    numbers: dict[bytes, int] = field(default_factory=dict)
    strangers: dict[bytes, int] = field(default_factory=dict)
    values: list[bytes] = field(default_factory=list)
    senders: list[_Sender] = field(default_factory=list)
    # The high watermark known when the record was first sent. The record cannot be below it.
    floors: "array[int]" = field(default_factory=_integers)
    acked_at: "array[int]" = field(default_factory=_integers)
    # Where it was first seen.
    places: "array[int]" = field(default_factory=_integers)

    def add(self, value: bytes, sender: _Sender, floor: int) -> None:
        self.numbers[value] = len(self.values)
        self.values.append(value)
        self.senders.append(sender)
        self.floors.append(floor)
        self.acked_at.append(_UNACKED)
        self.places.append(_NOWHERE)

    def number(self, value: bytes) -> int:
        number = self.numbers.get(value)
        return self.strangers.setdefault(value, -1 - len(self.strangers)) if number is None else number

    def name(self, number: int) -> str:
        value = self.values[number] if number >= 0 else list(self.strangers)[-1 - number]
        return value[:40].decode(errors="backslashreplace")


@dataclass(slots=True)
class _Rising:
    """A number that never decreases: the highest answer so far, by the time of the answer."""

    times: "array[float]" = field(default_factory=lambda: array("d"))
    values: "array[int]" = field(default_factory=_integers)

    def before(self, time: float) -> int:
        """Return the highest answer before ``time``, or -1. Answers at the same time have no order."""
        i = bisect_left(self.times, time) - 1
        return self.values[i] if i >= 0 else -1

    def add(self, time: float, value: int) -> None:
        if value > self.highest:
            self.times.append(time)
            self.values.append(value)

    @property
    def highest(self) -> int:
        return self.values[-1] if self.values else -1


@dataclass(slots=True)
class _History:
    """All reports about one log. A long run has hundreds of thousands of records, so they are kept as numbers."""

    records: _Records = field(default_factory=_Records)
    senders: dict[_Sender, _Sender] = field(default_factory=dict)
    # The record at each offset by acks, and the one that was first seen there.
    acked: ByOffset = field(default_factory=ByOffset)
    seen: ByOffset = field(default_factory=ByOffset)
    next_of: dict[str, int] = field(default_factory=dict)
    ends: _Rising = field(default_factory=_Rising)
    starts: _Rising = field(default_factory=_Rising)
    # By a log start (key): retention may raise the start of a log that starts there or above up to the value.
    starts_allowed: dict[int, int] = field(default_factory=lambda: {0: 0})
    # The number of requests for a log start that were not rejected.
    starts_asked: Counter[int] = field(default_factory=Counter)
    # Offsets of records that answers omitted, with the detail to report if the log still has them at the end.
    left_out: list[tuple[int, str]] = field(default_factory=list)
    # The epochs of records by offset, from their batches: the lowest that was seen.
    epochs: dict[int, int] = field(default_factory=dict)
    # Reported ends of epochs: epoch, end, the end of the log before the request, and the offset below which records
    # may have been deleted by then.
    epoch_ends: list[tuple[int, int, int, int]] = field(default_factory=list)
    compacted: Compacted | None = None

    def may_have_started(self, offset: int) -> bool:
        """Return whether the log may start at ``offset`` or above by now."""
        highest = max((asked for asked, times in self.starts_asked.items() if times > 0), default=0)
        return offset <= max(highest, *self.starts_allowed.values())


class Checker:
    """Collects ``violations``. They are complete after `finish` has been called for each log that still exists.

    ``recovering``: new owners may raise the epochs of records that they recover from intakes.
    """

    def __init__(self, *, recovering: bool = False) -> None:
        self.recovering = recovering
        self.violations: list[Violation] = []
        self.records_acked = 0
        self.records_read = 0
        self._logs: dict[Log, _History] = {}

    def compacts(self, log: Log, compacted: Compacted) -> None:
        """Report that the log, which is new, is compacted."""
        self._of(log).compacted = compacted

    def sent(self, producer: str, log: Log, value: bytes, promise: Promise) -> None:
        """Report that ``producer`` is about to send its next record for the first time."""
        history = self._of(log)
        if value in history.records.numbers:
            raise ValueError(f"{value!r} is reported as a new record twice")
        sender = _Sender(producer, promise)
        # All records of a producer share one object.
        history.records.add(value, history.senders.setdefault(sender, sender), max(history.ends.highest, 0))
        if history.compacted is not None:
            history.compacted.sent(value)

    def acked(self, log: Log, value: bytes, offset: int, *, now: float) -> None:
        """Report the ack of a record with its offset, or -1 if the ack has none."""
        history = self._of(log)
        records = history.records
        number = records.numbers[value]
        promise, before = records.senders[number].promise, records.acked_at[number]
        self.records_acked += 1
        if offset < 0:
            records.acked_at[number] = max(before, _NOWHERE)
            return
        if before >= 0 and before != offset and promise.once:
            self._complain("acked-twice", log, f"{records.name(number)} at {before}, then at {offset}")
        place = records.places[number]
        if promise.once and place not in (_NOWHERE, offset):
            self._complain("elsewhere", log, f"{records.name(number)} is acked at {offset} and was read at {place}")
        records.acked_at[number] = offset
        self._check_floor(log, records, number, offset)
        if not promise.durable:
            return
        found = history.seen.get(offset)
        if found is not None and found != number:
            detail = f"{records.name(number)} is acked at {offset}, where {records.name(found)} was read"
            self._complain("lost", log, detail)
        there = history.acked.setdefault(offset, number)
        if there != number:
            detail = f"{offset} acked for {records.name(there)} and for {records.name(number)}"
            self._complain("offset-twice", log, detail)
        history.ends.add(now, offset + 1)

    def read(self, reader: str, log: Log, offset: int, value: bytes) -> None:
        """Report that ``reader`` received the record at ``offset``, directly after its previous record."""
        history = self._of(log)
        self.records_read += 1
        self._pass(log, history, reader, offset)
        history.next_of[reader] = offset + 1
        number = self._saw(log, history, offset, value, reader)
        if history.compacted is not None:
            history.compacted.read(reader, number)

    def passed(self, reader: str, log: Log, offset: int) -> None:
        """Report that ``reader`` continues at ``offset``, because there are no more records below it."""
        history = self._of(log)
        self._pass(log, history, reader, offset)
        history.next_of[reader] = offset

    def moved(self, reader: str, log: Log, offset: int | None) -> None:
        """Report that ``reader`` continues at ``offset`` (None: anywhere) after a restart or reset."""
        history = self._of(log)
        if history.compacted is not None:
            history.compacted.began(reader)
        if offset is None:
            history.next_of.pop(reader, None)
        else:
            history.next_of[reader] = offset

    def watermarks(self, log: Log, *, start: int, end: int, asked: float, answered: float) -> None:
        """Report an answer with log start and high watermark (-1: not included), and when it was asked and answered."""
        history = self._of(log)
        for what, rising, value in (("watermark", history.ends, end), ("log start", history.starts, start)):
            if value < 0:
                continue
            before = rising.before(asked)
            if value < before:
                self._complain("went-back", log, f"{what} {value} asked at {asked:.3f}, before that it was {before}")
            rising.add(answered, value)
        self._check_start(log, history, start)

    def asks_start(self, log: Log, offset: int) -> None:
        """Report a request to start the log at exactly ``offset``. It may take effect now or at any later time."""
        self._of(log).starts_asked[offset] += 1

    def start_refused(self, log: Log, offset: int) -> None:
        """Report that a request for this log start was finally rejected, so it does not explain a log start."""
        self._of(log).starts_asked[offset] -= 1

    def starts_asked(self, log: Log) -> list[int]:
        """Return 0 and the requested log starts that were not rejected."""
        return [0, *(offset for offset, times in self._of(log).starts_asked.items() if times > 0)]

    def may_start(self, log: Log, offset: int, *, above: int = 0) -> None:
        """Report that retention is due: a log that starts at ``above`` or higher may now start anywhere up to
        ``offset``."""
        allowed = self._of(log).starts_allowed
        allowed[above] = max(allowed.get(above, 0), offset)

    def finish(
        self, log: Log, *, start: int, end: int, records: Iterable[tuple[int, bytes]], last_segment: int = 0
    ) -> None:
        """Report the log after all faults: its start and end, and its records from ``start`` as (offset, value).

        ``last_segment``: where the last segment of a compacted log begins.
        """
        history = self._of(log)
        if end < history.ends.highest:
            self._complain("went-back", log, f"watermark {end} at the end, before that it was {history.ends.highest}")
        if not history.starts.highest <= start:
            self._complain("went-back", log, f"log start {start} at the end, it was {history.starts.highest}")
        self._check_start(log, history, start)
        final = ByOffset()
        for offset, value in records:
            final[offset] = self._saw(log, history, offset, value, "the last reader")
        known = ByOffset(history.acked, history.seen, final)
        whole_from = start if history.compacted is None else max(start, last_segment)
        missing = [offset for offset in range(whole_from, end) if final.get(offset) is None]
        if missing:
            self._complain("gap", log, f"{len(missing)} offsets have no record at the end, the first is {missing[0]}")
        if history.compacted is None:
            self._check_seen(log, history, start, final)
            self._check_acked(log, history.records, start, final)
            self._check_unplaced(log, history, start, known)
        else:
            self._check_compacted(log, history.compacted, start, end, final, known)
        self._check_order(log, history.records, known)

        for offset, detail in history.left_out:
            if offset >= start and (history.compacted is None or final.get(offset) is not None):
                self._complain("left-out", log, detail)
        self._check_epochs(log, history)

    def leaves_out(self, log: Log, offset: int, detail: str) -> None:
        """Report that an answer omitted the record at ``offset``. The log start must be above it already, or it must
        have been removed."""
        history = self._of(log)
        if history.may_have_started(offset + 1) or history.compacted is not None:
            history.left_out.append((offset, detail))
        else:
            self._complain("left-out", log, detail)

    def epoch(self, log: Log, offset: int, epoch: int) -> None:
        """Report the leader epoch of the batch from which the record at ``offset`` was read."""
        epochs = self._of(log).epochs
        there = epochs.setdefault(offset, epoch)
        if self.recovering:
            epochs[offset] = min(there, epoch)
        elif there != epoch:
            self._complain("changed", log, f"the record at {offset} is of epoch {epoch}, earlier it was {there}")

    def epoch_ends(self, log: Log, epoch: int, end: int, known: int) -> None:
        """Report an answer with the end of an epoch. ``known`` is the known end of the log before the request."""
        history = self._of(log)
        # Deleted epochs are unknown, so the epochs before them end where the first remaining one starts.
        history.epoch_ends.append((epoch, end, known, end if history.may_have_started(end) else 0))

    def known_end(self, log: Log) -> int:
        """Return the highest high watermark reported so far."""
        return max(self._of(log).ends.highest, 0)

    def _check_epochs(self, log: Log, history: _History) -> None:
        last = (-1, -1)
        for offset, epoch in sorted(history.epochs.items()):
            if epoch < last[1] and not self.recovering:
                self._complain("epochs", log, f"{offset} is of epoch {epoch}, {last[0]} before it of {last[1]}")
            last = offset, epoch
        for epoch, end, known, start in history.epoch_ends:
            for offset, there in history.epochs.items():
                too_late = there > epoch and start <= offset < end and not self.recovering
                if too_late or (there <= epoch and end <= offset < known):
                    self._complain("epochs", log, f"epoch {epoch} was reported to end at {end}; {offset} is of {there}")
                    break

    def gone(self, log: Log) -> None:
        """Report that the log was deleted. Check it with what readers saw."""
        history = self._of(log)
        self._check_order(log, history.records, ByOffset(history.acked, history.seen))
        self._check_epochs(log, history)

    def _pass(self, log: Log, history: _History, reader: str, offset: int) -> None:
        expected = history.next_of.get(reader, offset)
        if offset > expected and history.compacted is not None:
            history.compacted.missed(reader, expected, offset)
        elif offset != expected:
            self._complain("gap", log, f"{reader} got offset {offset} instead of {expected}")

    def _check_seen(self, log: Log, history: _History, start: int, final: ByOffset) -> None:
        for offset, number in history.seen.items():
            if offset >= start and final.get(offset) != number:
                name, there = history.records.name(number), _there(history.records, final, offset)
                self._complain("vanished", log, f"{name} was read at {offset}, at the end there is {there}")

    def _check_compacted(
        self, log: Log, compacted: Compacted, start: int, end: int, final: ByOffset, known: ByOffset
    ) -> None:
        reader, expected = "the last reader", start
        compacted.began(reader)
        for offset, number in final.items():
            if offset > expected:
                compacted.missed(reader, expected, offset)
            compacted.read(reader, number)
            expected = offset + 1
        if expected < end:
            compacted.missed(reader, expected, end)
        for detail in compacted.faults(known):
            self._complain("removed", log, detail)

    def _check_acked(self, log: Log, records: _Records, start: int, final: ByOffset) -> None:
        for number, offset in enumerate(records.acked_at):
            if offset < 0 or not records.senders[number].promise.durable:
                continue
            if offset >= start and final.get(offset) != number:
                name, there = records.name(number), _there(records, final, offset)
                self._complain("lost", log, f"{name} was acked at {offset}, where {there} is")

    def _check_unplaced(self, log: Log, history: _History, start: int, known: ByOffset) -> None:
        """Check records acked without an offset and never seen. Each must fit at its own offset below the log start."""
        lowest: dict[str, int] = {}
        unseen: list[int] = []
        records = history.records
        # In the order of sending.
        for number, (producer, promise) in enumerate(records.senders):
            place, floor = records.places[number], records.floors[number]
            low = max(floor, lowest.get(producer, 0)) if promise.ordered else floor
            if records.acked_at[number] == _NOWHERE and promise.durable and place == _NOWHERE:
                if low >= start:
                    detail = f"{records.name(number)} was acked and has no possible offset below {low}"
                    self._complain("lost", log, detail)
                else:
                    unseen.append(number)
            elif place != _NOWHERE and promise.unacked_too:
                lowest[producer] = max(low, place + 1)
        free = start - sum(offset < start for offset in known)
        if len(unseen) > free:
            detail = f"{len(unseen)} records like {records.name(unseen[0])} were acked, {free} can be below {start}"
            self._complain("lost", log, detail)

    def _check_start(self, log: Log, history: _History, start: int) -> None:
        # -1 is an answer without a log start.
        allowed = start <= 0 or any(above <= start <= offset for above, offset in history.starts_allowed.items())
        if not allowed and history.starts_asked[start] <= 0:
            highest = max(history.starts_allowed.values())
            self._complain(
                "start-too-high",
                log,
                f"the log starts at {start}, which nobody requested; the highest allowed start is {highest}",
            )

    def _check_floor(self, log: Log, records: _Records, number: int, offset: int) -> None:
        floor = records.floors[number]
        if offset < floor:
            name = records.name(number)
            self._complain("too-low", log, f"{name} is at {offset}, the log ended at {floor} before it was sent")

    def _check_order(self, log: Log, records: _Records, known: ByOffset) -> None:
        last: dict[str, tuple[int, int]] = {}
        for offset, number in known.items():
            if number < 0:
                continue
            producer, promise = records.senders[number]
            if not promise.ordered or (records.acked_at[number] != offset and not promise.unacked_too):
                continue
            highest, before = last.get(producer, (-1, -1))
            if number < highest:
                detail = f"{records.name(number)} at {offset} is behind {records.name(highest)} at {before}"
                self._complain("reordered", log, detail)
            last[producer] = (number, offset)

    def _saw(self, log: Log, history: _History, offset: int, value: bytes, reader: str) -> int:
        """Check a record that a reader saw, and return its number."""
        records = history.records
        number = records.number(value)
        there = history.seen.setdefault(offset, number)
        if there != number:
            detail = f"{reader} saw {records.name(number)} at {offset}, earlier it was {records.name(there)}"
            self._complain("changed", log, detail)
        if number < 0:
            self._complain("unknown", log, f"{reader} saw {records.name(number)} at {offset}, which nobody sent there")
            return number
        self._check_floor(log, records, number, offset)
        acked = history.acked.get(offset)
        if acked is not None and acked != number:
            detail = f"{reader} saw {records.name(number)} at {offset}, which was acked for {records.name(acked)}"
            self._complain("lost", log, detail)
        if records.places[number] == _NOWHERE:
            records.places[number] = offset
        if not records.senders[number].promise.once:
            return number
        place, acked_at = records.places[number], records.acked_at[number]
        if place != offset:
            self._complain("doubled", log, f"{records.name(number)} is at {place} and at {offset}")
        if acked_at >= 0 and acked_at != offset:
            self._complain("elsewhere", log, f"{records.name(number)} was acked at {acked_at} and is at {offset}")
        return number

    def _complain(self, kind: str, log: Log, detail: str) -> None:
        if len(self.violations) < _MOST_VIOLATIONS:
            self.violations.append(Violation(kind, log, detail))

    def _of(self, log: Log) -> _History:
        history = self._logs.get(log)
        if history is None:
            history = self._logs[log] = _History()
        return history


def _there(records: _Records, final: ByOffset, offset: int) -> str:
    number = final.get(offset)
    return "nothing" if number is None else records.name(number)
