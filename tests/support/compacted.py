"""What a compacted log may lack, judged when everything is known of it.

A record may be missing for a reader if the log had a later record of its key by then, or if it is a tombstone that is
old enough. A reader that began recently never misses the tombstone of a value that it has read. So whoever reads a log
from its start to its end has the last value of each key.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple


class Key(NamedTuple):
    """The key of a record, and whether the record is a tombstone."""

    key: bytes
    tombstone: bool


@dataclass(slots=True)
class _Pass:
    """What a reader has read since it began somewhere: the keys. ``began``: the time."""

    began: float
    keys: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Hole:
    """Offsets that a reader passed at a time, when ``sent`` records had been sent."""

    reader: str
    start: int
    end: int
    at: float
    sent: int
    began: float
    keys: Set[bytes]


class Compacted:
    """The compaction of a log.

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
        # The number and time of each record sent.
        self._sent: dict[bytes, tuple[int, float]] = {}
        self._passes: dict[str, _Pass] = {}
        self._holes: list[_Hole] = []

    def sent(self, value: bytes) -> None:
        self._sent[value] = len(self._sent), self._now()

    def began(self, reader: str) -> None:
        """Report that a reader begins anywhere, without what it read before."""
        self._passes[reader] = _Pass(self._now())

    def read(self, reader: str, value: bytes) -> None:
        self._pass(reader).keys.add(self._key_of(value).key)

    def missed(self, reader: str, start: int, end: int) -> None:
        """Report that a reader got no records at these offsets."""
        one = self._pass(reader)
        self._holes.append(_Hole(reader, start, end, self._now(), len(self._sent), one.began, frozenset(one.keys)))

    def faults(self, known: Mapping[int, bytes]) -> Iterator[str]:
        """Yield what was missing without a reason. ``known``: all records whose offsets are known."""
        offsets: dict[bytes, list[int]] = defaultdict(list)
        for offset, value in known.items():
            offsets[self._key_of(value).key].append(offset)
        # The first record of each key that may be in the log at an offset that nobody knows.
        unplaced: dict[bytes, int] = {}
        placed = set(known.values())
        for value, (number, _) in self._sent.items():
            if value not in placed:
                unplaced.setdefault(self._key_of(value).key, number)
        end = max(known, default=-1)
        highest_unknown = next((offset for offset in range(end, -1, -1) if offset not in known), -1)
        for hole in self._holes:
            for offset in range(hole.start, hole.end):
                if offset not in known:
                    continue
                value = known[offset]
                key, tombstone = self._key_of(value)
                later = any(one > offset and self._number(known[one]) < hole.sent for one in offsets[key])
                if later or (unplaced.get(key, hole.sent) < hole.sent and highest_unknown > offset):
                    continue
                name = value[:40]
                if not tombstone or hole.at - self._sent[value][1] < self._stays:
                    yield f"{hole.reader} did not get {name!r} at {offset}, the last of its key, at {hole.at:.3f}"
                elif key in hole.keys and hole.at - hole.began < self._reading:
                    yield (
                        f"{hole.reader}, which began at {hole.began:.3f}, has an old value of {key!r} at "
                        f"{hole.at:.3f}, because it did not get the tombstone {name!r} at {offset}"
                    )

    def _pass(self, reader: str) -> _Pass:
        return self._passes.setdefault(reader, _Pass(self._now()))

    def _number(self, value: bytes) -> int:
        return self._sent[value][0] if value in self._sent else -1
