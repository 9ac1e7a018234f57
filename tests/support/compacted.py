"""What a compacted log may lack, judged when everything is known of it.

A record may be missing for a reader if the log had a later record of its key by then, or if it is a tombstone that is
old enough. A reader that began recently never misses the tombstone of a value that it has read. So whoever reads a log
from its start to its end has the last value of each key.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.by_offset import ByOffset


class Key(NamedTuple):
    """The key of a record, and whether the record is a tombstone."""

    key: bytes
    tombstone: bool


@dataclass(slots=True)
class _Pass:
    """What a reader has read since it began somewhere: the keys, in their order. ``began``: the time."""

    reader: str
    began: float
    keys: dict[bytes, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Hole:
    """Offsets that a reader passed at a time, when it had read ``keys`` keys and ``sent`` records had been sent."""

    passed: _Pass
    start: int
    end: int
    at: float
    sent: int
    keys: int


class Compacted:
    """The compaction of a log.

    Records are numbered from 0 in the order of sending. Negative numbers are those of records that nobody sent.

    ``key_of`` returns the key of a record, which its unique value determines. ``now`` is the time of the events, in
    seconds. ``stays``: how long a tombstone is in the log at least. ``reading``: a reader that needs no longer than
    this misses no tombstone.
    """

    def __init__(
        self, key_of: Callable[[bytes], Key], now: Callable[[], float], *, stays: float, reading: float
    ) -> None:
        self._key_of = key_of
        self._now = now
        self._stays = stays
        self._reading = reading
        self._values: list[bytes] = []
        # The times at which tombstones were sent.
        self._tombstones: dict[int, float] = {}
        self._passes: dict[str, _Pass] = {}
        self._holes: list[_Hole] = []

    def sent(self, value: bytes) -> None:
        if self._key_of(value).tombstone:
            self._tombstones[len(self._values)] = self._now()
        self._values.append(value)

    def began(self, reader: str) -> None:
        """Report that a reader begins anywhere, without what it read before."""
        self._passes[reader] = _Pass(reader, self._now())

    def read(self, reader: str, number: int) -> None:
        one = self._pass(reader)
        # Later it may miss any tombstone.
        if number >= 0 and self._now() - one.began < self._reading:
            one.keys.setdefault(self._key_of(self._values[number]).key, len(one.keys))

    def missed(self, reader: str, start: int, end: int) -> None:
        """Report that a reader got no records at these offsets."""
        one = self._pass(reader)
        self._holes.append(_Hole(one, start, end, self._now(), len(self._values), len(one.keys)))

    def faults(self, known: ByOffset) -> Iterator[str]:
        """Yield what was missing without a reason. ``known``: the numbers of all records whose offsets are known."""
        end, highest_unknown = self._ends(known)
        later = self._first_later(known)
        unplaced = self._first_unplaced(known)
        for hole in self._holes:
            for offset in range(hole.start, min(hole.end, end)):
                number = known.get(offset)
                if number is None or number < 0:
                    continue
                first = later.get(offset)
                if first is not None and first < hole.sent:
                    continue
                key, tombstone = self._key_of(self._values[number])
                if unplaced.get(key, hole.sent) < hole.sent and highest_unknown > offset:
                    continue
                reader, name = hole.passed.reader, self._values[number][:40]
                if not tombstone or hole.at - self._tombstones[number] < self._stays:
                    yield f"{reader} did not get {name!r} at {offset}, the last of its key, at {hole.at:.3f}"
                elif hole.passed.keys.get(key, hole.keys) < hole.keys and hole.at - hole.passed.began < self._reading:
                    yield (
                        f"{reader}, which began at {hole.passed.began:.3f}, has an old value of {key!r} at "
                        f"{hole.at:.3f}, because it did not get the tombstone {name!r} at {offset}"
                    )

    def _ends(self, known: ByOffset) -> tuple[int, int]:
        """Return the offset after the last known record, and the highest offset below it without one, or -1."""
        end, highest_unknown = 0, -1
        for offset in known:
            if offset > end:
                highest_unknown = offset - 1
            end = offset + 1
        return end, highest_unknown

    def _first_later(self, known: ByOffset) -> ByOffset:
        """Return for each offset the record of its key that was sent first of those at higher offsets."""
        later = ByOffset()
        first: dict[bytes, int] = {}
        for offset, number in known.descending():
            if number < 0:
                continue
            key = self._key_of(self._values[number]).key
            if (there := first.get(key)) is not None:
                later[offset] = there
            first[key] = number if there is None else min(there, number)
        return later

    def _first_unplaced(self, known: ByOffset) -> dict[bytes, int]:
        """Return the first record of each key that may be in the log at an offset that nobody knows."""
        placed = bytearray(len(self._values))
        for number in known.values():
            if number >= 0:
                placed[number] = 1
        unplaced: dict[bytes, int] = {}
        for number, value in enumerate(self._values):
            if not placed[number]:
                unplaced.setdefault(self._key_of(value).key, number)
        return unplaced

    def _pass(self, reader: str) -> _Pass:
        return self._passes.setdefault(reader, _Pass(reader, self._now()))
