"""What may never happen to records, whatever fails: told of every attempt, ack and read, it complains of what broke.

Pure, and without an idea of how the history came about: simulations and tests on real processes feed the same checker.
Call the methods in the order in which things happened; times are any one clock's seconds. Every record's value is
sent once in a history, so that a value is a record's identity; sent again by a retry, it is told of once.

What is checked (INVARIANTS.md says which promise of the product each check holds):

- An acked record is in the log at the end, at the offset that its ack named, unless the log starts above it. One whose
  ack named no offset is there too, unless it can have been below the log start.
- No offset is given to two records: by acks, by what any reader ever saw, by the log at the end.
- What a reader saw at an offset is there at the end; readers see no gap and no record that nobody sent.
- No record lies below the high watermark that somebody was told before the record was first sent.
- An idempotent producer's record is in the log at most once, acked or not, and in the order of sending.
- The high watermark and the log start never go back, as seen by whoever asks after another was answered.
- No answer passes over a record that it must tell of, unless the log starts above that record by the end.
- Leader epochs rise with offsets. Where one is told to end, none of its records that were there then follows, and
  none of a later epoch precedes.
- The log starts at 0, where a request that was not refused asked it to start, or no higher than retention allows.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

_MOST_VIOLATIONS = 1000

Log = Hashable
"""One partition in one life of its topic: say, topic id and index."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a producer may rely on.

    ``durable``: what is acked stays. ``once``: a record is in the log no more than once, acked or not, and at the
    offset of its ack. ``ordered``: its acked records are in the log in the order of sending; ``unacked_too``: all are.
    """

    durable: bool
    once: bool
    ordered: bool
    unacked_too: bool = False


IDEMPOTENT = Promise(durable=True, once=True, ordered=True, unacked_too=True)
"""enable.idempotence, acks=all."""
UNREPEATED = Promise(durable=True, once=True, ordered=True)
"""acks=all without retries, on one connection for the whole life of this producer."""
REPEATED = Promise(durable=True, once=False, ordered=True)
"""acks=all with retries and one request in flight: a retry may double a record."""
UNORDERED = Promise(durable=True, once=False, ordered=False)
"""acks=all with retries and several requests in flight."""
LEADER = Promise(durable=False, once=True, ordered=True)
"""acks=1 without retries, on one connection: an ack only tells the offset that the record has if it is kept."""
UNANSWERED = Promise(durable=False, once=True, ordered=False)
"""acks=0, on one connection."""


@dataclass(frozen=True, slots=True)
class Violation:
    """``kind`` is one of a few words, for counting; ``detail`` is for a person."""

    kind: str
    log: Log
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.log}: {self.detail}"


@dataclass(slots=True)
class _Sent:
    producer: str
    number: int
    promise: Promise
    # The high watermark that was known when it was first sent: it can lie nowhere below.
    floor: int
    acked_at: int | None = None


@dataclass(slots=True)
class _Rising:
    """A number that never goes back: the highest answer by the time of answering."""

    times: list[float] = field(default_factory=list)
    values: list[int] = field(default_factory=list)

    def before(self, time: float) -> int:
        """The highest that was answered before ``time``; -1: nothing was. What is told of one time has no order."""
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
    """Everything told of one log."""

    sent: dict[bytes, _Sent] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    acked: dict[int, bytes] = field(default_factory=dict)
    seen: dict[int, bytes] = field(default_factory=dict)
    places: dict[bytes, int] = field(default_factory=dict)
    next_of: dict[str, int] = field(default_factory=dict)
    ends: _Rising = field(default_factory=_Rising)
    starts: _Rising = field(default_factory=_Rising)
    # Where retention may let a log start that starts at the key or above: anywhere up to the value.
    starts_allowed: dict[int, int] = field(default_factory=lambda: {0: 0})
    # Requests for exactly this log start that were not refused.
    starts_asked: Counter[int] = field(default_factory=Counter)
    # Offsets of records that answers left out, each with what to say of it if the log still has it at the end.
    left_out: list[tuple[int, str]] = field(default_factory=list)
    # Of records by offset, as their batches say.
    epochs: dict[int, int] = field(default_factory=dict)
    # What was told: the epoch, the end of it, where the log ended before that was asked, and below which offset
    # records may have been deleted by then.
    epoch_ends: list[tuple[int, int, int, int]] = field(default_factory=list)

    def may_have_started(self, offset: int) -> bool:
        """Whether the log can start at ``offset`` or above by now."""
        highest = max((asked for asked, times in self.starts_asked.items() if times > 0), default=0)
        return offset <= max(highest, *self.starts_allowed.values())


class Checker:
    """``violations`` grows as they are noticed; `finish` each log that still exists to have all of them."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.records_acked = 0
        self.records_read = 0
        self._logs: dict[Log, _History] = {}

    def sent(self, producer: str, log: Log, value: bytes, promise: Promise) -> None:
        """A record is about to be sent for the first time, after all that ``producer`` sent before."""
        history = self._of(log)
        number = history.numbers[producer] = history.numbers.get(producer, 0) + 1
        if value in history.sent:
            raise ValueError(f"{value!r} is sent as a new record twice")
        history.sent[value] = _Sent(producer, number, promise, max(history.ends.highest, 0))

    def acked(self, log: Log, value: bytes, offset: int, *, now: float) -> None:
        """The record was acked, with its offset; -1 where the ack tells none."""
        history = self._of(log)
        sent = history.sent[value]
        self.records_acked += 1
        if offset < 0:
            sent.acked_at = -1 if sent.acked_at is None else sent.acked_at
            return
        if sent.acked_at not in (None, -1, offset) and sent.promise.once:
            self._complain("acked-twice", log, f"{_name(value)} at {sent.acked_at}, then at {offset}")
        if sent.promise.once and history.places.get(value, offset) != offset:
            self._complain(
                "elsewhere", log, f"{_name(value)} is acked at {offset} and was read at {history.places[value]}"
            )
        sent.acked_at = offset
        self._check_floor(log, sent, value, offset)
        if not sent.promise.durable:
            return
        found = history.seen.get(offset, value)
        if found != value:
            self._complain("lost", log, f"{_name(value)} is acked at {offset}, where {_name(found)} was read")
        there = history.acked.setdefault(offset, value)
        if there != value:
            self._complain("offset-twice", log, f"{offset} acked for {_name(there)} and for {_name(value)}")
        history.ends.add(now, offset + 1)

    def read(self, reader: str, log: Log, offset: int, value: bytes) -> None:
        """``reader`` got the record at ``offset``, the one after the record that it got last."""
        history = self._of(log)
        self.records_read += 1
        expected = history.next_of.get(reader, offset)
        if offset != expected:
            self._complain("gap", log, f"{reader} got offset {offset} where {expected} was due")
        history.next_of[reader] = offset + 1
        self._saw(log, history, offset, value, reader)

    def moved(self, reader: str, log: Log, offset: int | None) -> None:
        """``reader`` goes on from ``offset``: it began anew, or was told that the log starts there; None: anywhere."""
        next_of = self._of(log).next_of
        if offset is None:
            next_of.pop(reader, None)
        else:
            next_of[reader] = offset

    def watermarks(self, log: Log, *, start: int, end: int, asked: float, answered: float) -> None:
        """Somebody who asked at one time was answered at another; -1 for what the answer did not tell."""
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
        """Somebody asks for the log to start at exactly ``offset``: that may happen now or at any time later."""
        self._of(log).starts_asked[offset] += 1

    def start_refused(self, log: Log, offset: int) -> None:
        """One request for this log start was refused for good: it explains nothing."""
        self._of(log).starts_asked[offset] -= 1

    def starts_asked(self, log: Log) -> list[int]:
        """The log starts that somebody asked for and was not refused; 0 too."""
        return [0, *(offset for offset, times in self._of(log).starts_asked.items() if times > 0)]

    def may_start(self, log: Log, offset: int, *, above: int = 0) -> None:
        """From now on the log may start anywhere up to ``offset``, where it starts at ``above`` at least: retention is
        due."""
        allowed = self._of(log).starts_allowed
        allowed[above] = max(allowed.get(above, 0), offset)

    def finish(self, log: Log, *, start: int, end: int, records: Iterable[tuple[int, bytes]]) -> None:
        """All that is in the log when everything works again: its ends, and (offset, value) from ``start`` on."""
        history = self._of(log)
        if end < history.ends.highest:
            self._complain("went-back", log, f"watermark {end} at the end, before that it was {history.ends.highest}")
        if not history.starts.highest <= start:
            self._complain("went-back", log, f"log start {start} at the end, it was {history.starts.highest}")
        self._check_start(log, history, start)
        final: dict[int, bytes] = {}
        for offset, value in records:
            self._saw(log, history, offset, value, "the last reader")
            final[offset] = value
        missing = [offset for offset in range(start, end) if offset not in final]
        if missing:
            self._complain("gap", log, f"{len(missing)} offsets hold nothing at the end, the first is {missing[0]}")
        for offset, value in history.seen.items():
            if offset >= start and final.get(offset) != value:
                found = _name(final[offset]) if offset in final else "nothing"
                self._complain("vanished", log, f"{_name(value)} was read at {offset}, at the end there is {found}")
        self._check_acked(log, history, start, final)
        self._check_unplaced(log, history, start, final)
        self._check_order(log, history, final)

        for offset, detail in history.left_out:
            if offset >= start:
                self._complain("left-out", log, detail)
        self._check_epochs(log, history)

    def leaves_out(self, log: Log, offset: int, detail: str) -> None:
        """An answer left the record at ``offset`` out: the log start must have passed it already."""
        history = self._of(log)
        if history.may_have_started(offset + 1):
            history.left_out.append((offset, detail))
        else:
            self._complain("left-out", log, detail)

    def epoch(self, log: Log, offset: int, epoch: int) -> None:
        """The record at ``offset`` was read from a batch of this leader epoch."""
        there = self._of(log).epochs.setdefault(offset, epoch)
        if there != epoch:
            self._complain("changed", log, f"the record at {offset} is of epoch {epoch}, earlier it was {there}")

    def epoch_ends(self, log: Log, epoch: int, end: int, known: int) -> None:
        """Somebody who asked when the log was known to end at ``known`` was told that this epoch ends there."""
        history = self._of(log)
        # Epochs of which nothing is left are unknown: those before end where the first of the others begins.
        history.epoch_ends.append((epoch, end, known, end if history.may_have_started(end) else 0))

    def known_end(self, log: Log) -> int:
        """The highest watermark that was told so far."""
        return max(self._of(log).ends.highest, 0)

    def _check_epochs(self, log: Log, history: _History) -> None:
        last = (-1, -1)
        for offset, epoch in sorted(history.epochs.items()):
            if epoch < last[1]:
                self._complain("epochs", log, f"{offset} is of epoch {epoch}, {last[0]} before it of {last[1]}")
            last = offset, epoch
        for epoch, end, known, start in history.epoch_ends:
            for offset, there in history.epochs.items():
                if (there > epoch and start <= offset < end) or (there <= epoch and end <= offset < known):
                    self._complain("epochs", log, f"epoch {epoch} was told to end at {end}; {offset} is of {there}")
                    break

    def gone(self, log: Log) -> None:
        """The log was deleted: judge it by what was seen of it."""
        history = self._of(log)
        self._check_order(log, history, {})
        self._check_epochs(log, history)

    def _check_acked(self, log: Log, history: _History, start: int, final: dict[int, bytes]) -> None:
        for value, sent in history.sent.items():
            if sent.acked_at is None or not sent.promise.durable or sent.acked_at < 0:
                continue
            if sent.acked_at >= start and final.get(sent.acked_at) != value:
                there = _name(final[sent.acked_at]) if sent.acked_at in final else "nothing"
                self._complain("lost", log, f"{_name(value)} was acked at {sent.acked_at}, where {there} is")

    def _check_unplaced(self, log: Log, history: _History, start: int, final: dict[int, bytes]) -> None:
        """Records that were acked without an offset and never seen: each needs a place of its own below the start."""
        lowest: dict[str, int] = {}
        unseen: list[bytes] = []
        # In the order of sending.
        for value, sent in history.sent.items():
            place = history.places.get(value)
            low = max(sent.floor, lowest.get(sent.producer, 0)) if sent.promise.ordered else sent.floor
            if sent.acked_at == -1 and sent.promise.durable and place is None:
                unseen.append(value)
                if low >= start:
                    self._complain("lost", log, f"{_name(value)} was acked and can lie nowhere below {low}")
                    unseen.pop()
            elif place is not None and sent.promise.unacked_too:
                lowest[sent.producer] = max(low, place + 1)
        known = {**history.acked, **history.seen, **final}
        free = start - sum(offset < start for offset in known)
        if len(unseen) > free:
            detail = f"{len(unseen)} records like {_name(unseen[0])} were acked, {free} can be below {start}"
            self._complain("lost", log, detail)

    def _check_start(self, log: Log, history: _History, start: int) -> None:
        # An answer without a start has -1.
        allowed = start <= 0 or any(above <= start <= offset for above, offset in history.starts_allowed.items())
        if not allowed and history.starts_asked[start] <= 0:
            highest = max(history.starts_allowed.values())
            self._complain(
                "start-too-high", log, f"the log starts at {start}, which nobody asked for; allowed is {highest}"
            )

    def _check_floor(self, log: Log, sent: _Sent, value: bytes, offset: int) -> None:
        if offset < sent.floor:
            self._complain(
                "too-low", log, f"{_name(value)} is at {offset}, the log ended at {sent.floor} before it was sent"
            )

    def _check_order(self, log: Log, history: _History, final: dict[int, bytes]) -> None:
        known = {**history.acked, **history.seen, **final}
        last: dict[str, tuple[int, int]] = {}
        for offset in sorted(known):
            sent = history.sent.get(known[offset])
            if sent is None or not sent.promise.ordered:
                continue
            if sent.acked_at != offset and not sent.promise.unacked_too:
                continue
            number, before = last.get(sent.producer, (0, -1))
            if sent.number < number:
                self._complain(
                    "reordered",
                    log,
                    f"{sent.producer}'s record {sent.number} at {offset} is behind its {number} at {before}",
                )
            last[sent.producer] = (sent.number, offset)

    def _saw(self, log: Log, history: _History, offset: int, value: bytes, reader: str) -> None:
        there = history.seen.setdefault(offset, value)
        if there != value:
            self._complain("changed", log, f"{reader} saw {_name(value)} at {offset}, earlier it was {_name(there)}")
        sent = history.sent.get(value)
        if sent is None:
            self._complain("unknown", log, f"{reader} saw {_name(value)} at {offset}, which nobody sent there")
            return
        self._check_floor(log, sent, value, offset)
        acked = history.acked.get(offset, value)
        if acked != value:
            self._complain("lost", log, f"{reader} saw {_name(value)} at {offset}, which was acked for {_name(acked)}")
        place = history.places.setdefault(value, offset)
        if not sent.promise.once:
            return
        if place != offset:
            self._complain("doubled", log, f"{_name(value)} is at {place} and at {offset}")
        if sent.acked_at not in (None, -1, offset):
            self._complain("elsewhere", log, f"{_name(value)} was acked at {sent.acked_at} and is at {offset}")

    def _complain(self, kind: str, log: Log, detail: str) -> None:
        if len(self.violations) < _MOST_VIOLATIONS:
            self.violations.append(Violation(kind, log, detail))

    def _of(self, log: Log) -> _History:
        history = self._logs.get(log)
        if history is None:
            history = self._logs[log] = _History()
        return history


def _name(value: bytes) -> str:
    return value[:40].decode(errors="backslashreplace")
